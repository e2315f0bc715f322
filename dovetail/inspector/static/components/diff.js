/** The lines in which two texts differ. */
import { html } from "../html.js";
import { Text } from "./text.js";

const MAX_LINES = 2000;
const MARKS = { same: " ", gone: "−", added: "+" };

/** Return rows `{kind, text}`: the shortest way from one list of lines to another. */
export function diffLines(before, after) {
  const [one, other] = [before.slice(0, MAX_LINES), after.slice(0, MAX_LINES)];
  const width = other.length + 1;
  const common = new Uint16Array((one.length + 1) * width); // lines in common from here on
  for (let i = one.length - 1; i >= 0; i--)
    for (let j = other.length - 1; j >= 0; j--)
      common[i * width + j] =
        one[i] === other[j]
          ? common[(i + 1) * width + j + 1] + 1
          : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
  const rows = [];
  for (let i = 0, j = 0; i < one.length || j < other.length;) {
    if (i < one.length && j < other.length && one[i] === other[j]) {
      rows.push({ kind: "same", text: one[i++] });
      j += 1;
    } else if (
      j >= other.length ||
      (i < one.length && common[(i + 1) * width + j] >= common[i * width + j + 1])
    )
      rows.push({ kind: "gone", text: one[i++] });
    else rows.push({ kind: "added", text: other[j++] });
  }
  return rows;
}

/** Args: `before` and `after`, two texts; `label`. */
export function Diff({ before, after, label = "Differences" }) {
  const [one, other] = [before.split("\n"), after.split("\n")];
  const rows = diffLines(one, other);
  const rest = Math.max(one.length, other.length) - MAX_LINES;
  const isSame = rest > 0 ? before === after : rows.every((row) => row.kind === "same");
  if (isSame) return html`<p class="empty">No differences.</p>`;
  return html`${rest > 0 && html`<p class="hint">Only the first ${MAX_LINES.toLocaleString("en")} lines are compared. The texts have up to ${rest.toLocaleString("en")} more, and are not the same.</p>`}
    <div class="diff" role="group" aria-label=${label}>
      ${rows.map(
        ({ kind, text }) =>
          html`<div class=${kind}>
            <span class="diff-mark">${MARKS[kind]}</span><${Text} max=${500}>${text}<//>
          </div>`,
      )}
    </div>`;
}
