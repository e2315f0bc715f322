/** The timeline: calls with the rounds of their questions, tasks, streams and other requests as spans. */
import { html, signal, useMemo } from "../html.js";
import { calls, openPanel, selection, state, tasks } from "../store.js";
import { endOf, firstAt, rows, STREAM, version } from "../messages.js";
import { formatMs } from "../components/result.js";
import { Text } from "../components/text.js";
import { formatSeconds, lengthOf, Timeline } from "../components/timeline.js";
import { filter as wireFilter } from "./wire.js";

const ROUND = /"resultType"\s*:\s*"input_required"/;
const OVER = ["completed", "failed", "cancelled", "unknown"];
const MAX_PARTS = 20; // listed below the timeline
const MARGIN = 0.05; // around a span that is zoomed to
const END_MARGIN = 0.01; // so that the last span is visible

const range = signal(null); // [from, to] in seconds since 1970; null shows everything

const spanOfCall = ({ call, name, method, started, ms, status }) => ({
  key: `call ${call}`,
  kind: "call",
  label: name || method,
  start: started,
  end: ms === undefined ? undefined : started + ms / 1000,
  isBad: status === "error",
  parts: [],
});

const spanOfTask = (task) => ({
  key: `task ${task.task}`,
  kind: "task",
  label: task.tool ?? task.task,
  start: Date.parse(task.created) / 1000,
  end: OVER.includes(task.status) ? Date.parse(task.updated) / 1000 : undefined,
  isBad: task.status === "failed",
});

const spanOfRow = (row) => ({
  key: `row ${row.n}`,
  kind: row.direction === "to_client" ? "question" : row.method === STREAM ? "stream" : "request",
  label: row.method,
  start: row.at,
  end: endOf(row),
  isBad: Boolean(row.reply?.isError),
});

/** Whether a reply asks a question, so that the request is sent again with the answer. */
function isRound(reply) {
  if (reply) reply.isRound ??= ROUND.test(reply.text);
  return reply?.isRound ?? false;
}

/** The call during which the server asked; nothing if there were several. */
function findAsked(all, row) {
  const near = all.filter(
    (span) => span.start <= row.at && (span.end === undefined || row.at <= span.end),
  );
  return near.length === 1 ? near[0] : undefined;
}

/** All spans, in the order of their start. */
function collect() {
  const owners = new Map([...calls.value.values()].map((call) => [call.call, spanOfCall(call)]));
  const asked = new Map(); // call -> the time of a question that its last reply asked
  const others = [];
  const question = (key, start, end) => ({ key, kind: "question", label: "question", start, end });
  for (const row of rows) {
    if (row.kind !== "request") continue;
    const isOurs = row.direction === "to_server";
    const owner = isOurs ? owners.get(row.call) : findAsked([...owners.values()], row);
    if (!owner) others.push(spanOfRow(row));
    else {
      if (asked.has(owner)) owner.parts.push(question(`round ${row.n}`, asked.get(owner), row.at));
      if (isOurs) asked.delete(owner);
      const span = spanOfRow(row);
      owner.parts.push({ ...span, end: span.end ?? owner.end }); // without a reply, if cancelled
      if (isRound(row.reply)) asked.set(owner, row.reply.at);
    }
  }
  for (const [owner, at] of asked)
    if (owner.end === undefined) owner.parts.push(question("round", at, undefined));
  const found = [...owners.values(), ...others, ...[...tasks.value.values()].map(spanOfTask)];
  return found.filter((span) => span.start >= 0).sort((a, b) => a.start - b.start);
}

const zoomTo = (from, to) => (range.value = [from, Math.max(to, from + 0.001)]);

function filterWire(base, [from, to]) {
  const text = (seconds, round) => (round(seconds * 1000) / 1000).toFixed(3);
  const start = text(Math.max(0, from - base), Math.floor);
  wireFilter.value = `at:${start}..${text(Math.max(0, to - base), Math.ceil)}`;
}

