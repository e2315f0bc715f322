/** Load: many runs of a saved call, and how long the requests of this session took. */
import { html, signal, useRef } from "../html.js";
import { on, run, snapshot, state } from "../store.js";
import { rows, STREAM, version } from "../messages.js";
import { Text, visible } from "../components/text.js";

const TIMES = ["min", "p50", "p95", "p99", "max"];
const report = signal(null); // the last `load` event
const chosen = signal({ name: "", runs: "1000", at_once: "8" });

on("load", (event) => (report.value = event));

const number = (value) => value.toLocaleString("en", { maximumFractionDigits: 0 });

/** Return a function that writes times, all with the same precision. Args: the longest of them. */
function writer(longest) {
  const digits = longest < 100 ? 2 : 0;
  const options = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return (ms) => ms.toLocaleString("en", options);
}

/** Return the quantile of sorted times, as Python does. */
const quantile = (times, share) => times[Math.max(0, Math.ceil(share * times.length) - 1)];

function Settings() {
  const calls = snapshot.value.saved?.calls ?? [];
  const { name, runs, at_once: atOnce } = chosen.value;
  const selected = calls.some((one) => one.name === name) ? name : calls[0]?.name;
  const change = (key) => (event) =>
    (chosen.value = { ...chosen.value, [key]: event.target.value });
  const isRunning = report.value?.status === "running";
  const isWrong = !(
    Number(runs) >= 1 &&
    Number(runs) <= 10000 &&
    Number(atOnce) >= 1 &&
    Number(atOnce) <= 64
  );
  const start = () => run("load", { name: selected, runs: Number(runs), at_once: Number(atOnce) });
  if (!calls.length)
    return html`<p class="empty">
      Save a call in the Tools panel first: fill in its form, and press Save.
    </p>`;
  return html`<div class="option-grid saved-fields">
      <label for="load-call">Saved call</label>
      <select id="load-call" value=${selected} onChange=${change("name")}>
        ${calls.map((one) => html`<option value=${one.name}>${visible(one.name)}</option>`)}
      </select>
      <label for="load-runs">Runs (at most 10,000)</label>
      <input
        id="load-runs"
        class="line number"
        inputmode="numeric"
        value=${runs}
        onInput=${change("runs")} />
      <label for="load-at-once">At a time (at most 64)</label>
      <input
        id="load-at-once"
        class="line number"
        inputmode="numeric"
        value=${atOnce}
        onInput=${change("at_once")} />
    </div>
    <div class="actions">
      ${
        isRunning
          ? html`<button onClick=${() => run("stop_run", {})}>Stop</button>`
          : html`<button
              class="primary"
              data-key="c"
              disabled=${isWrong || state.value.status !== "open"}
              onClick=${start}>
              Run <kbd>c</kbd>
            </button>`
      }
    </div>`;
}

function Histogram({ bars }) {
  const highest = Math.max(...bars.map((one) => one.count));
  const time = writer(bars.at(-1).to_ms);
  return html`<ul class="plain histogram" aria-label="Histogram">
    ${bars.map(
      ({ from_ms: from, to_ms: to, count }) =>
        html`<li>
          <span class="hint">${time(from)}–${time(to)} ms</span>
          <span class="bar-space"
            ><span class="bar-fill" style=${{ width: `${(100 * count) / highest}%` }}></span
          ></span>
          <span class="hint">${number(count)}</span>
        </li>`,
    )}
  </ul>`;
}

function Report() {
  const {
    name,
    status,
    runs,
    done,
    per_second: perSecond,
    errors = {},
    times,
    histogram,
    why,
  } = report.value;
  return html`<section class="result" aria-label="Result">
    <div class="bar">
      <h3><${Text} max=${100}>${name}<//></h3>
      <span class=${`pill ${status === "failed" ? "error" : status}`} role="status">${status}</span>
      <span class="hint"
        >${number(done)} of ${number(runs)} runs, ${number(perSecond)} per second</span
      >
    </div>
    ${status === "running" && html`<progress aria-label="Runs" value=${done} max=${runs}></progress>`}
    ${why && html`<p class="error"><${Text} max=${300}>${why}<//></p>`}
    ${Object.entries(errors).map(([text, count]) => html`<p class="error">${number(count)} × <${Text} max=${300}>${text}<//></p>`)}
    ${times && html`<${Table} label="Times" rows=${[["ms", TIMES.map((one) => writer(times.max)(times[one]))]]} heads=${TIMES} />`}
    ${histogram && html`<${Histogram} bars=${histogram} />`}
  </section>`;
}

function Table({ label, heads, rows: lines }) {
  return html`<div class="table" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead>
        <tr>
          <td></td>
          ${heads.map((one) => html`<th scope="col" class="number">${one}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${lines.map(
          ([name, values]) =>
            html`<tr>
              <th scope="row"><${Text} max=${80}>${name}<//></th>
              ${values.map((one) => html`<td class="number">${one}</td>`)}
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/** The times of all requests to the server that are still on the wire, by method. */
function latencies() {
  const found = new Map();
  for (const row of rows) {
    if (row.kind !== "request" || row.direction !== "to_server" || !row.reply) continue;
    if (row.method === STREAM) continue; // it takes as long as somebody listens
    if (!found.has(row.method)) found.set(row.method, []);
    found.get(row.method).push(row.reply.ms);
  }
  for (const times of found.values()) times.sort((a, b) => a - b);
  const time = writer(Math.max(0, ...[...found.values()].map((times) => quantile(times, 0.99))));
  return [...found].map(([method, times]) => {
    const shown = [0.5, 0.95, 0.99].map((share) => time(quantile(times, share)));
    return [method, [number(times.length), ...shown]];
  });
}

export function Main() {
  const lines = useRef([]);
  const isRunning = report.value?.status === "running";
  if (!isRunning && version.value >= 0) lines.current = latencies(); // again when rows change
  return html`<article class="item">
    <header class="item-head"><h2>Load</h2></header>
    <${Settings} />
    ${report.value && html`<${Report} />`}
    ${
      lines.current.length > 0 &&
      html`<h3>Latency per method, in ms</h3>
        <${Table}
          label="Latency per method"
          heads=${["requests", "p50", "p95", "p99"]}
          rows=${lines.current} />`
    }
  </article>`;
}
