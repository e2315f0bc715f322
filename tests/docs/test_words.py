"""Plain English: phrases that must not come back into the docs, messages, docstrings and comments.

Each pattern stands for a habit that made the text read as if it were translated. CONTRIBUTING.md
says what to write instead.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
BANNED = {
    r"(?<!here )\b(?:is|are|was|were) no (?!longer\b|more than\b|later than\b)\w+": "is not a …",
    r"\bunless (?:it is |he is |they are |you are )?told\b": "(default: …)",
    r"\banew\b": "again",
    r"\bwhoever\b|\bwhomever\b|\bwhosoever\b": "you, the caller, anyone who",
    r"\bbelongs? into\b": "belongs in",
    r"\bworth nothing\b|\bgood for nothing\b": "no longer valid",
    r"\bhow manieth\b": "the number of",
    r"\b(?:is|are|was|to be) had\b|\bto be had\b": "available",
    r"\bin vain\b": "without effect",
    r"\bnone of (?:our|its|their|your) business\b": "not our concern",
    r"\bgoes? by (?:this|that|the|its) name\b": "is named",
    r"\bat home in\b": "defined in",
    r"\bno word (?:of|for)\b|\bhas a word for\b": "does not mention; has a method for",
    r"\b(?:is|are|was|be|being) told of\b": "is notified of",
    r"\bhears? of\b|\bheard of\b": "is notified of",
    r"\bwhere (?:nobody|nothing|somebody) (?:else )?(?:is|has|was|does)\b": "if nothing …",
    r"\bby and by\b": "gradually",
    r"\bas ever\b": "as before",
    r"\b(?:comes?|came|coming) to nothing\b": "has no effect",
    r"\bmany a\b": "many",
    r"\bgives? away\b": "reveals",
    r"\bto the letter\b": "exactly",
    r"\bwithout mercy\b": "",
    r"\bso to speak\b": "",
    r"\btake[sn]? leave\b|\btook (?:no )?leave\b": "closes the connection",
    r"\bof yours\b|\bof ours\b": "your own",
    r"\bbeing at it\b|\bis at it\b": "is running",
    r"\bthe old pair\b": "HTTP+SSE",
    r"\bnew(?:s)? that\b(?<=news that)": "notification that",
    r"\bwhat stands\b|\bstands? there\b|\bstands? in\b(?! for\b)": "is",
    r"\bput it to\b|\bput a question to\b|\bput questions to\b": "ask",
    r"\bone and the same\b": "the same",
}


ANY = re.compile("|".join(BANNED), re.IGNORECASE)


def _prose(page: Path) -> Iterator[tuple[int, str]]:
    """The lines of a page outside of its code blocks."""
    fenced = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"`[^`]*`", "`…`", line)


def _strings(module: Path) -> Iterator[tuple[int, str]]:
    """Docstrings, messages and comments of a module."""
    source = module.read_text()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, " ".join(node.value.split())


def _pages() -> list[Path]:
    readme = ROOT / "examples" / "README.md"
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), readme])


def _found(texts: Iterator[tuple[int, str]]) -> list[str]:
    return [
        f"line {number}: {match[0]!r}, write {better!r}: {text.strip()[:120]}"
        for number, text in texts
        if ANY.search(text)
        for pattern, better in BANNED.items()
        for match in [re.search(pattern, text, re.IGNORECASE)]
        if match
    ]


def test_no_page_has_a_banned_phrase() -> None:
    found = {str(page.relative_to(ROOT)): _found(_prose(page)) for page in _pages()}
    assert {page: phrases for page, phrases in found.items() if phrases} == {}


def test_no_module_has_a_banned_phrase() -> None:
    modules = sorted([*(ROOT / "dovetail").rglob("*.py"), *(ROOT / "examples").rglob("*.py")])
    found = {str(module.relative_to(ROOT)): _found(_strings(module)) for module in modules}
    assert {module: phrases for module, phrases in found.items() if phrases} == {}
