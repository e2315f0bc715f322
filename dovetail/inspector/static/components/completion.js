/** Text fields that the server completes: the arguments of a prompt, the variables of a template. */
import { html, signal, useEffect, useRef, useState } from "../html.js";
import { ApiError, post } from "../api.js";
import { announcement, keep, state } from "../store.js";
import { Text, visible } from "./text.js";

const PAUSE_MS = 150; // after the last key
const MAX_SHOWN = 100;
let offered = {}; // connection -> false if its server completes nothing

/** Texts by name, for each item of a panel. They outlive a restart of the server, and a reload. */
export function makeDrafts(panel) {
  const drafts = signal(new Map());
  const storedAs = (item) => `dovetail.${panel}.${item}`;
  const read = (item) =>
    drafts.value.get(item) ?? JSON.parse(sessionStorage.getItem(storedAs(item)) ?? "{}");
  const write = (item, values) => {
    drafts.value = new Map(drafts.value).set(item, values);
    keep(storedAs(item), JSON.stringify(values));
  };
  return { read, write };
}

/** The texts that are not empty: an empty one is not sent. */
export const filled = (values) =>
  Object.fromEntries(Object.entries(values).filter(([, text]) => text !== ""));

async function ask(about, argument, value, values) {
  const { [argument]: _, ...context } = filled(values);
  const { connection, status } = state.value;
  if (offered[connection] === false || status !== "open") return { values: [] };
  const found = await post("complete", { ...about, argument, value, context });
  if (found.offered === false) offered = { [connection]: false };
  return found;
}

/** What the server suggests for a text, and a function that asks it after a pause. */
function useSuggestions(about, name, values) {
  const [found, setFound] = useState({ values: [] });
  const waiting = useRef({ number: 0, timer: 0 });
  const close = () => {
    clearTimeout(waiting.current.timer);
    waiting.current.number += 1;
    setFound({ values: [] });
  };
  const suggest = (text) => {
    clearTimeout(waiting.current.timer);
    const number = (waiting.current.number += 1);
    const send = async () => {
      const reply = await ask(about, name, text, values).catch((problem) => {
        if (problem instanceof ApiError) return { values: [], problem: problem.message };
        throw problem;
      });
      if (number !== waiting.current.number) return; // another key was pressed meanwhile
      setFound(reply);
      if (reply.values.length)
        announcement.value = `${reply.values.length} suggestions for ${visible(name)}`;
    };
    waiting.current.timer = setTimeout(send, PAUSE_MS);
  };
  useEffect(() => () => clearTimeout(waiting.current.timer), []);
  return { found, suggest, close };
}

/** A field with suggestions below it, as an ARIA combobox. Text with several lines has none. */
function Combobox({ id, label, describedBy, required, value, set, about, name, values }) {
  const { found, suggest, close } = useSuggestions(about, name, values);
  const [at, setAt] = useState(-1);
  const shown = found.values.slice(0, MAX_SHOWN);
  const isOpen = shown.length > 0;
  useEffect(
    () => document.getElementById(`${id}-${at}`)?.scrollIntoView({ block: "nearest" }),
    [at],
  );
  const start = (text) => {
    setAt(-1);
    suggest(text);
  };
  const choose = (text) => {
    set(text);
    close();
    setAt(-1);
  };
  const steps = {
    ArrowDown: () => (isOpen ? setAt((at + 1) % shown.length) : start(value)),
    ArrowUp: isOpen && (() => setAt((at <= 0 ? shown.length : at) - 1)),
    Enter: isOpen && at >= 0 && (() => choose(shown[at])),
    Escape: isOpen && close,
  };
  const press = (event) => {
    if (event.metaKey || event.ctrlKey || event.altKey || !steps[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    steps[event.key]();
  };
  const paste = (event) => {
    const text = event.clipboardData.getData("text");
    if (!text.includes("\n")) return;
    event.preventDefault();
    const { selectionStart, selectionEnd } = event.target;
    set(value.slice(0, selectionStart) + text + value.slice(selectionEnd));
  };
  const more = (found.total ?? 0) > shown.length || found.has_more;
  return html`<div class="combo">
    <input
      id=${id}
      class="line"
      role="combobox"
      autocomplete="off"
      aria-autocomplete="list"
      aria-expanded=${isOpen}
      aria-controls=${isOpen ? `${id}-list` : undefined}
      aria-activedescendant=${isOpen && at >= 0 ? `${id}-${at}` : undefined}
      aria-describedby=${describedBy}
      aria-required=${required}
      value=${value}
      onFocus=${() => start(value)}
      onBlur=${close}
      onPaste=${paste}
      onKeyDown=${press}
      onInput=${(event) => {
        set(event.target.value);
        start(event.target.value);
      }} />
    ${
      isOpen &&
      html`<div class="suggestions" onMouseDown=${(event) => event.preventDefault()}>
        <div id=${`${id}-list`} role="listbox" aria-label=${`Suggestions for ${label}`}>
          ${shown.map(
            (text, index) =>
              html`<div
                id=${`${id}-${index}`}
                role="option"
                aria-selected=${index === at}
                onClick=${() => choose(text)}>
                <${Text} max=${200}>${text}<//>
              </div>`,
          )}
        </div>
        ${more && html`<p class="hint">${shown.length} of ${found.total?.toLocaleString("en") ?? "more"}</p>`}
      </div>`
    }
    ${found.problem && html`<p class="field-note">No suggestions: <${Text} max=${200}>${found.problem}<//></p>`}
  </div>`;
}

function Field({ id, field, values, set, about }) {
  const [isLong, setLong] = useState(false);
  const { name, required, title, description } = field;
  const value = Object.hasOwn(values, name) ? values[name] : "";
  const isLines = isLong || value.includes("\n");
  const note = `${id}-note`;
  const change = (text) => set({ ...values, [name]: text });
  const props = { id, required, value, set: change, about, name, values };
  return html`<div class="field">
    <div class="field-head">
      <label for=${id}>
        <code><${Text} max=${100}>${name}<//></code
        >${required && html`<span class="required" title="required">*</span>`}
      </label>
      ${title && html`<span class="hint"><${Text} max=${100}>${title}<//></span>`}
      <label class="states hint">
        <input
          type="checkbox"
          aria-label=${`multi-line ${visible(name)}`}
          checked=${isLines}
          disabled=${value.includes("\n")}
          onChange=${() => setLong(!isLong)} />
        multi-line
      </label>
    </div>
    ${
      isLines
        ? html`<textarea
            id=${id}
            class="line"
            rows="3"
            aria-describedby=${description ? note : undefined}
            value=${value}
            onInput=${(event) => change(event.target.value)}></textarea>`
        : html`<${Combobox}
            ...${props}
            label=${visible(name)}
            describedBy=${description && note} />`
    }
    ${description && html`<p id=${note} class="field-note"><${Text} max=${300}>${description}<//></p>`}
  </div>`;
}

/**
 * Fields for texts. Args: `id`; `title`; `fields`, each `{name, required?, title?, description?}`;
 * `values`, by name; `set(values)`; `about`, what is completed: `{prompt}` or `{template}`.
 */
export function CompletedFields({ id, title, fields, values, set, about }) {
  return html`<section class="form" aria-label=${title}>
    <div class="bar">
      <h3>${title}</h3>
      <span class="hint">An empty field is not sent.</span>
    </div>
    ${fields.map(
      (field, index) =>
        html`<${Field}
          key=${field.name}
          id=${`${id}-${index}`}
          field=${field}
          values=${values}
          set=${set}
          about=${about} />`,
    )}
  </section>`;
}
