/** The palette (every panel, tool, resource, prompt and action) and the help. */
import { html, useEffect, useRef, useState } from "./html.js";
import { closeDialog, dialog, KEYS, returnFocus } from "./keys.js";
import { panels } from "./panels/index.js";
import { isRecording, keyOf, labelOf, lists, openPanel, run } from "./store.js";
import { Text } from "./components/text.js";

const SHOWN = 50;
const FILTERS =
  "method:tools/call error ms:>500 bytes:>1000 id:7 to:server pinned open at:1..2.5".split(" ");
const ACTIONS = [
  ["Restart the server", () => run("restart", {})],
  ["Read the lists again", () => run("list", {})],
  ["Close the connection", () => run("close", {})],
];

function entries() {
  const items = (list) =>
    (lists.value[list] ?? []).map((one) => ({
      kind: list,
      name: labelOf(list, one),
      title: one.title,
      go: () => openPanel(list, keyOf(list, one)),
    }));
  return [
    ...["tools", "prompts", "resources"].flatMap(items),
    ...panels().map(({ id, title }) => ({ kind: "panel", name: title, go: () => openPanel(id) })),
    ...(isRecording.value ? [] : ACTIONS).map(([name, go]) => ({ kind: "action", name, go })),
  ];
}

function Palette() {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const words = text.toLowerCase().split(/\s+/);
  const found = entries()
    .filter((one) =>
      words.every((word) =>
        `${one.kind} ${one.name} ${one.title ?? ""}`.toLowerCase().includes(word),
      ),
    )
    .slice(0, SHOWN);
  const go = (one) => {
    closeDialog();
    one?.go();
  };
  const steps = {
    ArrowDown: () => setAt(Math.min(at + 1, found.length - 1)),
    ArrowUp: () => setAt(Math.max(at - 1, 0)),
    Enter: () => go(found[at]),
  };
  const press = (event) => {
    if (!steps[event.key]) return;
    event.preventDefault();
    steps[event.key]();
  };
  useEffect(
    () => document.getElementById(`palette-${at}`)?.scrollIntoView({ block: "nearest" }),
    [at],
  );
  return html`<input
      type="search"
      role="combobox"
      aria-label="Go to"
      aria-expanded=${found.length > 0}
      aria-controls="palette"
      aria-activedescendant=${found.length ? `palette-${at}` : undefined}
      placeholder="Go to a tool, resource, prompt, panel or action"
      value=${text}
      onKeyDown=${press}
      onInput=${(event) => {
        setText(event.target.value);
        setAt(0);
      }} />
    <div id="palette" role="listbox" aria-label="Results">
      ${found.map(
        (one, index) =>
          html`<div
            id=${`palette-${index}`}
            role="option"
            aria-selected=${index === at}
            onClick=${() => go(one)}>
            <span class="name"><${Text} max=${120}>${one.name}<//></span>
            <span class="hint">${one.kind}</span>
          </div>`,
      )}
    </div>
    ${!found.length && html`<p class="empty pad">Nothing matches.</p>`}`;
}

function Help() {
  return html`<h2>Keys</h2>
    <dl class="keys">
      ${KEYS.map(
        ([key, what]) =>
          html`<dt><kbd>${key}</kbd></dt>
            <dd>${what}</dd>`,
      )}
    </dl>
    <h2>Filter of the wire</h2>
    <p>
      ${FILTERS.map((one) => html`<code>${one}</code> `)} (seconds since the first message). Other
      words are searched in the text. <code>-</code> in front of a word excludes it.
    </p>
    <button onClick=${closeDialog}>Close</button>`;
}

export function Dialog() {
  const box = useRef(null);
  const name = dialog.value;
  useEffect(() => {
    if (!name) return undefined;
    box.current.showModal();
    return returnFocus;
  }, [name]);
  if (!name) return null;
  const outside = (event) => event.target === box.current && closeDialog();
  return html`<dialog
    key=${name}
    ref=${box}
    class=${name}
    aria-label=${name === "help" ? "Help" : "Palette"}
    onCancel=${closeDialog}
    onClick=${outside}>
    ${name === "help" ? html`<${Help} />` : html`<${Palette} />`}
  </dialog>`;
}
