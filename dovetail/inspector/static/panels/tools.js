/** Tools: the list, a form for the arguments, and the result of the last call. */
import { html, signal, useMemo, useRef, useState } from "../html.js";
import {
  keep,
  keyOf,
  labelOf,
  lastCallOf,
  lists,
  openedKey,
  openPanel,
  run,
  snapshot,
  state,
} from "../store.js";
import { useSwappedFocus } from "../keys.js";
import { Form } from "../components/form.js";
import { JsonEditor, read } from "../components/json_editor.js";
import { locateDraft, print } from "../components/json_text.js";
import { Away, CallResult, Definition, ItemHead, WithServer } from "../components/result.js";
import { Text, visible } from "../components/text.js";
import { FilteredList, filterItems } from "../components/virtual_list.js";

const MIN_GROUP = 3;
const BADGES = [
  ["readOnlyHint", true, "read-only", "ok"],
  ["destructiveHint", true, "destructive", "bad"],
  ["idempotentHint", true, "idempotent", ""],
  ["openWorldHint", true, "open world", ""],
];

const filter = signal("");
const drafts = signal({}); // tool -> arguments; they outlive a restart of the server, and a reload
const options = signal({}); // tool -> {timeout, meta, task}; kept like the drafts

const own = (object, key) => (Object.hasOwn(object, key) ? object[key] : undefined);
const nameOf = (tool) => keyOf("tools", tool);
const draftKey = (tool) => `dovetail.draft.${tool}`;
/** What the form of a tool holds. */
export const draftOf = (tool) =>
  Object.hasOwn(drafts.value, tool)
    ? drafts.value[tool]
    : read(sessionStorage.getItem(draftKey(tool)) ?? "");

/** Fill in the form of a tool. */
export function setDraft(tool, value) {
  drafts.value = { ...drafts.value, [tool]: value };
  keep(draftKey(tool), value === undefined ? "" : print(value));
}

const optionsKey = (tool) => `dovetail.options.${tool}`;
const NO_TIMEOUT = "The timeout must be a number of seconds above 0.";
const isTimeout = (text) => !text?.trim() || (Number(text) > 0 && Number.isFinite(Number(text)));

function optionsOf(tool) {
  const known = own(options.value, tool);
  if (known) return known;
  const { meta, ...kept } = JSON.parse(sessionStorage.getItem(optionsKey(tool)) ?? "{}");
  return { ...kept, meta: read(meta ?? "") };
}

function setOptions(tool, chosen) {
  options.value = { ...options.value, [tool]: chosen };
  const meta = chosen.meta === undefined ? "" : print(chosen.meta);
  keep(optionsKey(tool), JSON.stringify({ ...chosen, meta }));
}

/** Put names with a common prefix into a group: rows `{heading}` and `{tool, prefix}`. */
export function groupTools(tools) {
  const groups = new Map();
  for (const tool of tools) {
    const prefix = /^[^_./:-]+[_./:-]+/.exec(nameOf(tool))?.[0] ?? "";
    if (!groups.has(prefix)) groups.set(prefix, []);
    groups.get(prefix).push(tool);
  }
  const isGroup = (prefix) => prefix && groups.size > 1 && groups.get(prefix).length >= MIN_GROUP;
  const alone = [...groups].flatMap(([prefix, ones]) => (isGroup(prefix) ? [] : ones));
  const grouped = [...groups].filter(([prefix]) => isGroup(prefix));
  return [
    ...alone.map((tool) => ({ tool, prefix: "" })),
    ...grouped.flatMap(([prefix, ones]) => [
      { heading: prefix.replace(/[_./:-]+$/, ""), count: ones.length },
      ...ones.map((tool) => ({ tool, prefix })),
    ]),
  ];
}

