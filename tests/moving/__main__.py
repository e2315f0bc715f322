"""`python -m tests.moving [servers|sdk1|sdk2|fastmcp] [NAME]`: measure which programs for other
libraries run unedited on Dovetail. A complete run writes docs/moving-results.md.

Outcomes are kept in `.moving/outcomes.json`, so that the page can be written from several runs,
once everything was measured."""

import json
import sys

from .environments import FOLDER
from .examples import LIBRARIES
from .measure import Outcome, log, measure_library, measure_server
from .report import write_page
from .servers import SERVERS

KINDS = ("servers", *(library.key for library in LIBRARIES))
OUTCOMES = FOLDER / "outcomes.json"


def main(arguments: list[str]) -> int:
    kinds = arguments[:1] or KINDS
    selection = "".join(arguments[1:2])
    if not set(kinds) <= set(KINDS):
        print(f"{kinds[0]} is not one of {', '.join(KINDS)}")
        return 2
    for kind in kinds:
        found = _measure(kind, selection)
        if not selection:
            _save(kind, found)
    outcomes = _load()
    if not selection and outcomes.keys() == set(KINDS):
        write_page(outcomes)
    return 0


def _measure(kind: str, selection: str) -> list[Outcome]:
    outcomes = []
    if kind == "servers":
        found = (measure_server(each) for each in SERVERS if selection in each.requirement)
    else:
        library = next(each for each in LIBRARIES if each.key == kind)
        found = measure_library(library, selection)
    for outcome in found:
        outcomes.append(outcome)
        state = "left out" if outcome.excluded else "differs" if outcome.difference else "passes"
        log(f"{kind}: {outcome.name} {state} {outcome.excluded or outcome.difference}")
    counted = [each for each in outcomes if not each.excluded]
    log(f"{kind}: {sum(not each.difference for each in counted)} of {len(counted)} pass")
    return outcomes


def _load() -> dict[str, list[Outcome]]:
    if not OUTCOMES.exists():
        return {}
    document = json.loads(OUTCOMES.read_text(encoding="utf-8"))
    return {kind: [Outcome(*each) for each in found] for kind, found in document.items()}


def _save(kind: str, outcomes: list[Outcome]) -> None:
    FOLDER.mkdir(exist_ok=True)
    OUTCOMES.write_text(json.dumps({**_load(), kind: outcomes}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
