"""Draw a random sample of the project's sentences: `python3 scripts/sentences.py SEED [COUNT]`.

Use it to review the English: read the sample and mark what a native technical writer would change.
A third of the sentences comes from the pages, a third from the docstrings of the package, and a
third from its other strings: errors, logs and help texts. On one commit, a seed always draws the
same sample.

SQL, CSS, regular expressions, type expressions, commands and lists of names are not drawn. A text
is a sentence if it contains one of the most frequent English words (`COMMON_WORD`), not in capitals
as in SQL, and if at least half of its words consist only of letters.
"""

import ast
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SHORTEST = 4  # words
COMMON_WORD = re.compile(
    "a|after|all|already|also|an|and|are|as|at|be|because|been|before|but|by|can|"
    "cannot|could|did|do|does|each|every|for|from|has|have|how|if|in|into|is|it|"
    "its|may|more|must|no|not|of|on|one|only|or|other|should|so|such|than|that|the|"
    "their|them|then|there|these|they|this|to|until|use|was|were|what|when|where|"
    "which|while|who|why|will|with|within|without|would|you|your"
)
PLAIN_WORD = re.compile(r"[A-Za-z]+(?:['’-][A-Za-z]+)*")
PUNCTUATION = "()[]\"'“”*.,:;!?"
NOT_A_WORD = re.compile(r"\{…?\}|%[a-z.\d]+|`[^`]*`|\|")
"""A value in a message, code in a text, or the border of a table cell."""
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"'(*]|https:)")
LIST_ITEM = re.compile(r"^\s*(?:[-*|>#]+|\d+\.)\s+", re.MULTILINE)
BLOCK_END = re.compile(
    r"\n\s*\n|\n(?=\s*(?:[-*|>#]+|\d+\.)\s)|\n(?=\s+\**\w+: )|\n(?=\s+\S+(?: \S+)* {2,}\S)"
)
"""A blank line, or the start of a list item, a described parameter, or a row of a table."""
Scope = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Sentence(NamedTuple):
    place: str
    text: str


def is_sentence(text: str) -> bool:
    """Return whether a text is English prose rather than code, a pattern or a list of names."""
    words = [word.strip(PUNCTUATION) for word in NOT_A_WORD.sub(" ", text).split()]
    plain = [word for word in words if PLAIN_WORD.fullmatch(word)]
    has_common_word = any(COMMON_WORD.fullmatch(word[0].lower() + word[1:]) for word in plain)
    return len(text.split()) >= SHORTEST and has_common_word and len(plain) * 2 >= len(words)


def split_text(place: str, text: str) -> Iterator[Sentence]:
    for block in BLOCK_END.split(text):
        for sentence in SENTENCE_END.split(" ".join(LIST_ITEM.sub("", block).split())):
            if is_sentence(sentence):
                yield Sentence(place, sentence)


def page_sentences() -> Iterator[Sentence]:
    for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        prose = re.sub(r"^\s*```.*?^\s*```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        yield from split_text(str(page.relative_to(ROOT)), prose)


def message_text(node: ast.expr) -> str | None:
    """Return the text of a string, with `{…}` where an f-string has a value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(message_text(part) or "{…}" for part in node.values)
    return None


def module_sentences() -> tuple[list[Sentence], list[Sentence]]:
    """Return the sentences in docstrings, and those in other strings."""
    docstrings: list[Sentence] = []
    messages: list[Sentence] = []
    for module in sorted((ROOT / "dovetail").rglob("*.py")):
        tree = ast.parse(module.read_text())
        bare = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
        parts = [
            part
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr)
            for part in node.values
        ]
        seen = {id(node) for node in [*bare, *parts]}
        for node in ast.walk(tree):
            if not isinstance(node, ast.expr) or (text := message_text(node)) is None:
                continue
            place = f"{module.relative_to(ROOT)}:{node.lineno}"
            if any(node is value for value in bare):
                docstrings.extend(split_text(place, text))
            elif id(node) not in seen:
                messages.extend(split_text(place, text))
    return docstrings, messages


def main(arguments: list[str]) -> int:
    seed, count = arguments[0], int(arguments[1]) if len(arguments) > 1 else 60
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    draw = random.Random(seed)
    sources = [list(page_sentences()), *module_sentences()]
    for title, source in zip(("pages", "docstrings", "messages"), sources, strict=True):
        print(f"# {title}: {count // 3} of {len(source)}")
        for sentence in draw.sample(source, count // 3):
            print(f"{sentence.place}: {sentence.text}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
