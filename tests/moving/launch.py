"""Run the server in an example over stdio: `launch.py FILE`. It runs on the example's own library
and, through `dovetail run --compat`, on Dovetail.

The server is an object in the file, or what its function `build_server` or `create_server` returns.
A file without either runs as a script.
"""

import asyncio
import importlib
import importlib.util
import runpy
import sys
from pathlib import Path

NAMES = ("mcp", "server", "app")
MAKERS = ("build_server", "create_server", "make_server")


def find_server(names):
    """Return the server in the globals of an example; None if there is none."""
    ordered = [names[name] for name in NAMES if name in names] + list(names.values())
    for value in ordered:
        if not isinstance(value, type) and is_server(value):
            return value
    for name in MAKERS:
        if name in names:
            return names[name]()
    return None


def is_server(value):
    return hasattr(value, "run_stdio_async") or hasattr(value, "create_initialization_options")


def load(path):
    """Return the globals of a file, or of the module `server` in a package. The module stays,
    because its functions need it."""
    if path.is_dir():
        has_server = (path / "server.py").exists()
        return vars(importlib.import_module(f"{path.name}.server")) if has_server else {}
    root = path.parent
    while (root / "__init__.py").exists():
        root = root.parent
    if root != path.parent:
        sys.path.insert(0, str(root))
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        return vars(importlib.import_module(name))
    spec = importlib.util.spec_from_file_location("example", path)
    module = sys.modules["example"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)


async def serve(server):
    """Serve a high-level or a low-level server."""
    if hasattr(server, "run_stdio_async"):
        await server.run_stdio_async()
        return
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main():
    path = Path(sys.argv[1])
    sys.argv = [str(path)]
    sys.path.insert(0, str(path.parent))
    server = find_server(load(path))
    if server is not None:
        asyncio.run(serve(server))
    elif path.is_dir():
        runpy.run_module(path.name, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(str(path), run_name="__main__")


if __name__ == "__main__":
    main()
