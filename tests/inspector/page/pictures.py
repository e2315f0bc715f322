"""Pictures of the page: those of the guides (`make pictures`), and with `SCREENSHOTS=folder` the
end of every test, in both schemes, to look at."""

import os
from pathlib import Path

from tests.browser import Page

PICTURES = Path(__file__).parents[3] / "docs" / "pictures"
MAX_PICTURE_BYTES = 160_000


async def take_picture(page: Page, name: str) -> None:
    """Save what the page shows, if pictures are to be made."""
    if os.environ.get("DOVETAIL_PICTURES"):
        PICTURES.mkdir(exist_ok=True)
        await page.use_scheme("light")
        path = PICTURES / f"{name}.png"
        await page.screenshot(path)
        assert path.stat().st_size < MAX_PICTURE_BYTES


async def keep_pictures(page: Page, name: str) -> None:
    """Save the page in both schemes, if the variable names a folder."""
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        await page.screenshots(Path(folder) / f"{name}.png")
