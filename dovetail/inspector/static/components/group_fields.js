/** The fields that contain fields: objects and arrays. */
import { classes, html, useState } from "../html.js";
import { Field } from "./fields.js";
import { Draft } from "./json_text.js";
import {
  list,
  patterns,
  properties,
  requiredConstants,
  schemaOfKey,
  startValue,
} from "./schema.js";
import { visible } from "./text.js";

const SHOWN = 60; // properties or items, before a button shows more
const OPEN_DEPTH = 4; // required objects are open down to here
const idOf = (key) => key.replace(/[^\w-]/g, (char) => `.${char.charCodeAt(0).toString(16)}`);
const NEEDED = new Draft("", "This item needs a value.");

function Remove({ what, onClick }) {
  return html`<button class="quiet icon" aria-label=${`Remove ${visible(what)}`} onClick=${onClick}>
    ×
  </button>`;
}

function More({ count, onClick }) {
  return html`<button class="quiet more" onClick=${onClick}>
    Show more (${count.toLocaleString("en")} hidden)
  </button>`;
}

function Closed({ what, set, schema, root, name }) {
  const add = () => set(startValue(schema, root) ?? (what.kind === "array" ? [] : new Map()));
  return html`<button class="add" onClick=${add}>Add ${visible(name)}</button>`;
}

export function ObjectControl({ schema, root, value, set, id, name, required, depth, what }) {
  const [limit, setLimit] = useState(SHOWN);
  const [filter, setFilter] = useState("");
  const flat = what.schema;
  const isOpen =
    name === undefined ||
    value instanceof Map ||
    (required && depth < OPEN_DEPTH && value !== null);
  if (!isOpen) return html`<${Closed} ...${{ what, set, schema, root, name }} />`;
  const map = value instanceof Map ? value : new Map();
  const known = properties(flat);
  const needed = new Set(list(flat.get("required")));
  const change = (key, one) => {
    const next = new Map(value instanceof Map ? value : requiredConstants(flat, root));
    if (one === undefined) next.delete(key);
    else next.set(key, one);
    set(next.size || depth ? next : undefined);
  };
  const all = [...known].filter(([key]) => key.toLowerCase().includes(filter.toLowerCase()));
  const first = all.filter(([key], index) => index < limit || map.has(key));
  const others = [...map.keys()].filter((key) => !known.has(key));
  const field = (key, one, extra) =>
    html`<${Field}
      key=${key}
      schema=${one}
      root=${root}
      value=${map.get(key)}
      set=${(next) => change(key, next)}
      id=${`${id}--${idOf(key)}`}
      name=${key}
      required=${needed.has(key)}
      depth=${depth + 1}
      extra=${extra} />`;
  const isFree =
    ["patternProperties", "additionalProperties"].some((key) => flat.get(key)) ||
    (!known.size && flat.get("additionalProperties") !== false);
  return html`<div class=${classes("fields", depth > 0 && "nested")}>
    ${
      known.size > SHOWN &&
      html`<input
        class="line"
        type="search"
        aria-label="Filter fields"
        placeholder=${`Filter ${known.size.toLocaleString("en")} fields`}
        value=${filter}
        onInput=${(event) => setFilter(event.target.value)} />`
    }
    ${first.map(([key, one]) => field(key, one))}
    ${all.length > first.length && html`<${More} count=${all.length - first.length} onClick=${() => setLimit(limit + SHOWN)} />`}
    ${others.map((key) =>
      field(
        key,
        schemaOfKey(flat, key) ?? true,
        html`<${Remove} what=${key} onClick=${() => change(key)} />`,
      ),
    )}
    ${
      !known.size &&
      !others.length &&
      depth === 0 &&
      !flat.get("additionalProperties") &&
      !flat.has("patternProperties")
        ? html`<p class="field-note">No arguments are described.</p>`
        : null
    }
    ${isFree && html`<${AddKey} flat=${flat} map=${map} id=${id} add=${(key) => change(key, startValue(schemaOfKey(flat, key) ?? true, root) ?? null)} />`}
  </div>`;
}

function AddKey({ flat, map, id, add }) {
  const [key, setKey] = useState("");
  const allowed = schemaOfKey(flat, key) !== undefined;
  const known = [...patterns(flat).keys()];
  const submit = (event) => {
    event.preventDefault();
    if (!allowed || map.has(key)) return;
    add(key);
    setKey("");
  };
  return html`<form class="add-key" onSubmit=${submit}>
    <input
      class="line"
      aria-label="Name of a new field"
      id=${`${id}-new`}
      autocomplete="off"
      placeholder=${visible(known.length ? `name like ${known.join(" or ")}` : "name of another field")}
      value=${key}
      onInput=${(event) => setKey(event.target.value)} />
    <button disabled=${!allowed || map.has(key)}>Add field</button>
  </form>`;
}

export function ArrayControl({ schema, root, value, set, id, name, required, depth, what }) {
  const [limit, setLimit] = useState(SHOWN);
  const flat = what.schema;
  const first = Array.isArray(flat.get("prefixItems")) ? flat.get("prefixItems") : [];
  const rest = flat.get("items") ?? true;
  const items = Array.isArray(value) ? value : [];
  if (name !== undefined && !required && !Array.isArray(value))
    return html`<${Closed} ...${{ what, set, schema, root, name }} />`;
  const schemaAt = (index) => first[index] ?? rest;
  const add = () => set([...items, startValue(schemaAt(items.length), root) ?? NEEDED]);
  const change = (index, one) => set(items.with(index, one === undefined ? NEEDED : one));
  const remove = (index) => set(items.toSpliced(index, 1));
  return html`<div class="fields nested">
    ${items
      .slice(0, limit)
      .map(
        (one, index) =>
          html`<${Field}
            key=${index}
            schema=${schemaAt(index)}
            root=${root}
            value=${one}
            set=${(next) => change(index, next)}
            id=${`${id}--${index}`}
            name=${`[${index}]`}
            required=${true}
            depth=${depth + 1}
            extra=${html`<${Remove} what=${`item ${index}`} onClick=${() => remove(index)} />`} />`,
      )}
    ${items.length > limit && html`<${More} count=${items.length - limit} onClick=${() => setLimit(limit + SHOWN)} />`}
    ${(rest !== false || items.length < first.length) && html`<button class="add" onClick=${add}>Add item</button>`}
  </div>`;
}
