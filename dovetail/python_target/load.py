"""Load the server that a Python target names.

`load_server` imports the code: a block under `if __name__ == "__main__":` does not run, and `print`
writes to stderr, because stdout may carry the protocol. Loading ends at the first `server.run()`.

`serve_target` runs in a client's child process. It runs a file as a script, so that servers written
with other packages also work. In that process, `server.run(…)` always serves on stdio, regardless
of its transport argument. If the script ends without serving anything, its server is run as
`dovetail run` would run it.

The folder of a file comes first on `sys.path`, as it does for a script. If the file has relative
imports, it belongs to a package, and the folder that contains the package comes first instead.
"""

import ast
import os
import sys
from contextlib import redirect_stdout
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import ConfigError, DovetailError
from ..text import with_article
from .parse import PythonTarget
from .run_hook import intercept_run

if TYPE_CHECKING:
    from ..server.options import Transport
    from ..server.runnable import RunnableService

USUAL_NAMES = ("server", "mcp", "app", "gateway")
"""If a file has several servers, the one with the first of these names is used."""


class _ServerRun(BaseException):
    """`server.run()` was called while the file was being loaded."""

    def __init__(self, server: "RunnableService") -> None:
        self.server = server


class _UncachedLoader(SourceFileLoader):
    """Compiles the file each time, as Python does for scripts."""

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


def load_server(target: PythonTarget) -> "RunnableService":
    """Import the target's code and return its server.

    Raises:
        ConfigError: There is no such file, module or server.
        DovetailError: The code raised an exception; the message names the line.
    """
    target.check_exists()
    spec = _find_module(target)
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.argv = [target.absolute().source]

    def stop_loading(server: "RunnableService", transport: "Transport") -> NoReturn:
        raise _ServerRun(server)

    with redirect_stdout(sys.stderr), intercept_run(stop_loading):
        try:
            assert spec.loader is not None
            spec.loader.exec_module(module)
        except _ServerRun as run:
            if target.name is None:
                return run.server
        except (Exception, SystemExit) as error:
            raise _explain(error, module.__file__ or spec.name) from error
        return find_server(module, target)


def find_server(module: ModuleType, target: PythonTarget) -> "RunnableService":
    """Return the server from a loaded module; if the target is a factory, call it."""
    from ..server.runnable import RunnableService

    servers = {
        key: value for key, value in vars(module).items() if isinstance(value, RunnableService)
    }
    if target.name is not None:
        found: Any = module
        for part in target.name.split("."):
            found = getattr(found, part, None)
        if callable(found) and not isinstance(found, RunnableService):
            found = _call_factory(found, target, module)
        if isinstance(found, RunnableService):
            return found
        raise ConfigError(_not_a_server(found, target, list(servers)))
    for key in USUAL_NAMES:
        if key in servers:
            return servers[key]
    if not servers:
        raise ConfigError(
            f"{target} has no Server at module level; create one, or name it: {target}:OBJECT"
        )
    if len(set(map(id, servers.values()))) == 1:
        return next(iter(servers.values()))
    choices = ", ".join(f"{target}:{key}" for key in servers)
    raise ConfigError(f"{target} has several servers; choose one: {choices}")


def serve_target(target: PythonTarget) -> None:
    """Serve the target on stdio in a client's child process."""
    try:
        if target.name is None:
            _run_script(target)
        else:
            load_server(target).run()
    except DovetailError as error:
        print(error, file=sys.stderr)
        sys.exit(1)


def _run_script(target: PythonTarget) -> None:
    """Run the file as `python FILE` does. If the file does not start its server, serve that
    server."""
    spec = _find_module(target)
    module = module_from_spec(spec)
    module.__name__ = "__main__"
    if not spec.parent:
        module.__spec__ = None  # as Python does; multiprocessing looks at it
    sys.modules["__main__"] = module
    sys.argv = [target.source]
    served = False

    def on_run(server: "RunnableService", transport: "Transport") -> "Transport":
        nonlocal served
        served = True
        return "stdio"

    with intercept_run(on_run):
        try:
            assert isinstance(spec.loader, _UncachedLoader)
            exec(spec.loader.get_code(spec.name), vars(module))
        except Exception as error:
            error.__traceback__ = _users_frames(error.__traceback__, target.source)
            sys.excepthook(type(error), error, error.__traceback__)
            sys.exit(1)
        if not served and "dovetail.server.runnable" in sys.modules:
            find_server(module, target).run()


# the code


def _find_module(target: PythonTarget) -> ModuleSpec:
    """Return the spec of the target's module, and set `sys.path` as its code requires."""
    if not target.is_file:
        sys.path.insert(0, os.getcwd())
        try:
            spec = find_spec(target.source)
        except ModuleNotFoundError as error:
            spec = None
            if not f"{target.source}.".startswith(f"{error.name}."):
                raise _explain(error, target.source) from error
        except Exception as error:  # of a package that the module is in
            raise _explain(error, target.source) from error
        if spec is None:
            raise ConfigError(f"There is no module named {target.source!r}")
        return spec
    path = os.path.abspath(target.source)
    root, package = _find_package(path)
    name = os.path.basename(path).partition(".")[0]
    if package and _has_relative_imports(path):
        sys.path[:] = [root, *sys.path, os.path.dirname(path)]
        name = f"{package}.{name}"
    else:
        sys.path.insert(0, os.path.dirname(path))
        name = name if name not in sys.modules else f"_{name}"
    spec = spec_from_file_location(name, path, loader=_UncachedLoader(name, path))
    assert spec is not None
    return spec


def _find_package(path: str) -> tuple[str, str]:
    """Return the folder that contains the package of a file, and the package's dotted name; the
    name is empty if the file is not in a package."""
    folder = os.path.dirname(path)
    names: list[str] = []
    while os.path.basename(folder) and os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, name = os.path.split(folder)
        names.insert(0, name)
    return folder, ".".join(names)


def _has_relative_imports(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, ValueError, SyntaxError):
        return False  # running the file reports it
    return any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))


def _call_factory(factory: Any, target: PythonTarget, module: ModuleType) -> Any:
    try:
        made = factory()
        if hasattr(made, "__await__"):
            import asyncio

            made = asyncio.run(_await(made))
    except _ServerRun as run:
        return run.server
    except (Exception, SystemExit) as error:
        raise _explain(error, module.__file__ or target.source) from error
    return made


async def _await(value: Any) -> Any:
    return await value


# messages


def _not_a_server(found: Any, target: PythonTarget, servers: list[str]) -> str:
    if found is None:
        names = f"; it has: {', '.join(servers)}" if servers else ""
        return f"{target.source} has no object named {target.name!r}{names}"
    example = f"{target.source}:{servers[0] if servers else 'server'}"
    return (
        f"{target.name} is {with_article(type(found).__name__)}, not a Server. Name the Server "
        f"object, or a function that returns it: {example}"
    )


def _explain(error: BaseException, path: str) -> DovetailError:
    """Return an error that names the line of the user's code that was being executed."""
    from traceback import walk_tb

    line = error.lineno if isinstance(error, SyntaxError) and error.filename == path else None
    for frame, number in walk_tb(error.__traceback__):
        if frame.f_code.co_filename == path:
            line = number
    where = path if line is None else f"{path}:{line}"
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    kind = type(error).__name__
    return DovetailError(f"{where}: {kind}: {text}" if text else f"{where}: {kind}")


def _users_frames(traceback: TracebackType | None, path: str) -> TracebackType | None:
    """Return the traceback, starting at the first frame in the user's file."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename != path:
        traceback = traceback.tb_next
    return traceback
