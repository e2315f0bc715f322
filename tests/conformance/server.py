"""The server that the official conformance suite tests: every tool, resource and prompt that its
scenarios call for.

    python tests/conformance/server.py --port 8000

Nothing here but the public API, and one URL serves every revision. The suite looks things up by
name, so the names are its own. What each scenario checks is said where it is not plain to see.
"""

import argparse
import asyncio
import base64
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Struct

from dovetail import (
    Audio,
    Context,
    EmbeddedResource,
    File,
    Header,
    Image,
    Message,
    Server,
    TextContent,
    TextResourceContents,
    ToolError,
    __version__,
)
from dovetail.errors import CannotAsk, InternalError, MissingCapability

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
"""The smallest of pictures: one red dot, as PNG."""
SILENCE = base64.b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=")
"""The shortest of sounds, as WAV."""

server = Server(
    "dovetail-conformance", version=__version__, instructions="Made for the conformance suite."
)


# Tools: what they return.


@server.tool
def test_simple_text() -> str:
    """Return a text. Listed first, because the suite calls the first tool without arguments."""
    return "This is a simple text response for testing."


@server.tool
def test_image_content() -> Image:
    """Return a picture."""
    return Image(PIXEL)


@server.tool
def test_audio_content() -> Audio:
    """Return a sound."""
    return Audio(SILENCE)


@server.tool
def test_embedded_resource() -> File:
    """Return a resource together with its contents."""
    return File(
        b"This is an embedded resource content.", "text/plain", uri="test://embedded-resource"
    )


@server.tool
def test_multiple_content_types() -> list[Any]:
    """Return a text, a picture and a resource."""
    return [
        TextContent("Multiple content types test:"),
        Image(PIXEL),
        File(
            b'{"test":"data","value":123}', "application/json", uri="test://mixed-content-resource"
        ),
    ]


@server.tool
def test_error_handling() -> str:
    """Fail, in words meant for the model."""
    raise ToolError("This tool intentionally returns an error for testing")


# Tools: what they tell while they run.


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Log three times on the way."""
    for step in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(step)
        await asyncio.sleep(0.05)
    return "Logged three times."


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Log once. A stateless client that asked for no level must not hear it."""
    await ctx.info("Only for those who asked")
    return "Logged once."


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress three times."""
    for done in (0, 50, 100):
        await ctx.progress(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(0.05)
    return "Came all the way."


@server.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Answer in a stream, in which a server of the stateless era may only notify, never ask."""
    await ctx.info("Nobody is asked here")
    return "Asked nobody."


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """Close the stream in the middle of the call. The result waits for the client to come back."""
    ctx.close_stream()
    await asyncio.sleep(0.1)
    return "Reconnection test completed successfully."


# Tools: what they ask. One body serves every era.


class Person(Struct):
    username: str
    email: str


class Defaults(Struct):
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


class Name(Struct):
    name: str


class Colour(Struct):
    color: str


class Consent(Struct):
    ok: bool


class Background(Struct):
    context: str


CHOICES = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
PLAIN = ["option1", "option2", "option3"]
ENUMS = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": PLAIN},
        "titledSingle": {"type": "string", "oneOf": CHOICES},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["One", "Two", "Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": PLAIN}},
        "titledMulti": {"type": "array", "items": {"anyOf": CHOICES}},
    },
}
"""Every way to offer choices. A schema, since the suite wants the older spelling too, which no type
has."""


@server.tool
async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the user who they are."""
    answer = await ctx.elicit(message, Person)
    return f"The user chose to {answer.action}: {answer.data}"


@server.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask with a default for each kind of field."""
    answer = await ctx.elicit("Please review and update the form fields with defaults", Defaults)
    return f"The user chose to {answer.action}: {answer.data}"


@server.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask for choices of every kind."""
    answer = await ctx.elicit("Please select options from the enum fields", ENUMS)
    return f"The user chose to {answer.action}: {answer.data}"


@server.tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Ask the client's model."""
    return (await ctx.sample(prompt, max_tokens=100)).text


@server.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Ask for a name, under a key that the suite knows."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    return f"Hello, {answer.data.name if answer.data else 'whoever you are'}!"


@server.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the model for a capital."""
    return (await ctx.sample("What is the capital of France?", max_tokens=100)).text


@server.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Ask for the roots."""
    return f"There are {len(await ctx.list_roots())} roots."


@server.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Ask for consent; what the client brings back with it is ours, and sealed."""
    await ctx.elicit("Please confirm", Consent)
    return "state-ok"


@server.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask three things at once, in one round."""
    answer, said, roots = await asyncio.gather(
        ctx.elicit("What is your name?", Name),
        ctx.sample("Greet the user", max_tokens=50),
        ctx.list_roots(),
    )
    return f"{said.text} {answer.action}, {len(roots)} roots"


@server.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask twice, one after the other."""
    first = await ctx.elicit("Step 1: what is your name?", Name)
    second = await ctx.elicit("Step 2: what is your favourite colour?", Colour)
    return f"{first.action}, then {second.action}"


@server.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Ask; a client that changes the state is refused."""
    await ctx.elicit("Please confirm", Consent)
    return "The state was as it should be."


