"""A gallery: pictures, sounds, embedded resources and mixed lists, spelled as on the wire."""

from mcp.server.fastmcp import Audio, FastMCP, Image
from mcp.types import (
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

mcp = FastMCP("gallery", log_level="ERROR")


@mcp.tool(annotations=ToolAnnotations(title="Dot", readOnlyHint=True, openWorldHint=False))
def dot() -> Image:
    """One dot."""
    return Image(data=b"\x89PNG", format="png")


@mcp.tool()
def beep() -> Audio:
    return Audio(data=b"RIFF", format="wav")


@mcp.tool()
def show() -> list:
    return [
        TextContent(type="text", text="Look:"),
        ImageContent(type="image", data="AAAA", mimeType="image/jpeg"),
    ]


@mcp.tool(structured_output=False)
def attach() -> EmbeddedResource:
    inside = TextResourceContents(uri="gallery://label", mimeType="text/plain", text="A dot")
    return EmbeddedResource(type="resource", resource=inside)


@mcp.tool()
def mixed() -> list:
    return ["a dot", Image(data=b"\x89PNG", format="png"), {"size": 1}]


if __name__ == "__main__":
    mcp.run()
