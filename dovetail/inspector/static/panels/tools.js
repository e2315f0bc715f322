/** Tools: the list, a form for the arguments, and the result of the last call. */
import { html, signal, useMemo, useState } from "../html.js";
import { calls, changes, failures, lists, openPanel, run, selection, snapshot } from "../store.js";
import { Form } from "../components/form.js";
import { JsonEditor, read } from "../components/json_editor.js";
import { findDraft, print } from "../components/json_text.js";
import { CallResult } from "../components/result.js";
import { JsonBlock } from "../components/json.js";
import { Text, visible } from "../components/text.js";
import { VirtualList } from "../components/virtual_list.js";

const ROW = 28;
const MIN_GROUP = 3;
const MAX_STORED = 200000;
const BADGES = [
  ["readOnlyHint", true, "read-only", "ok"],
  ["destructiveHint", true, "destructive", "bad"],
  ["idempotentHint", true, "idempotent", ""],
  ["openWorldHint", true, "open world", ""],
];

const filter = signal("");
const drafts = signal({}); // tool -> arguments; they outlive a restart of the server, and a reload
const options = signal({}); // tool -> {timeout, meta, task}

const own = (object, key) => (Object.hasOwn(object, key) ? object[key] : undefined);
const draftKey = (tool) => `dovetail.draft.${tool}`;
/** What the form of a tool holds. */
export const draftOf = (tool) =>
  Object.hasOwn(drafts.value, tool)
    ? drafts.value[tool]
    : read(sessionStorage.getItem(draftKey(tool)) ?? "");

/** Fill in the form of a tool. */
export function setDraft(tool, value) {
  drafts.value = { ...drafts.value, [tool]: value };
  const text = value === undefined ? "" : print(value);
  if (text.length < MAX_STORED) sessionStorage.setItem(draftKey(tool), text);
}

/** Put names with a common prefix into a group: rows `{heading}` and `{tool, prefix}`. */
export function groupTools(tools) {
  const groups = new Map();
  for (const tool of tools) {
    const prefix = /^[^_./:-]+[_./:-]+/.exec(tool.name)?.[0] ?? "";
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
      >${row.tool.name.slice(row.prefix.length)}<//
    ></span
  >`;
}

export function List() {
  const tools = lists.value.tools;
  const text = filter.value.toLowerCase();
  const rows = useMemo(() => {
    const found = (tools ?? []).filter((tool) =>
      [tool.name, tool.title, tool.description].some(
        (one) => typeof one === "string" && one.toLowerCase().includes(text),
      ),
    );
    return groupTools(found);
  }, [tools, text]);
  const open = (row) => openPanel("tools", row.tool.name);
  const select = (row) => (selection.value = { ...selection.value, tools: row.tool.name });
  return html`<input
      type="search"
      class="filter"
      aria-label="Filter tools"
      placeholder="Filter tools  /"
      value=${filter.value}
      onInput=${(event) => (filter.value = event.target.value)} />
    <${VirtualList}
      id="tools"
      label="Tools"
      rows=${rows}
      height=${ROW}
      keyOf=${(row) => row.tool?.name}
      isHeading=${(row) => row.heading !== undefined}
      selected=${selection.value.tools ?? tools?.[0]?.name}
      onSelect=${select}
      onOpen=${open}
      render=${(row) => html`<${Row} row=${row} />`} />
    ${failures.value.tools && html`<p class="error pad"><${Text} max=${500}>${failures.value.tools}<//></p>`}
    ${!rows.length && html`<p class="empty pad">${tools === null ? "The server offers no tools." : "No tool matches."}</p>`}`;
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

function Schemas({ tool }) {
  const rows = [
    ["Input schema", tool.inputSchema],
    ["Output schema", tool.outputSchema],
    ["Annotations", tool.annotations],
    ["_meta", tool._meta],
  ];
  return html`<details class="options">
    <summary>Definition</summary>
    ${rows.map(([title, value]) => value !== undefined && html`<${JsonBlock} key=${title} title=${title} text=${print(value)} />`)}
  </details>`;
}

/** Ask for a name, and save the call. */
function Save({ tool, value, disabled }) {
  const [name, setName] = useState(null);
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
  if (name === null) return html`<button disabled=${disabled} onClick=${begin}>Save…</button>`;
  return html`<form class="actions" onSubmit=${save}>
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
  if (Number(chosen.timeout) > 0) fields.timeout = Number(chosen.timeout);
  if (chosen.task) fields.task = true;
  if (chosen.meta !== undefined) fields.meta = print(chosen.meta);
  await run("call", fields);
}

const compare = (name, value) =>
  openPanel("compare", {
    method: "tools/call",
    params: print(new Map([["name", name], ["arguments", value ?? new Map()]])), // prettier-ignore
  });

const lastCallOf = (tool) =>
  [...calls.value.values()].findLast((one) => one.method === "tools/call" && one.name === tool);

function Tool({ tool }) {
  const value = draftOf(tool.name);
  const chosen = own(options.value, tool.name) ?? {};
  const change = (fields) =>
    (options.value = { ...options.value, [tool.name]: { ...chosen, ...fields } });
  const done = lastCallOf(tool.name);
  const draft = findDraft(value) ?? findDraft(chosen.meta);
  const schema = tool.inputSchema ?? true;
  return html`<article class="item">
    <header class="item-head">
      <h2>
        <code><${Text} max=${300}>${tool.name}<//></code>
      </h2>
      ${tool.title && html`<span class="title"><${Text} max=${200}>${tool.title}<//></span>`}
      <${Badges} annotations=${tool.annotations} />
    </header>
    ${typeof tool.description === "string" && html`<p class="description"><${Text} max=${900}>${tool.description}<//></p>`}
    <${Form}
      id="arguments"
      schema=${schema}
      value=${value}
      set=${(next) => setDraft(tool.name, next)} />
    <${Options} tool=${tool} chosen=${chosen} change=${change} />
    <${Schemas} tool=${tool} />
    <div class="actions">
      <button
        class="primary"
        data-key="c"
        disabled=${Boolean(draft)}
        onClick=${() => call(tool.name, value, chosen)}>
        Call <kbd>c</kbd>
      </button>
      <${Save} tool=${tool.name} value=${value} disabled=${Boolean(draft)} />
      <button disabled=${Boolean(draft)} onClick=${() => compare(tool.name, value)}>
        Compare revisions
      </button>
      ${draft && html`<span class="error">${draft.message}</span>`}
    </div>
    ${done && html`<${CallResult} call=${done} onCancel=${() => run("cancel", { call: done.call })} />`}
  </article>`;
}

export function Main() {
  const tools = lists.value.tools;
  const name = selection.value.tools ?? tools?.[0]?.name;
  const tool = tools?.find((one) => one.name === name);
  const note =
    changes.value.length > 0 &&
    html`<p class="note"><${Text} max=${500}>${changes.value.join(", ")}<//></p>`;
  if (!tool)
    return html`${note}
      <p class="empty pad">
        ${name ? `The server no longer has a tool named ${visible(name)}.` : "Choose a tool."}
      </p>`;
  return html`${note}<${Tool} key=${name} tool=${tool} />`;
}