function Row({ row }) {
  if (row.heading !== undefined)
    return html`<${Text} max=${80}>${row.heading}<//> <span class="count">${row.count}</span>`;
  return html`<span class="name"
    >${row.prefix && html`<span class="prefix"><${Text} max=${80}>${row.prefix}<//></span>`}<${Text}
      max=${160}
      >${labelOf("tools", row.tool).slice(row.prefix.length)}<//
    ></span
  >`;
}

export function List() {
  const tools = lists.value.tools;
  const words = filter.value.toLowerCase();
  const rows = useMemo(() => groupTools(filterItems(tools, words)), [tools, words]);
  return html`<${FilteredList}
    id="tools"
    noun="tool"
    filter=${filter}
    rows=${rows}
    keyOf=${(row) => row.tool && nameOf(row.tool)}
    isHeading=${(row) => row.heading !== undefined}
    selected=${openedKey("tools")}
    render=${(row) => html`<${Row} row=${row} />`} />`;
}

function Badges({ annotations }) {
  if (!(annotations instanceof Map)) return null;
  return BADGES.map(
    ([key, value, name, tone]) =>
      annotations.get(key) === value && html`<span class=${`tag ${tone}`}>${name}</span>`,
  );
}

function Options({ tool, chosen, change }) {
  const execution = tool.execution instanceof Map ? tool.execution.get("taskSupport") : undefined;
  return html`<details class="options">
    <summary>Options</summary>
    <div class="option-grid">
      <label for="timeout">Timeout in seconds</label>
      <input
        id="timeout"
        class="line number"
        inputmode="decimal"
        placeholder="none"
        aria-invalid=${!isTimeout(chosen.timeout)}
        value=${chosen.timeout ?? ""}
        onInput=${(event) => change({ timeout: event.target.value })} />
      <label for="as-task">Run as a task</label>
      <span
        ><input
          id="as-task"
          type="checkbox"
          checked=${chosen.task ?? false}
          onChange=${(event) => change({ task: event.target.checked })} />
        <span class="hint"
          ><${Text} max=${40}>${execution ? `task support: ${print(execution)}` : ""}<//></span
        ></span
      >
      <label for="meta">_meta</label>
      <div>
        <${JsonEditor}
          id="meta"
          label="_meta as JSON"
          value=${chosen.meta}
          set=${(meta) => change({ meta })}
          rows=${2} />
      </div>
    </div>
  </details>`;
}

/** Ask for a name, and save the call. */
function Save({ tool, value, disabled }) {
  const [name, setName] = useState(null);
  const box = useRef(null);
  useSwappedFocus(box, name !== null);
  const begin = () => {
    const taken = new Set(snapshot.value.saved?.calls?.map((one) => one.name));
    const names = [tool, ...Array.from(taken, (_, at) => `${tool} ${at + 2}`)];
    setName(names.find((one) => !taken.has(one)));
  };
  const save = async (event) => {
    event.preventDefault();
    if (await run("save", { name, tool, arguments: print(value ?? new Map()) }))
      openPanel("saved", name.trim());
  };
  if (name === null)
    return html`<button ref=${box} disabled=${disabled} onClick=${begin}>Save…</button>`;
  return html`<form class="actions" ref=${box} onSubmit=${save}>
    <label for="save-name">Name</label>
    <input
      id="save-name"
      class="line"
      value=${name}
      onInput=${(event) => setName(event.target.value)} />
    <button disabled=${disabled || !name.trim()}>Save</button>
    <button type="button" class="quiet" onClick=${() => setName(null)}>Cancel</button>
  </form>`;
}

async function call(tool, value, chosen) {
  const fields = { tool, arguments: print(value ?? new Map()) };
  if (chosen.timeout?.trim()) fields.timeout = Number(chosen.timeout);
  if (chosen.task) fields.task = true;
  if (chosen.meta !== undefined) fields.meta = print(chosen.meta);
  await run("call", fields);
}

const compare = (name, value) =>
  openPanel("compare", {
    method: "tools/call",
    params: print(new Map([["name", name], ["arguments", value ?? new Map()]])), // prettier-ignore
  });

const describeDraft = (found) =>
  found && (found.path.length ? `${found.path.join(".")}: ` : "") + found.draft.message;

/** Go to the first field that is wrong. */
function showWrong() {
  const field = document.querySelector('.middle [aria-invalid="true"]');
  field?.closest("details")?.setAttribute("open", "");
  field?.focus();
}

function Tool({ tool }) {
  const name = nameOf(tool);
  const value = draftOf(name);
  const option = optionsOf(name);
  const change = (fields) => setOptions(name, { ...option, ...fields });
  const done = lastCallOf("tools/call", name);
  const draft = locateDraft(value) ?? locateDraft(option.meta, ["_meta"]);
  const wrong = describeDraft(draft) ?? (isTimeout(option.timeout) ? undefined : NO_TIMEOUT);
  const schema = tool.inputSchema ?? true;
  return html`<article class="item">
    <${ItemHead} list="tools" item=${tool}><${Badges} annotations=${tool.annotations} /><//>
    <${WithServer}>
      <${Form}
        id="arguments"
        schema=${schema}
        value=${value}
        set=${(next) => setDraft(name, next)} />
      <${Options} tool=${tool} chosen=${option} change=${change} />
    <//>
    <${Definition} item=${tool} />
    <${WithServer}>
      <div class="actions">
        <button
          class="primary"
          data-key="c"
          disabled=${Boolean(wrong) || state.value.status !== "open"}
          onClick=${() => call(name, value, option)}>
          Call <kbd>c</kbd>
        </button>
        <${Save} tool=${name} value=${value} disabled=${Boolean(draft)} />
        <button disabled=${Boolean(draft)} onClick=${() => compare(name, value)}>
          Compare revisions
        </button>
        ${wrong && html`<button class="link error" onClick=${showWrong}><${Text} max=${120}>${wrong}<//></button>`}
        <${Away} call=${done} />
      </div>
    <//>
    ${done && html`<${CallResult} call=${done} onCancel=${() => run("cancel", { call: done.call })} />`}
  </article>`;
}

/** What the server tells every model about itself. */
function Instructions() {
  const { instructions } = state.value;
  if (typeof instructions !== "string" || !instructions) return null;
  return html`<details class="options pad">
    <summary>Instructions of the server</summary>
    <${Text} block=${true}>${instructions}<//>
  </details>`;
}

export function Main() {
  const tools = lists.value.tools;
  const name = openedKey("tools");
  const tool = tools?.find((one) => nameOf(one) === name);
  if (tool) return html`<${Instructions} /><${Tool} key=${name} tool=${tool} />`;
  const gone = tools && name && `The server no longer has a tool named ${visible(name)}.`;
  return html`<p class="empty pad">${gone || (tools?.length > 0 && "Choose a tool.")}</p>`;
}
