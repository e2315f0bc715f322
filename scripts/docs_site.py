"""Build the documentation site into site/, from docs/, README.md and the files that they link to.

    make docs    runs `python scripts/docs_site.py` with requirements-docs.txt installed

The pages are copied into build/pages, where mkdocs.yml expects them. A link to a file outside
docs/, such as an example, becomes a link to a page that shows the file. After Zensical has built
the site, this script reads every page of it. The build fails if a link or an anchor is dead, or if
a page would request anything from another host. For language models, each page is also there as
Markdown (`guides/tools.md` beside `guides/tools.html`), `llms.txt` lists the pages, and
`llms-full.txt` contains them.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import griffe

ROOT = Path(__file__).parents[1]
PAGES, SITE = ROOT / "build" / "pages", ROOT / "site"
NAMES = {"README.md": "index.md", "docs/README.md": "contents.md"}
"""The pages whose place on the site differs from the rule in `place_of`."""
LANGUAGES = {".py": "python", ".json": "json", ".toml": "toml", ".yaml": "yaml", ".html": "html"}
SUMMARY = "The Model Context Protocol for Python: servers, clients, hosts and gateways."
FOREIGN_IN_CSS = re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')]+)")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FENCED = re.compile(r"^( *)(```+|~~~+).*?^\1\2[ \t]*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
ADDED_TO = re.compile(r'title="([^"]+) \+"')  # marks a block that continues a file
DIRECTIVE = re.compile(r"^(#*) *::: ([\w.]+)$", re.MULTILINE)


# Before the build: copy the pages.


def place_of(path: str) -> str:
    """Return the place of a file of the repository on the site: `docs/a.md` is `a.md`, and a file
    that is not a page becomes one."""
    if path in NAMES:
        return NAMES[path]
    place = path.removeprefix("docs/") if "/" in path else f"project/{path.lower()}"
    if place.endswith("README.md"):
        return place.replace("README.md", "index.md")
    is_shown = path.startswith("docs/") or path.endswith(".md")
    return place if is_shown else f"{place}.md"


def copy_pages() -> None:
    """Fill build/pages with docs/, README.md and everything that these link to."""
    shutil.rmtree(PAGES, ignore_errors=True)
    waiting = ["README.md"]
    waiting += [str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.*")]
    done = set[str]()
    while waiting:
        path = waiting.pop()
        if path not in done:
            done.add(path)
            waiting += copy_page(path)


def copy_page(path: str) -> list[str]:
    """Copy one file, and return the files that it links to."""
    target = PAGES / place_of(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if not path.endswith(".md"):
        if path.startswith("docs/"):
            shutil.copy(ROOT / path, target)
        else:
            target.write_text(show_file(path), encoding="utf-8")
        return []
    linked: list[str] = []

    def rewrite(link: re.Match[str]) -> str:
        address, mark, anchor = link[2].partition("#")
        file = (ROOT / path).parent.joinpath(address)
        if not address or not file.is_file():
            return link[0]  # another host, this page, or a dead link, which the check finds
        linked.append(str(file.resolve().relative_to(ROOT)))
        relative = os.path.relpath(PAGES / place_of(linked[-1]), target.parent)
        return f"{link[1]}{relative}{mark}{anchor}{link[3]}"

    text = ADDED_TO.sub(r'title="add to \1"', (ROOT / path).read_text(encoding="utf-8"))
    target.write_text(outside_code(text, lambda prose: LINK.sub(rewrite, prose)), encoding="utf-8")
    return linked


def show_file(path: str) -> str:
    """Return a page that shows a file, such as an example."""
    file = ROOT / path
    language = LANGUAGES.get(file.suffix, "text")
    code = file.read_text(encoding="utf-8").rstrip()
    return f'# {file.name}\n\n~~~~{language} title="{path}"\n{code}\n~~~~\n'


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Change what is neither a code block nor inline code."""
    parts, end = [], 0
    for code in FENCED.finditer(text):
        parts += [change(text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, change(text[end:])])


# After the build: check every page.


