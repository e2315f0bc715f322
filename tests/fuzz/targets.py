"""All targets, by name."""

import logging

from . import http, messages, oauth, texts, tools
from .engine import Tally, Target, run

TARGETS: dict[str, Target] = {
    target.name: target
    for module in (messages, http, tools, texts, oauth)
    for target in module.TARGETS
}


def part(name: str, seed: str, inputs: int) -> Tally:
    """One part of the run of a target, in whatever process."""
    logging.disable()  # what is refused is told there too
    return run(TARGETS[name], seed, inputs)
