"""A tool's result with its data as a type of the caller's: `call_tool("forecast", …,
type=Forecast).data`."""

from typing import Any, Generic, TypeVar

from ..errors import InvalidOutput
from ..protocol.tools import ToolResult
from ..schema import Mismatch, Shape

T = TypeVar("T")


class Typed(ToolResult, Generic[T], kw_only=True):
    """A result whose `.data` has been converted."""

    converted: Any = None

    @property
    def data(self) -> T:
        """What the tool returned, as the type that was asked for."""
        return self.converted  # type: ignore[no-any-return]


def typed(result: ToolResult, type_: Any) -> Typed[Any]:
    """The result with its data converted; the result itself stays with the error where that
    fails."""
    shape = Shape.of(type_)
    try:
        if result.structured_content is None and type_ is not str:
            value = shape.decode(result.text.encode())
        else:
            value = shape.convert(result.data)
    except (Mismatch, ValueError) as error:
        raise InvalidOutput(
            f"The result is no {getattr(type_, '__name__', type_)}: {error}", result
        ) from None
    return Typed(
        content=result.content,
        structured_content=result.structured_content,
        is_error=result.is_error,
        meta=result.meta,
        converted=value,
    )
