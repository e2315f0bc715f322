/** Compare: one request in every revision, or one call before and after a restart. */
import { effect, html, signal, useEffect, useRef, useState } from "../html.js";
import { post } from "../api.js";
import {
  announcement,
  calls,
  keyOf,
  labelOf,
  lists,
  revisions,
  run,
  selection,
  snapshot,
  state,
} from "../store.js";
import { Comparison } from "../components/comparison.js";
import { summarise } from "../components/comparison_text.js";
import { tryParse } from "../components/json.js";
import { JsonEditor } from "../components/json_editor.js";
import { findDraft, print } from "../components/json_text.js";
import { Text, visible } from "../components/text.js";
import { draftOf } from "./tools.js";

const MAX_CHOICES = 200;
const MIN_SHOWN = 160; // pixels of a table that are enough to notice it
const LISTS = [
  ["tools", "tools/list"],
  ["resources", "resources/list"],
  ["templates", "resources/templates/list"],
  ["prompts", "prompts/list"],
];

const mode = signal("revisions"); // or "restart"
const request = signal(null); // {method, params}; null until something is chosen
const seconds = signal("30");
const found = signal(null); // the outcomes of the comparison: {comparison, newest, revisions}
let isAwaited = false; // whether a comparison was started here whose table is not shown yet

const take = ({ method, params }) =>
  (request.value = { method, params: tryParse(params) ?? new Map() });

effect(() => {
  const given = selection.value.compare; // from another panel
  if (!given?.method) return;
  mode.value = "revisions";
  take(given);
});
effect(() => {
  const told = snapshot.value.comparison; // from before a reload
  if (told && request.peek() === null) take(told);
});

/** The request that a call sent: the calls of tools keep only their arguments. */
function requestOf(call) {
  const params = tryParse(call.params) ?? new Map();
  const isWhole = call.method !== "tools/call" || params.get?.("name") === call.name;
  const whole = isWhole ? params : new Map([["name", call.name], ["arguments", params]]); // prettier-ignore
  return { method: call.method, params: whole };
}

const describe = (call) => visible(`${call.name || call.method} ${call.params}`.slice(0, 80));

function choices() {
  const rows = (items, make) => (items ?? []).slice(0, MAX_CHOICES).map(make);
  const row = (label, method, ...params) => ({ label, method, params: new Map(params) });
  const items = (list, method, field, more = () => []) =>
    rows(lists.value[list], (item) => {
      const key = keyOf(list, item);
      return row(visible(labelOf(list, item)), method, [field, key], ...more(key));
    });
  const recent = [...calls.value.values()].reverse().slice(0, 20);
  const argumentsOf = (tool) => {
    const draft = draftOf(tool);
    return [["arguments", draft === undefined || findDraft(draft) ? new Map() : draft]];
  };
  return [
    ["Lists", LISTS.filter(([name]) => lists.value[name]).map(([, method]) => row(method, method))],
    ["Last calls", recent.map((call) => ({ label: describe(call), ...requestOf(call) }))],
    [
      "Saved calls",
      rows(snapshot.value.saved?.calls, ({ name, tool, arguments: given }) => {
        const value = tryParse(given) ?? new Map();
        return row(visible(name), "tools/call", ["name", tool], ["arguments", value]);
      }),
    ],
    ["Tools, as their forms are filled in", items("tools", "tools/call", "name", argumentsOf)],
    ["Resources", items("resources", "resources/read", "uri")],
    ["Prompts", items("prompts", "prompts/get", "name")],
  ].filter(([, all]) => all.length);
}

function Chooser() {
  const groups = choices();
  const all = groups.flatMap(([, rows]) => rows);
  const choose = (event) => {
    const { method, params } = all[Number(event.target.value)];
    request.value = { method, params };
    event.target.value = "";
  };
  let at = 0;
  return html`<label for="compare-choose">Request</label>
    <select id="compare-choose" value="" onChange=${choose}>
      <option value="" disabled>Choose a list, a call, a tool, a resource or a prompt…</option>
      ${groups.map(
        ([title, rows]) =>
          html`<optgroup label=${title}>
            ${rows.map((one) => html`<option value=${at++}>${one.label}</option>`)}
          </optgroup>`,
      )}
    </select>`;
}

