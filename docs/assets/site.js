// What the theme lacks for people who use a keyboard or a screen reader. See mkdocs.yml.

function improve() {
  // A region that scrolls has to be reachable by keyboard.
  for (const region of document.querySelectorAll("pre > code, .md-typeset__scrollwrap"))
    if (region.scrollWidth > region.clientWidth) region.tabIndex = 0;
  // Parts of the navigation, and the buttons of a code block, are not landmarks of their own.
  for (const part of document.querySelectorAll(".md-nav .md-nav, .md-code__nav")) {
    for (const name of ["aria-label", "aria-labelledby", "aria-expanded"]) part.removeAttribute(name);
    part.role = "none";
  }
  // A corner of a table is not a heading.
  for (const corner of document.querySelectorAll("th:empty"))
    corner.replaceWith(document.createElement("td"));
}

let isScheduled = false;
function schedule() {
  if (isScheduled) return;
  isScheduled = true;
  requestAnimationFrame(() => {
    isScheduled = false;
    improve();
  });
}

schedule();
addEventListener("resize", schedule);
new MutationObserver(schedule).observe(document.body, { childList: true, subtree: true });
