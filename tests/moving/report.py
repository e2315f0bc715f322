"""Write docs/moving-results.md."""

import platform
from datetime import UTC, datetime

from dovetail import __version__

from .compare import ANSWER_NORMALISATIONS, SCHEMA_NORMALISATIONS
from .environments import ROOT
from .examples import LIBRARIES
from .measure import Outcome

PAGE = ROOT / "docs" / "moving-results.md"
TITLES = {
    "servers": "Published servers",
    "sdk1": "Examples of the official SDK, release 1",
    "sdk2": "Examples of the official SDK, release 2",
    "fastmcp": "Examples of FastMCP",
}
INTRODUCTION = """# Moving: results

This page shows how many programs that were written for the official SDK or FastMCP run on Dovetail
without a change ([guide](guides/moving.md#run-a-published-server-unedited)). `make moving` measures
this and writes the page.

Each program runs on its own library and with `dovetail run --compat`, over stdio and without a
network. For published servers, the names of all tools, resources, resource templates and prompts
must be equal. For examples, the schemas must be equal, too, and the answers: every tool is called
with arguments derived from its schema, every resource is read, and every prompt is rendered.
Answers that differ between two runs on the same library are not compared.
"""


def write_page(results: dict[str, list[Outcome]]) -> None:
    """Write the page.

    Args:
        results: The outcomes of each kind.
    """
    parts = [INTRODUCTION, _totals(results), _normalisations()]
    parts += [_section(kind, results[kind]) for kind in TITLES if kind in results]
    PAGE.write_text("\n".join(parts), encoding="utf-8")


def _totals(results: dict[str, list[Outcome]]) -> str:
    today = datetime.now(UTC).date().isoformat()
    rows = [
        f"Measured on {today} with Dovetail {__version__} and Python {platform.python_version()}.",
        "",
        "| programs | run | equal | share | left out |",
        "|---|---|---|---|---|",
    ]
    for kind, title in TITLES.items():
        counted = [each for each in results.get(kind, []) if not each.excluded]
        passed = sum(not each.difference for each in counted)
        share = f"{100 * passed / len(counted):.0f}%" if counted else ""
        left_out = len(results.get(kind, [])) - len(counted)
        version = next((f" ({each.requirement})" for each in LIBRARIES if each.key == kind), "")
        rows.append(f"| {title}{version} | {len(counted)} | {passed} | {share} | {left_out} |")
    return "\n".join(rows) + "\n"


def _normalisations() -> str:
    lines = ["## Differences that do not count", ""]
    lines += [f"- In schemas, {each.reason}." for each in SCHEMA_NORMALISATIONS]
    lines += [f"- In answers, {each.reason}." for each in ANSWER_NORMALISATIONS]
    return "\n".join(lines) + "\n"


def _section(kind: str, outcomes: list[Outcome]) -> str:
    lines = [f"## {TITLES[kind]}", "", *_folders(outcomes), "| program | result |", "|---|---|"]
    for each in outcomes:
        if not each.excluded:
            note = f" ({each.note})" if each.note else ""
            more = f" (and {each.differences - 1} more)" if each.differences > 1 else ""
            result = f"{_escape(each.difference)}{more}" if each.difference else "equal"
            lines.append(f"| `{each.name}`{note} | {result} |")
    left_out = [each for each in outcomes if each.excluded]
    if left_out:
        lines += ["", "| left out | reason |", "|---|---|"]
        lines += [f"| `{each.name}` | {_escape(each.excluded)} |" for each in left_out]
    return "\n".join(lines) + "\n"


def _folders(outcomes: list[Outcome]) -> list[str]:
    """Return how many examples of each folder are equal."""
    folders: dict[str, list[bool]] = {}
    for each in outcomes:
        if "/" in each.name and not each.excluded:
            parts = each.name.split("/")[:-1]
            folders.setdefault("/".join(parts[:2]), []).append(not each.difference)
    rows = [f"- `{name}`: {sum(found)} of {len(found)}" for name, found in folders.items()]
    return [*rows, ""] if rows else []


def _escape(text: str) -> str:
    """Return a text as code in a table."""
    text = text.replace(str(ROOT), "…")
    return "`` " + text.replace("|", "\\|").replace("`", "'") + " ``"