function Range({ base, from, to }) {
  const field = (label, value, set) =>
    html`<label class="seconds"
      >${label}
      <input
        class="line"
        type="number"
        step="any"
        value=${(value - base).toFixed(3)}
        onChange=${(event) => event.target.value && set(base + Number(event.target.value))}
    /></label>`;
  const zoom = (factor) => () => {
    const [middle, half] = [(from + to) / 2, ((to - from) / 2) * factor];
    zoomTo(Math.max(base, middle - half), middle + half);
  };
  return html`<div class="meta-line">
    ${field("From", from, (value) => zoomTo(value, to))}
    ${field("to", to, (value) => zoomTo(Math.min(from, value), value))} s
    <button aria-label="Zoom in" onClick=${zoom(0.5)}>+</button>
    <button aria-label="Zoom out" onClick=${zoom(2)}>−</button>
    <button disabled=${range.value === null} onClick=${() => (range.value = null)}>Show all</button>
    <span class="grow"></span>
    <button onClick=${() => filterWire(base, [from, to])}>Filter the wire</button>
  </div>`;
}

function Chosen({ span, base, now }) {
  const end = span.end ?? now;
  const margin = (end - span.start) * MARGIN;
  const parts = span.parts ?? [];
  const text = (one) =>
    `at ${formatSeconds(one.start - base)}, ${one.end === undefined ? "open" : formatMs(lengthOf(one, now))}`;
  return html`<section class="open-task" aria-label="Chosen span">
    <div class="bar">
      <h3><${Text} max=${80}>${span.label}<//></h3>
      <span class="tag">${span.kind}</span>
      <span class="hint">${text(span)}</span>
      <span class="grow"></span>
      <button onClick=${() => zoomTo(span.start - margin, end + margin)}>Zoom to it</button>
      <button onClick=${() => filterWire(base, [span.start, end])}>Show its messages</button>
      ${span.kind === "task" && html`<button onClick=${() => openPanel("tasks", span.key.slice(5))}>Open the task</button>`}
    </div>
    <ul class="plain">
      ${parts.slice(-MAX_PARTS).map(
        (one) =>
          html`<li key=${one.key} class="meta-line">
            <span class="tag">${one.kind}</span
            >${one.label !== one.kind && html`<${Text} max=${80}>${one.label}<//>`}
            <span class="hint">${text(one)}</span>
          </li>`,
      )}
    </ul>
    ${parts.length > MAX_PARTS && html`<p class="hint">The last ${MAX_PARTS} of ${parts.length}</p>`}
  </section>`;
}

export function Main() {
  const changed = version.value;
  const spans = useMemo(collect, [changed, calls.value, tasks.value, state.value]);
  const base = firstAt();
  if (base === undefined || !spans.length)
    return html`<article class="item">
      <h2>Timeline</h2>
      <p class="empty">No messages yet.</p>
    </article>`;
  const now = spans.reduce(
    (last, one) => Math.max(last, one.end ?? 0),
    Math.max(base + 0.001, rows.at(-1)?.at ?? 0),
  );
  const [from, to] = range.value ?? [base, now + (now - base) * END_MARGIN];
  const shown = spans.filter((one) => one.start <= to && (one.end ?? now) >= from);
  const chosen = spans.find((one) => one.key === selection.value.timeline);
  const choose = (span) => (selection.value = { ...selection.value, timeline: span.key });
  return html`<article class="item">
    <header class="item-head">
      <h2>Timeline</h2>
      <span class="hint"
        >${shown.length === spans.length ? "" : `${shown.length.toLocaleString("en")} of `}${spans.length.toLocaleString("en")}${spans.length === 1 ? " span" : " spans"}</span
      >
    </header>
    <${Range} base=${base} from=${from} to=${to} />
    <${Timeline}
      spans=${shown}
      base=${base}
      from=${from}
      to=${to}
      now=${now}
      selected=${chosen?.key}
      onSelect=${choose}
      onRange=${zoomTo} />
    ${chosen && html`<${Chosen} span=${chosen} base=${base} now=${now} />`}
  </article>`;
}