@server.tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask only what the client can be asked."""
    try:
        return (await ctx.elicit("What is your name?", Name)).action
    except CannotAsk:
        return (await ctx.sample("What might the user be called?", max_tokens=50)).text


@server.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks for its background first."""
    answer = await ctx.elicit("What should the prompt know?", Background, key="user_context")
    return f"With this in mind: {answer.data.context if answer.data else 'nothing'}"


# Tools: what they need, and what they change.


@server.tool
def test_missing_capability(ctx: Context) -> str:
    """Refuse a client that did not declare sampling."""
    if ctx.capabilities.sampling is None:
        raise MissingCapability(
            "This tool needs a model to sample", data={"requiredCapabilities": {"sampling": {}}}
        )
    return "The client can sample."


@server.tool
def test_x_mcp_header(region: Annotated[str, Header("Region")]) -> str:
    """Take an argument that HTTP clients mirror into the header `Mcp-Param-Region`."""
    return f"Served in {region}."


@server.tool
def test_trigger_tool_change() -> str:
    """Change the list of tools, there and back. Whoever listens is told by itself."""

    def passing_tool() -> None:
        """Come and go."""

    server.add_tool(passing_tool)
    server.remove_tool("passing_tool")
    return "The tools have changed."


@server.tool
def test_trigger_prompt_change() -> str:
    """Change the list of prompts, there and back."""

    def passing_prompt() -> str:
        """Come and go."""
        return ""

    server.add_prompt(passing_prompt)
    server.remove_prompt("passing_prompt")
    return "The prompts have changed."


@server.tool(
    schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
)
def json_schema_2020_12_tool(**contact: Any) -> str:
    """Take what a rich JSON schema describes. The schema must arrive as it is written here."""
    return f"Got {', '.join(sorted(contact))}."


# Tasks.


class Confirmation(Struct):
    """Yes or no."""

    confirm: bool


@server.tool
def greet(name: str) -> str:
    """Greet, at once."""
    return f"Hello, {name}!"


@server.tool(task="optional")
async def slow_compute(seconds: float = 0, label: str = "") -> str:
    """Take some time."""
    await asyncio.sleep(seconds)
    return f"Computed {label or 'something'} for {seconds:g} s"


@server.tool(task="required")
async def failing_job() -> str:
    """Fail as a tool does."""
    await asyncio.sleep(0.2)
    raise ToolError("This job always fails")


@server.tool(task="optional")
async def protocol_error_job() -> str:
    """Fail as a request does."""
    raise InternalError("This job breaks the protocol")


@server.tool(task="optional")
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Ask before it goes on."""
    answer = await ctx.elicit(f"Delete {filename}?", Confirmation)
    return f"Deleted {filename}" if answer.data and answer.data.confirm else f"Kept {filename}"


@server.tool(task="optional")
async def multi_input(ctx: Context) -> str:
    """Ask two things at once."""
    questions = (
        ctx.elicit("Your name?", Name, key="name"),
        ctx.elicit("Are you sure?", Confirmation, key="confirm"),
    )
    name, sure = await asyncio.gather(*questions)
    return f"{name.data.name if name.data else 'Nobody'} is {'sure' if sure.data else 'not sure'}"


@server.tool(task="required")
async def test_tool_with_task(ctx: Context) -> str:
    """Ask first, then go on as a task."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    await ctx.detach()
    await asyncio.sleep(0.1)
    return f"Hello, {answer.data.name if answer.data else 'whoever you are'}!"


# Resources.


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A text that never changes."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """A picture that never changes."""
    return PIXEL


@server.resource("test://watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    """A text to subscribe to."""
    return "Watched resource content"


@server.resource("test://template/{id}/data", mime_type="application/json")
def template_data(id: str) -> dict[str, Any]:
    """Data under an id of your choice."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


# A skill: the folder beside this file.

server.add_skill(
    Path(__file__).parent / "skills" / "pdf-processing", uri="skill://office/pdf-processing"
)


# Prompts.


@server.prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@test_prompt_with_arguments.complete("arg1")
def first_arguments(value: str) -> list[str]:
    """Values that begin with what was typed so far."""
    return [word for word in ("test", "testing", "toast") if word.startswith(value)]


@server.prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[Message]:
    """A prompt that brings a resource along."""
    contents = TextResourceContents(
        uri=resourceUri, text="Embedded resource content for testing.", mime_type="text/plain"
    )
    return [
        Message("user", EmbeddedResource(contents)),
        Message("user", TextContent("Please process the embedded resource above.")),
    ]


@server.prompt
def test_prompt_with_image() -> list[Any]:
    """A prompt that brings a picture along."""
    return [Image(PIXEL), "Please analyze the image above."]


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="The server that the conformance suite tests.")
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, default=8000)
    server.run("http", **vars(options.parse_args()))