class PageReader(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors = set[str]()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(values.get("href", ""))
        self.loaded += [values[name] for name in ("src", "data", "poster") if name in values]


def find_problems() -> Iterator[str]:
    """Yield the dead links and anchors, and what is loaded from other hosts."""
    pages = {file: PageReader(file) for file in sorted(SITE.rglob("*.html"))}
    for file, page in pages.items():
        for address in page.links + page.loaded:
            url = urlsplit(address)
            if not url.scheme and not url.netloc:
                problem = check_link(file, url, pages)
            else:
                is_foreign = address in page.loaded and url.scheme != "data"
                problem = "is loaded from another host" if is_foreign else ""
            if problem:
                yield f"{file.relative_to(SITE)}: {address} {problem}"
    for file in SITE.rglob("*.css"):
        for address in FOREIGN_IN_CSS.findall(file.read_text(encoding="utf-8")):
            yield f"{file.relative_to(SITE)}: {address} is loaded from another host"


def check_link(file: Path, url: SplitResult, pages: dict[Path, PageReader]) -> str:
    """Return what is wrong with a link within the site, or an empty string."""
    # 404.html is shown at any address, so its links begin at the top.
    path = unquote(url.path).lstrip("/") if file.name == "404.html" else unquote(url.path)
    target = Path(os.path.normpath(file.parent / path)) if path else file
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file():
        return "does not exist"
    fragment = unquote(url.fragment)
    if fragment and target in pages and fragment not in pages[target].anchors:
        return "has no such anchor"
    return ""


# For language models: Markdown.


def write_markdown() -> None:
    """Write each page as Markdown beside its HTML, `llms.txt` and `llms-full.txt`."""
    package = griffe.load("dovetail", search_paths=[ROOT])
    texts: dict[str, str] = {}
    for name in order_pages():
        texts[name] = DIRECTIVE.sub(
            lambda found: describe(package[found[2].removeprefix("dovetail.")], len(found[1])),
            (PAGES / name).read_text(encoding="utf-8"),
        )
        (SITE / name).write_text(texts[name], encoding="utf-8")
    (SITE / "llms.txt").write_text(list_pages(texts), encoding="utf-8")
    whole = [f"<!-- {name} -->\n\n{text}" for name, text in texts.items()]
    (SITE / "llms-full.txt").write_text("\n".join(whole), encoding="utf-8")


def read_nav() -> list[tuple[str, list[str]]]:
    """Return the sections of the navigation with their pages."""
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    sections = re.split(r"^  - (.+):$", nav, flags=re.MULTILINE)[1:]
    pages = [re.findall(r"[\w./-]+\.md$", text, re.MULTILINE) for text in sections[1::2]]
    return list(zip(sections[::2], pages, strict=True))


def order_pages() -> list[str]:
    """Return the names of all pages, in the order of the navigation, and then the others."""
    all_pages = sorted(file.relative_to(PAGES).as_posix() for file in PAGES.rglob("*.md"))
    return list(dict.fromkeys([page for _, pages in read_nav() for page in pages] + all_pages))


def list_pages(texts: dict[str, str]) -> str:
    """Return `llms.txt`: the pages by section. Those outside the navigation are optional."""
    rest = set(texts).difference(*(pages for _, pages in read_nav()))
    lines = ["# Dovetail", "", f"> {SUMMARY}"]
    for section, pages in [*read_nav(), ("Optional", sorted(rest))]:
        lines += ["", f"## {section}", ""]
        lines += [f"- [{title_of(texts[page])}]({page})" for page in pages]
    return "\n".join([*lines, ""])


def title_of(text: str) -> str:
    return text.partition("\n")[0].lstrip("# ").replace("`", "")


def describe(found: Any, level: int) -> str:
    """Return the signature and the docstring of an object and its public members."""
    parts = [f"{'#' * level} {found.name}"]
    if found.is_function or (found.is_class and found.parameters):
        parts.append(f"```python\n{found.signature()}\n```")
    if found.docstring:
        parts.append(f"{found.docstring.value}")
    if found.is_class:
        members = (each for each in found.members.values() if each.is_public and each.docstring)
        parts += [describe(each, level + 1).rstrip() for each in members]
    return "\n\n".join(parts) + "\n"


def main() -> int:
    copy_pages()
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    code = subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_COLOR": "1"}).returncode
    if code:
        return code
    write_markdown()
    problems = list(find_problems())
    print(*problems, sep="\n", end="\n" if problems else "")
    pages = sum(1 for _ in SITE.rglob("*.html"))
    size = sum(file.stat().st_size for file in SITE.rglob("*") if file.is_file())
    print(f"site/: {pages} pages, {size / 2**20:.1f} MiB, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
