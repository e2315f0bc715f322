"""`dovetail check TARGET`: report problems in what a server lists."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from .options import add_client_options, parse_target
from .output import AlreadyPrinted, Part, bold, dim, print_json, print_line
from .session import run_session

if TYPE_CHECKING:
    from .. import Client
    from ..inspector.checks import Finding

STYLES = {"error": "31", "warning": "33", "info": "36"}
"""Red, yellow and cyan."""
FAILING = {False: ("error",), True: ("error", "warning")}
"""The levels that lead to exit status 1, by whether the check is strict."""


class CheckFailed(AlreadyPrinted):
    """The check found problems, which were printed."""


def add_check_arguments(parser: ArgumentParser) -> None:
    add_client_options(parser)
    parser.add_argument("--strict", action="store_true", help="exit with status 1 on warnings, too")


def run_check(options: Namespace) -> None:
    run_session(check, show_check, options)


async def check(client: "Client", options: Namespace) -> dict[str, Any]:
    """Read the lists and apply the rules."""
    from ..inspector.checks import apply_ignores, check_server, read_ignores, target_key

    ignores = read_ignores()
    info, revision = client.server_info, client.revision
    target = target_key(parse_target(options), options.server, options.cwd)
    findings, ignored = apply_ignores(await check_server(client, target), ignores)
    unused = [entry for entry in ignores if not any(map(entry.matches, ignored))]
    return {
        "server": info,
        "revision": revision,
        "findings": findings,
        "ignored": len(ignored),
        "unusedIgnores": unused,
    }


def show_check(answer: dict[str, Any], options: Namespace) -> None:
    """Print the findings; raise CheckFailed if there are errors."""
    findings: list[Finding] = answer["findings"]
    counts = _count(findings)
    if options.json:
        print_json(answer)
    else:
        _print_findings(findings)
        _print_summary(answer, counts)
    if any(finding.level in FAILING[options.strict] for finding in findings):
        to_correct = [finding for finding in findings if finding.level != "info"]
        raise CheckFailed(f"the check found {_count(to_correct)}")


def _print_findings(findings: "list[Finding]") -> None:
    from ..inspector.checks import worst_first

    for group in worst_first(findings):
        where = group[0].where
        print_line(bold(where.name or "server"), dim(f"  {where.kind}" if where.name else ""))
        explained: set[str] = set()
        for finding in group:
            level: Part = (STYLES[finding.level], f"{finding.level:7}")
            place = f"  {finding.where.path}" if finding.where.path else ""
            print_line("  ", level, "  ", bold(finding.rule), f"  {finding.message}", dim(place))
            if finding.rule not in explained:
                explained.add(finding.rule)
                print_line("           ", dim(f"{finding.why} {finding.fix}"))
        print_line()


def _print_summary(answer: dict[str, Any], counts: str) -> None:
    info = answer["server"]
    name = f"{info.name} {info.version}" if info else "unnamed server"
    ignored = f" ({answer['ignored']} ignored)" if answer["ignored"] else ""
    print_line(bold(name), f", revision {answer['revision']}: {counts}{ignored}")
    for entry in answer["unusedIgnores"]:
        about = f" for {entry.tool}" if entry.tool else ""
        print_line(dim(f"check.toml ignores {entry.rule}{about}, which was not found"))


def _count(findings: "list[Finding]") -> str:
    """Return the number of findings in words: "2 errors, 1 warning"."""
    words = []
    for level in STYLES:
        count = sum(finding.level == level for finding in findings)
        if count:
            plural = "s" if count > 1 and level != "info" else ""
            words.append(f"{count} {level}{plural}")
    return ", ".join(words) or "no problems"
