"""A prompt that embeds a resource: it asks for a code review that follows the style guide of a
language.

    dovetail prompt examples/code_review.py code_review code=@examples/weather.py
    dovetail read examples/code_review.py style://python

In a host, prompts are often commands that the user types, such as `/code_review`. The style guide
is part of the conversation, so the model does not have to fetch it.
"""

from typing import Literal

from dovetail import Context, EmbeddedResource, Message, Server

Language = Literal["python", "sql"]
GUIDES: dict[Language, str] = {
    "python": """\
# Python

- A function does one thing, and its name says what.
- Annotate parameters and return values.
- Raise an exception that names the wrong value; never return an error code.
""",
    "sql": """\
# SQL

- Name the columns; do not write `SELECT *`.
- Pass values as parameters; never join them into the statement.
""",
}

server = Server("reviews", version="1.0.0")


@server.resource("style://{language}", mime_type="text/markdown")
def style_guide(language: Language) -> str:
    """Return the style guide of a language."""
    return GUIDES[language]


@server.prompt(title="Request Code Review")
async def code_review(code: str, ctx: Context, language: Language = "python") -> list[Message]:
    """Ask for a review of code.

    Args:
        code: The code to review.
        language: The language of the code.
    """
    (guide,) = await ctx.read_resource(f"style://{language}")
    return [
        Message("user", EmbeddedResource(guide)),
        Message(
            "user",
            f"Review this {language} code. Name each place where it does not follow the style guide"
            f" above, and say how to improve it.\n\n{fence(code, language)}",
        ),
    ]


def fence(code: str, language: str) -> str:
    """Return the code as a block of Markdown that it cannot close itself."""
    marks = "```"
    while marks in code:
        marks += "`"
    return f"{marks}{language}\n{code.rstrip()}\n{marks}"


style_guide.complete("language", list(GUIDES))
code_review.complete("language", list(GUIDES))

if __name__ == "__main__":
    server.run()
