/** Spans of time: a list with one labelled row per span, and bars on a common axis. */
import { classes, html, signal, useRef, useState } from "../html.js";
import { formatMs } from "./result.js";
import { Text } from "./text.js";
import { VirtualList } from "./virtual_list.js";

const ROW = 24;
const NARROW_ROW = 44; // the name is above the bars
const KINDS = {
  call: "call",
  request: "request",
  question: "question",
  task: "task",
  stream: "stream",
  bad: "failed",
};
const MAX_PARTS = 200; // drawn in a row
const MAX_TICKS = 6;
const MIN_DRAG = 4; // pixels

const screen = matchMedia("(width < 480px)");
const isNarrow = signal(screen.matches);
screen.addEventListener("change", () => (isNarrow.value = screen.matches));

export const formatSeconds = (seconds) =>
  `${seconds.toLocaleString("en", { maximumFractionDigits: 3 })} s`;
export const lengthOf = (span, now) => ((span.end ?? now) - span.start) * 1000;

const clamp = (value) => Math.min(1, Math.max(0, value));
const percent = (value) => `${(value * 100).toFixed(3)}%`;

function Bar({ span, from, to }) {
  const end = span.end ?? to;
  if (span.start > to || end < from) return null;
  const left = clamp((span.start - from) / (to - from));
  const width = clamp((end - from) / (to - from)) - left;
  const look = classes("span", span.kind, span.isBad && "bad", span.end === undefined && "open");
  return html`<span class=${look} style=${{ left: percent(left), width: percent(width) }}></span>`;
}

function Row({ span, from, to, now }) {
  return html`<span class="name"><${Text} max=${60}>${span.label}<//></span>
    <span class="hint">${span.kind}</span>
    <span class="track" aria-hidden="true">
      <${Bar} span=${span} from=${from} to=${to} />
      ${span.parts?.slice(-MAX_PARTS).map((part) => html`<${Bar} span=${part} from=${from} to=${to} />`)}
    </span>
    <span class="ms">${span.end === undefined ? "open" : formatMs(lengthOf(span, now))}</span>`;
}

/** The times to mark: at most six, at round numbers. */
function ticks(from, to) {
  const rough = (to - from) / MAX_TICKS;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const first = Math.ceil(from / step);
  return Array.from({ length: Math.floor(to / step) - first + 1 }, (_, n) => (first + n) * step);
}

/** The axis. Drag over it to choose a range; the fields above the timeline do the same by keyboard. */
function Axis({ base, from, to, onRange }) {
  const box = useRef(null);
  const [drag, setDrag] = useState(null);
  const at = (event) => {
    const { left, width } = box.current.getBoundingClientRect();
    return clamp((event.clientX - left) / width);
  };
  const begin = (event) => {
    box.current.setPointerCapture(event.pointerId);
    setDrag([at(event), at(event)]);
  };
  const end = () => {
    const [first, last] = [...drag].sort((a, b) => a - b);
    setDrag(null);
    if ((last - first) * box.current.clientWidth < MIN_DRAG) return;
    onRange(from + first * (to - from), from + last * (to - from));
  };
  const place = (second) => ({ left: percent((second + base - from) / (to - from)) });
  return html`<div
    ref=${box}
    class="axis"
    aria-hidden="true"
    onPointerDown=${begin}
    onPointerMove=${(event) => drag && setDrag([drag[0], at(event)])}
    onPointerUp=${() => drag && end()}
    onPointerCancel=${() => setDrag(null)}>
    ${ticks(from - base, to - base).map((one) => html`<span style=${place(one)}>${formatSeconds(one)}</span>`)}
    ${drag && html`<i style=${{ left: percent(Math.min(...drag)), width: percent(Math.abs(drag[1] - drag[0])) }}></i>`}
  </div>`;
}

/**
 * Args: `spans`, each `{key, kind, label, start, end?, isBad?, parts?}` with times in seconds; `base`, the
 * time that the axis calls 0; `from` and `to`, what is shown; `now`; `selected` (a key); `onSelect(span)`;
 * `onRange(from, to)`.
 */
export function Timeline({ spans, base, from, to, now, selected, onSelect, onRange }) {
  return html`<div class="timeline">
    <p class="hint legend" aria-hidden="true">
      ${Object.entries(KINDS).map(([look, name]) => html`<span><span class=${`span ${look}`}></span>${name}</span>`)}
    </p>
    <div class="axis-row">
      <${Axis} base=${base} from=${from} to=${to} onRange=${onRange} />
    </div>
    <${VirtualList}
      id="timeline"
      label="Spans"
      rows=${spans}
      height=${isNarrow.value ? NARROW_ROW : ROW}
      keyOf=${(span) => span.key}
      selected=${selected}
      onOpen=${onSelect}
      render=${(span) => html`<${Row} span=${span} from=${from} to=${to} now=${now} />`} />
  </div>`;
}
