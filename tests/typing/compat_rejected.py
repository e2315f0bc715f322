"""What users of `dovetail.compat` may write by mistake and type checkers reject, in each line that
ends with `# error`. This file is checked, not run."""

from dovetail.compat import Context, FastMCP

mcp = FastMCP("notes")


@mcp.tool(titel="x")  # error
def misspelled() -> None: ...


@mcp.tool()
def add(a: int) -> int:
    return a


add("1")  # error


@mcp.prompt(structured_output=True)  # error
def ask(name: str) -> str:
    return name


async def use(ctx: Context) -> None:
    print(ctx.nonsense)  # error


mcp.from_fastapi(mcp)  # error
