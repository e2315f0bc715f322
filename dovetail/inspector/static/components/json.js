/** A tree of exact JSON. Only what is open is in the document, and at most `STEP` members at a time. */
import { classes, html, useState } from "../html.js";
import { NumberText, parse, print } from "./json_text.js";
import { Copy, Text } from "./text.js";

const STEP = 100;
const OPEN_MEMBERS = 30; // members of a value that is open at first
const OPEN_DEPTH = 3;
const MAX_PARSED = 32 * 1024 * 1024;
const STRING_CHARS = 1000;

const isNested = (value) =>
  value !== null &&
  typeof value === "object" &&
  !(value instanceof NumberText) &&
  sizeOf(value) > 0;
const sizeOf = (value) => value.size ?? value.length ?? 0;

function kindOf(value) {
  if (value === null || typeof value === "boolean") return "word";
  if (typeof value === "string") return "string";
  return typeof value === "object" && !(value instanceof NumberText) ? "empty" : "number";
}

function Leaf({ value }) {
  const text = print(value);
  return html`<span class=${`json-${kindOf(value)}`}
    ><${Text} max=${STRING_CHARS}>${text}<//></span
  >`;
}

function Node({ name, value, depth, isOpen }) {
  const [open, setOpen] = useState(isOpen ?? (depth < OPEN_DEPTH && sizeOf(value) <= OPEN_MEMBERS));
  const [limit, setLimit] = useState(STEP);
  const isMap = value instanceof Map;
  const [start, end] = isMap ? "{}" : "[]";
  const size = sizeOf(value);
  const count = `${size.toLocaleString("en")} ${isMap ? (size === 1 ? "key" : "keys") : size === 1 ? "item" : "items"}`;
  const members = () => {
    const shown = [];
    for (const [key, one] of value.entries()) {
      if (shown.length === limit) break;
      shown.push(html`<${Member} key=${key} name=${key} value=${one} depth=${depth + 1} />`);
    }
    return shown;
  };
  return html`<button class="fold" aria-expanded=${open} onClick=${() => setOpen(!open)}>
      ${name !== undefined && html`<${Key} name=${name} />`}<span class="json-mark">${start}</span>
      ${!open && html`<span class="json-count">${count}</span><span class="json-mark">${end}</span>`}
    </button>
    ${
      open &&
      html`<ul>
          ${members()}
          ${
            size > limit &&
            html`<li>
              <button class="quiet more" onClick=${() => setLimit(limit * 4)}>
                Show more (${(size - limit).toLocaleString("en")} hidden)
              </button>
            </li>`
          }
        </ul>
        <span class="json-mark">${end}</span>`
    }`;
}

/** Whether the protocol, and not the author, put a key there: these keys of `_meta`. */
const isOfProtocol = (name) =>
  typeof name === "string" &&
  (name === "progressToken" || name.startsWith("io.modelcontextprotocol/"));

/** A word for what the protocol adds to messages and headers. */
export const ProtocolMark = () => html`<span class="tag">protocol</span>`;

const Key = ({ name }) =>
  html`<span class="json-key"><${Text} max=${200}>${String(name)}<//></span
    >${isOfProtocol(name) && html` <${ProtocolMark} />`}${": "}`;

function Member({ name, value, depth }) {
  return html`<li class=${classes(isOfProtocol(name) && "era")}>
    ${
      isNested(value)
        ? html`<${Node} name=${name} value=${value} depth=${depth} />`
        : html`<${Key} name=${name} /><${Leaf} value=${value} />`
    }
  </li>`;
}

/** Show a value (exact JSON). */
export function Json({ value }) {
  return html`<div class="json">
    ${isNested(value) ? html`<${Node} value=${value} depth=${0} isOpen=${true} />` : html`<${Leaf} value=${value} />`}
  </div>`;
}

/** Return the value of JSON text, or undefined if it is not JSON. */
export function tryParse(text) {
  if (typeof text !== "string" || text.length > MAX_PARSED) return undefined;
  try {
    return parse(text);
  } catch {
    return undefined;
  }
}

/** Show JSON text; text that is not JSON is shown as it is. */
export function JsonText({ text }) {
  const value = tryParse(text);
  return value === undefined
    ? html`<${Text} block=${true}>${text}<//>`
    : html`<${Json} value=${value} />`;
}

/** A heading, a copy button, and JSON text. */
export function JsonBlock({ title, text }) {
  return html`<div class="block-head">
      <h4>${title}</h4>
      <${Copy} text=${text} />
    </div>
    <${JsonText} text=${text} />`;
}
