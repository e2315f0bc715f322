/** The server's stderr and its log messages, also those from before a restart. */
import { html, signal } from "../html.js";
import { isRecording, on, run, snapshot, state } from "../store.js";
import { Text } from "../components/text.js";

const LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
const MAX_SHOWN = 500;
const MAX_KEPT = 20000;

let entries = [];
const version = signal(0); // changes with the entries
const filter = signal("");
const lowest = signal("debug");

function add(entry) {
  if (entries.length >= MAX_KEPT) entries = entries.slice(-MAX_KEPT / 2);
  entries.push(entry);
  version.value += 1;
}

function clear() {
  entries = [];
  version.value += 1;
}

on("stderr", ({ n, at, text }) => add({ n, at, level: "", source: "stderr", text }));
on("log", ({ n, at, level, logger, data }) =>
  add({ n, at, level, source: logger ?? "log", text: unquote(data) }),
);

/** The text of a JSON string; other JSON as it is. */
function unquote(data) {
  return data?.startsWith('"') ? JSON.parse(data) : (data ?? "");
}

const tone = (level) => {
  const rank = LEVELS.indexOf(level);
  return rank >= LEVELS.indexOf("error") ? "bad" : level === "warning" ? "warn" : "";
};
const time = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");

function shown() {
  const words = filter.value.toLowerCase();
  const least = LEVELS.indexOf(lowest.value);
  const matches = (one) =>
    (!one.level || LEVELS.indexOf(one.level) >= least) &&
    (!words || `${one.level} ${one.source} ${one.text}`.toLowerCase().includes(words));
  return entries.filter(matches).sort((one, other) => one.n - other.n);
}

function Level({ id, label, value, set, disabled = false }) {
  return html`<label for=${id}>${label}</label>
    <select
      id=${id}
      value=${value}
      disabled=${disabled}
      onChange=${(event) => set(event.target.value)}>
      ${LEVELS.map((one) => html`<option value=${one}>${one}</option>`)}
    </select>`;
}

export function Main() {
  version.value; // renders again when entries change
  const found = shown();
  const rows = found.slice(-MAX_SHOWN);
  return html`<article class="item">
    <header class="item-head">
      <h2>Log</h2>
      ${
        !isRecording.value &&
        html`<${Level}
          id="log-level"
          label="Server sends"
          value=${snapshot.value.level ?? "debug"}
          disabled=${state.value.status !== "open"}
          set=${(level) => run("set_level", { level })} />`
      }
      <${Level}
        id="log-lowest"
        label="Show from"
        value=${lowest.value}
        set=${(level) => (lowest.value = level)} />
      <span class="grow"></span>
      <button class="quiet" onClick=${clear}>Clear</button>
    </header>
    <input
      type="search"
      aria-label="Search the log"
      placeholder="Search"
      value=${filter.value}
      onInput=${(event) => (filter.value = event.target.value)} />
    ${!found.length && html`<p class="empty">${entries.length ? "Nothing matches." : isRecording.value ? "The recording has no log." : "Nothing yet: stderr and log messages of the server appear here."}</p>`}
    ${found.length > rows.length && html`<p class="hint">The last ${rows.length} of ${found.length.toLocaleString("en")}</p>`}
    <ul class="plain log" aria-label="Log entries">
      ${rows.map(
        (one) =>
          html`<li key=${one.n}>
            <span class="hint">${time(one.at)}</span>
            <span><span class=${`tag ${tone(one.level)}`}>${one.level || "stderr"}</span></span>
            <span class="hint"><${Text} max=${60}>${one.level && one.source}<//></span>
            <code><${Text} max=${1000}>${one.text}<//></code>
          </li>`,
      )}
    </ul>
  </article>`;
}
