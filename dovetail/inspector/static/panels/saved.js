/** Saved calls: what is expected of each, running them, and exporting them as tests. */
import { classes, html, signal, useEffect, useState } from "../html.js";
import { on, openPanel, run, selection, snapshot, state } from "../store.js";
import { JsonBlock } from "../components/json.js";
import { JsonEditor, read } from "../components/json_editor.js";
import { findDraft, print } from "../components/json_text.js";
import { formatMs } from "../components/result.js";
import { Copy, Text, visible } from "../components/text.js";
import { VirtualList } from "../components/virtual_list.js";
import { setDraft } from "./tools.js";

const ROW = 28;
const STATES = {
  passed: ["✓", "passed", "ok"],
  failed: ["✗", "failed", "bad"],
  running: ["…", "running", "warn"],
  waiting: ["…", "waiting", ""],
  stopped: ["–", "stopped", ""],
};
const runs = signal(new Map()); // name -> its last `run` event
const isUnsaved = signal(false); // whether the open call is changed and not saved
const tests = signal(null); // the exported text, while it is shown

on("run", (event) => (runs.value = new Map(runs.value).set(event.name, event)));

const saved = () => snapshot.value.saved?.calls ?? [];
const isOpen = () => state.value.status === "open";
const isRunning = () =>
  [...runs.value.values()].some((one) => ["running", "waiting"].includes(one.status));

async function refresh() {
  const found = await run("saved", {});
  if (found) snapshot.value = { ...snapshot.value, saved: found };
}

async function exportTests() {
  tests.value = (await run("export_saved", {}))?.text ?? null;
  if (tests.value !== null) openPanel("saved", "");
}

function summary() {
  const states = saved().map((one) => runs.value.get(one.name)?.status);
  const count = (name) => states.filter((one) => one === name).length;
  return ["passed", "failed"]
    .filter(count)
    .map((name) => `${count(name)} ${name}`)
    .join(", ");
}

function Row({ call }) {
  const [mark, words, tone] = STATES[runs.value.get(call.name)?.status] ?? ["", "", ""];
  return html`<span class="name grow"><${Text} max=${160}>${call.name}<//></span>
    <span class=${tone}>${mark}<span class="sr">${words}</span></span>`;
}

