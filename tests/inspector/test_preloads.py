"""The page names the modules of its first view at once, so that they load side by side."""

import json
import re
from pathlib import Path

from dovetail.inspector.files import STATIC

INDEX = (STATIC / "index.html").read_text()
IMPORT = re.compile(r'^(?:import|export|\})[^;]*? from "(\.[^"]+)";', re.MULTILINE)


def import_closure(*starts: str) -> set[Path]:
    """The modules of the page that these modules import, directly or not, and themselves."""
    found: set[Path] = set()
    waiting = [STATIC / start for start in starts]
    while waiting:
        path = waiting.pop().resolve()
        if path not in found:
            found.add(path)
            waiting += [path.parent / one for one in IMPORT.findall(path.read_text())]
    return found


def test_the_page_preloads_what_its_first_view_imports_and_nothing_else() -> None:
    modules = import_closure("app.js", "panels/tools.js")
    import_map = re.search(r'<script type="importmap">(.*?)</script>', INDEX, re.DOTALL)
    assert import_map is not None
    libraries = json.loads(import_map[1])["imports"].values()
    expected = {f"/static/{path.relative_to(STATIC.resolve())}" for path in modules}
    preloaded = re.findall(r'<link rel="modulepreload" href="([^"]+)" />', INDEX)
    assert sorted(preloaded) == sorted(expected.union(libraries))
