"""A page that was away too long: the events that it missed are gone, so it asks for a snapshot."""

from pathlib import Path

from .actions import has
from .harness import inspected

ASK_FOR_LOST_EVENTS = """
const { fetch } = window;
let isFirst = true;
window.fetch = (path, ...more) => {
  const isEvents = path.startsWith("/api/events");
  const asked = isEvents && isFirst ? "/api/events?after=1000000" : path;
  isFirst &&= !isEvents;
  return fetch(asked, ...more);
};
"""
"""Ask for the events after one that the buffer does not hold."""
SNAPSHOTS = """performance.getEntriesByType("resource")
  .filter((one) => one.name.endsWith("/api/snapshot")).length"""


async def test_a_gap_leads_to_a_new_snapshot(server: Path) -> None:
    async with inspected(server) as page:
        await page.until(has("Connected", "header"))
        assert await page.says(SNAPSHOTS) == 1
        await page.command(
            "Page.addScriptToEvaluateOnNewDocument", source=f"{{ {ASK_FOR_LOST_EVENTS} }}"
        )
        await page.command("Page.reload")
        await page.until(f"{SNAPSHOTS} === 2")
        await page.until(has("add", "#tools"))
        await page.until(has("tools/list", ".wire"))
        assert await page.says(SNAPSHOTS) == 2, "and to one only"