export function List() {
  useEffect(() => void refresh(), []); // the file may have been edited
  const { problem, what_to_do: whatToDo } = snapshot.value.saved ?? {};
  const calls = saved();
  const open = (call) => {
    tests.value = null;
    openPanel("saved", call.name);
  };
  return html`<div class="actions pad">
      ${
        isRunning()
          ? html`<button onClick=${() => run("stop_run", {})}>Stop</button>`
          : html`<button disabled=${!calls.length || !isOpen()} onClick=${() => run("run", {})}>
              Run all
            </button>`
      }
      <button disabled=${!calls.length || isUnsaved.value} onClick=${exportTests}>
        Export as pytest
      </button>
      <span class="hint" role="status">${summary()}</span>
    </div>
    ${problem && html`<p class="error pad" role="alert"><${Text} max=${300}>${problem}<//> ${whatToDo}</p>`}
    <${VirtualList}
      id="saved"
      label="Saved calls"
      rows=${calls}
      height=${ROW}
      keyOf=${(call) => call.name}
      selected=${selection.value.saved ?? calls[0]?.name}
      onOpen=${open}
      render=${(call) => html`<${Row} call=${call} />`} />
    ${!calls.length && !problem && html`<p class="empty pad">No calls are saved. Fill in a tool, and press Save.</p>`}`;
}

function Outcome({ name, accept }) {
  const { status, why = [], ms, answer } = runs.value.get(name) ?? {};
  if (!status) return null;
  const [, words, tone] = STATES[status];
  return html`<section class="result" aria-label="Outcome">
    <div class="bar">
      <h3>Outcome</h3>
      <span class=${`tag ${tone}`}>${words}</span>
      ${ms !== undefined && html`<span class="hint">${formatMs(ms)}</span>`}
      <span class="grow"></span>
      ${answer !== undefined && html`<button class="quiet" onClick=${() => accept(read(answer))}>Expect this answer</button>`}
    </div>
    ${
      why.length > 0 &&
      html`<ul class="plain error">
        ${why.map((one) => html`<li><${Text} max=${600}>${one}<//></li>`)}
      </ul>`
    }
    ${answer !== undefined && html`<${JsonBlock} title="Answer" text=${answer} />`}
  </section>`;
}

const fieldsOf = ({ name, arguments: sent, expect }) => ({
  name,
  arguments: read(sent),
  equals: expect.equals === undefined ? undefined : read(expect.equals),
  schema: expect.schema === undefined ? undefined : read(expect.schema),
  underMs: expect.under_ms === undefined ? "" : String(expect.under_ms),
});

/** The fields of the operation; those that are not set are left out. */
function toOperation(call, fields) {
  const sent = { name: fields.name, tool: call.tool, replaces: call.name };
  sent.arguments = print(fields.arguments ?? new Map());
  if (fields.equals !== undefined) sent.equals = print(fields.equals);
  if (fields.schema !== undefined) sent.schema = print(fields.schema);
  if (fields.underMs.trim()) sent.under_ms = Number(fields.underMs);
  return sent;
}

const EDITORS = [
  ["arguments", "Arguments"],
  ["equals", "Answer equals"],
  ["schema", "Answer matches schema"],
];

/** Delete a saved call, if it is confirmed: that cannot be undone. */
function Delete({ name }) {
  const [isAsked, setAsked] = useState(false);
  const forget = async () => {
    setAsked(false);
    if (!(await run("forget_saved", { name }))) return;
    selection.value = { ...selection.value, saved: undefined };
    document.querySelector(".middle").focus();
  };
  if (!isAsked) return html`<button class="quiet" onClick=${() => setAsked(true)}>Delete</button>`;
  return html`<button class="danger" onClick=${forget}>Delete?</button>
    <button class="quiet" onClick=${() => setAsked(false)}>Keep</button>`;
}

function Call({ call }) {
  const [fields, setFields] = useState(() => fieldsOf(call));
  const change = (some) => setFields({ ...fields, ...some });
  const draft = EDITORS.map(([key]) => findDraft(fields[key])).find(Boolean);
  const sent = draft ? null : toOperation(call, fields);
  const isChanged =
    !sent || JSON.stringify(sent) !== JSON.stringify(toOperation(call, fieldsOf(call)));
  useEffect(() => void (isUnsaved.value = isChanged), [isChanged]);
  useEffect(() => () => (isUnsaved.value = false), []);
  const isWrong = Boolean(draft) || !(Number(fields.underMs || 1) > 0);
  const save = async () => {
    if ((await run("save", sent)) && fields.name !== call.name)
      openPanel("saved", fields.name.trim());
  };
  const edit = () => {
    setDraft(call.tool, read(call.arguments));
    openPanel("tools", call.tool);
  };
  return html`<article class="item">
    <header class="item-head">
      <h2><${Text} max=${200}>${call.name}<//></h2>
      <code><${Text} max=${200}>${call.tool}<//></code>
      <span class="grow"></span>
      <button class="quiet" onClick=${edit}>Open in Tools</button>
      <${Delete} name=${call.name} />
    </header>
    <div class="option-grid saved-fields">
      <label for="saved-name">Name</label>
      <input
        id="saved-name"
        class="line"
        value=${fields.name}
        onInput=${(event) => change({ name: event.target.value })} />
      ${EDITORS.map(
        ([key, label]) =>
          html`<label for=${`saved-${key}`}>${label}</label>
            <div>
              <${JsonEditor}
                id=${`saved-${key}`}
                label=${`${label}, as JSON`}
                value=${fields[key]}
                set=${(value) => change({ [key]: value })}
                rows=${2} />
            </div>`,
      )}
      <label for="saved-under">Answer within (ms)</label>
      <input
        id="saved-under"
        class="line number"
        inputmode="decimal"
        placeholder="not set"
        value=${fields.underMs}
        onInput=${(event) => change({ underMs: event.target.value })} />
    </div>
    <div class="actions">
      <button
        class="primary"
        data-key="c"
        disabled=${!isOpen() || isRunning() || isChanged}
        onClick=${() => run("run", { names: [call.name] })}>
        Run <kbd>c</kbd>
      </button>
      <button disabled=${!isChanged || isWrong || !fields.name.trim()} onClick=${save}>Save</button>
      ${isChanged && html`<span class="hint">Save the changes to run or export the call.</span>`}
    </div>
    <${Outcome} name=${call.name} accept=${(equals) => change({ equals })} />
  </article>`;
}

function download() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([tests.value], { type: "text/x-python" }));
  link.download = "test_calls.py";
  link.click();
  URL.revokeObjectURL(link.href);
}

function Tests() {
  return html`<article class="item">
    <header class="item-head">
      <h2>Saved calls as tests</h2>
      <span class="grow"></span>
      <${Copy} text=${tests.value} />
      <button class="quiet" onClick=${download}>Download test_calls.py</button>
      <button class="quiet icon" aria-label="Close the tests" onClick=${() => (tests.value = null)}>
        ×
      </button>
    </header>
    <pre
      class="content export tests"
      tabindex="0"
      role="group"
      aria-label="Tests"><${Text}>${tests.value}<//></pre>
  </article>`;
}

export function Main() {
  if (tests.value !== null) return html`<${Tests} />`;
  const calls = saved();
  const name = selection.value.saved || calls[0]?.name;
  const call = calls.find((one) => one.name === name);
  if (!call)
    return html`<p class=${classes("empty", "pad")}>
      ${name ? `There is no saved call named ${visible(name)}.` : "Save a call in the Tools panel: fill in its form, and press Save."}
    </p>`;
  return html`<${Call} key=${name} call=${call} />`;
}