/** What sending it several times means. */
function Effects({ chosen }) {
  const count = revisions.value.length;
  const name = chosen.method === "tools/call" ? chosen.params?.get?.("name") : undefined;
  const tool = lists.value.tools?.find((one) => one.name === name);
  const isSafe = !tool || tool.annotations?.get?.("readOnlyHint") === true;
  return html`<span class=${isSafe ? "hint" : "hint warn"}>
    ${count === 1 ? "Sends the request once." : `Sends the request ${count} times, once in each revision.`}${" "}
    ${!isSafe && "The tool is not marked read-only: it may have effects each time."}
  </span>`;
}

function Ask() {
  const chosen = request.value ?? { method: "tools/list", params: new Map() };
  const change = (fields) => (request.value = { ...chosen, ...fields });
  const isRunning = snapshot.value.comparison?.status === "running";
  const draft = findDraft(chosen.params);
  const start = async () => {
    const params = print(chosen.params ?? new Map());
    isAwaited = true;
    await run("compare", { method: chosen.method, params, timeout: Number(seconds.value) || 30 });
  };
  return html`<div class="option-grid flush">
      <${Chooser} />
      <label for="compare-method">Method</label>
      <input
        id="compare-method"
        class="line"
        value=${chosen.method}
        onInput=${(event) => change({ method: event.target.value })} />
      <span>Parameters</span>
      <div>
        <${JsonEditor}
          id="compare-params"
          label="Parameters as JSON"
          value=${chosen.params}
          set=${(params) => change({ params })}
          rows=${2} />
      </div>
    </div>
    <div class="actions">
      <button
        class="primary"
        data-key="c"
        disabled=${Boolean(draft) || !chosen.method || isRunning}
        onClick=${start}>
        Compare <kbd>c</kbd>
      </button>
      <label for="compare-seconds">Timeout in seconds, for each</label>
      <input
        id="compare-seconds"
        class="line seconds"
        inputmode="decimal"
        value=${seconds.value}
        onInput=${(event) => (seconds.value = event.target.value)} />
      ${isRunning && html`<button onClick=${() => run("cancel_compare", {})}>Cancel</button>`}
      ${draft ? html`<span class="error">${draft.message}</span>` : html`<${Effects} chosen=${chosen} />`}
    </div>`;
}

const isRefused = (one) => one.error?.type === "NoCommonRevision";

/** Read the outcomes whenever one more is known. */
function useOutcomes() {
  const told = snapshot.value.comparison;
  useEffect(() => {
    let isCurrent = true;
    if (!told) return undefined;
    post("comparison").then(
      (got) => {
        if (!isCurrent) return;
        found.value = { ...got, comparison: told.comparison };
        if (told.status === "done") announcement.value = `Compared: ${sentence(got)}`;
      },
      () => {},
    );
    return () => (isCurrent = false);
  }, [told?.comparison, told?.status, JSON.stringify(told?.revisions)]);
  return told && found.value?.comparison === told.comparison ? found.value : null;
}

const columnsOf = ({ newest, revisions: outcomes }) =>
  outcomes
    .filter((one) => !isRefused(one))
    .map((one) => ({ ...one, label: one.revision, isBase: one.revision === newest }));

const sentence = (got) =>
  columnsOf(got)
    .map((one) => `${one.label} ${summarise(one)}`)
    .join("; ");

/** When the comparison is done that was started here, show its table, if that is out of view. */
function useShown(isDone) {
  const head = useRef(null);
  useEffect(() => {
    if (!isDone || !isAwaited) return;
    isAwaited = false;
    if (head.current.getBoundingClientRect().bottom > innerHeight - MIN_SHOWN)
      head.current.scrollIntoView();
  }, [isDone]);
  return head;
}

