"""What FastMCP's tasks need besides `task=…`: `Progress`, `TaskConfig` and `TasksExtension`."""

from typing import Any

from msgspec import defstruct

from ..connection.extension import Extension
from .dependencies import Dependency, get_context

TaskConfig = defstruct("TaskConfig", [("mode", str, "optional"), ("poll_interval", Any, None)])


def TasksExtension(**ignored: Any) -> Extension:
    """Return an extension without effect, because `task=…` is enough."""
    return Extension(id="com.gofastmcp/tasks", silent=True)


class Progress(Dependency):
    """The default value of a parameter through which a tool reports its progress."""

    def __init__(self) -> None:
        super().__init__(type(self))
        self.current, self.total, self.message = 0, 1, ""

    async def set_total(self, total: int) -> None:
        self.total = total

    async def increment(self, amount: int = 1) -> None:
        self.current += amount
        await get_context().report_progress(self.current, self.total, self.message or None)

    async def set_message(self, message: str | None) -> None:
        self.message = message or ""
        await self.increment(0)