function Revisions() {
  const told = snapshot.value.comparison;
  const outcomes = useOutcomes();
  const head = useShown(Boolean(outcomes) && told.status === "done");
  const isAlone = outcomes && told.status !== "running" && columnsOf(outcomes).length === 1;
  const refused = outcomes?.revisions.filter(isRefused).map((one) => one.revision) ?? [];
  return html`<${Ask} /> ${
      outcomes &&
      html`<h3 class="bar" ref=${head}>
        <code><${Text} max=${80}>${told.method}<//></code>
        <code class="hint"><${Text} max=${160}>${outcomes.params}<//></code>
      </h3>`
    }
    ${isAlone && html`<p class="empty">Only one revision: nothing to compare.</p>`}
    ${refused.length > 0 && html`<p class="hint">The server does not answer in ${refused.join(", ")}.</p>`}
    ${outcomes && html`<${Comparison} key=${told.comparison} method=${told.method} params=${outcomes.params} columns=${columnsOf(outcomes)} />`}
    ${!outcomes && html`<p class="empty">Compare shows what a call loses in older revisions, field by field.</p>`}`;
}

/** Calls that ended before the last restart, each with the same call after it, if there is one. */
function restartPairs() {
  const now = state.value.connection;
  const pairs = new Map();
  for (const call of calls.value.values()) {
    if (call.status === "running" || call.error?.type === "ConnectionClosed") continue;
    const { method, params } = requestOf(call);
    const key = `${method} ${print(params)}`;
    const pair = pairs.get(key) ?? pairs.set(key, {}).get(key);
    pair[call.connection === now ? "after" : "before"] = call;
  }
  return [...pairs.values()].filter((pair) => pair.before).reverse();
}

const time = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");

function Pair({ pair }) {
  const { before, after } = pair;
  const [found, setFound] = useState(null);
  useEffect(() => {
    let isCurrent = true;
    run("diff", { before: before.call, after: after?.call }).then(
      (got) => isCurrent && got && setFound(got),
    );
    return () => (isCurrent = false);
  }, [before.call, after?.call]);
  const again = () => {
    const { method, params } = requestOf(before);
    run("send", { method, params: print(params) });
  };
  const columns = found?.revisions.map((one) => ({
    ...one,
    label: `${one.revision} ${time(pair[one.revision]?.started)}`,
    isBase: one.revision === found.newest,
  }));
  return html`<div class="actions">
      <button
        class="primary"
        data-key="c"
        disabled=${state.value.status !== "open"}
        onClick=${again}>
        ${after ? "Call again" : "Call it now"} <kbd>c</kbd>
      </button>
      ${!after && html`<span class="hint">This call was not sent since the last restart.</span>`}
    </div>
    ${found && html`<${Comparison} key=${before.call} method=${before.method} params=${found.params} columns=${columns} />`}`;
}

function Restart() {
  const pairs = restartPairs();
  const [chosen, choose] = useState(null);
  const pair = pairs.find((one) => one.before.call === chosen) ?? pairs[0];
  if (!pair)
    return html`<p class="empty">
      Call a tool, change the server and restart it. The call is then listed here, so that you can
      send it again and see what changed.
    </p>`;
  return html`<div class="option-grid flush">
      <label for="compare-pair">Call</label>
      <select
        id="compare-pair"
        value=${pair.before.call}
        onChange=${(event) => choose(event.target.value)}>
        ${pairs.map(({ before }) => html`<option value=${before.call}>${describe(before)}</option>`)}
      </select>
    </div>
    <${Pair} key=${pair.before.call} pair=${pair} />`;
}

export function Main() {
  const tab = (id, title) =>
    html`<button aria-pressed=${mode.value === id} onClick=${() => (mode.value = id)}>
      ${title}
    </button>`;
  return html`<article class="item compare">
    <header class="item-head">
      <h2>Compare</h2>
      <span class="segments" role="group" aria-label="What to compare">
        ${tab("revisions", "Revisions")} ${tab("restart", "Before and after a restart")}
      </span>
    </header>
    ${mode.value === "revisions" ? html`<${Revisions} />` : html`<${Restart} />`}
  </article>`;
}
