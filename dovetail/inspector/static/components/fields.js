/** The fields of a form. Unset, null and "" are three different things, and each can be chosen. */
import { classes, html, useMemo, useState } from "../html.js";
import { JsonEditor } from "./json_editor.js";
import { Draft, isSame, print, readNumber } from "./json_text.js";
import {
  chooseVariant,
  describe,
  properties,
  requiredConstants,
  schemaOfKey,
  startValue,
} from "./schema.js";
import { Text, visible } from "./text.js";

const SHOWN = 60; // properties or items, before a button shows more
const OPEN_DEPTH = 4; // required objects are open down to here
const LIMITS = [
  ["minimum", "≥"],
  ["exclusiveMinimum", ">"],
  ["maximum", "≤"],
  ["exclusiveMaximum", "<"],
  ["minLength", "length ≥"],
  ["maxLength", "length ≤"],
  ["pattern", "pattern"],
  ["minItems", "items ≥"],
  ["maxItems", "items ≤"],
];

const idOf = (key) => key.replace(/[^\w-]/g, (char) => `.${char.charCodeAt(0).toString(16)}`);
const NEEDED = new Draft("", "This item needs a value.");

/** The type and the limits of a field, in a few words. */
function hint({ kind, schema, nullable }) {
  const words = [kind === "enum" ? (schema.has("const") ? "constant" : "choice") : kind];
  if (nullable) words[0] += " or null";
  if (schema.has("format")) words.push(print(schema.get("format")).replaceAll('"', ""));
  for (const [key, sign] of LIMITS)
    if (schema.has(key)) words.push(`${sign} ${print(schema.get(key))}`);
  if (schema.has("default")) words.push(`default ${print(schema.get("default"))}`);
  return words.join(", ");
}

/** The values that cannot be typed: unset, null and the empty string. */
function States({ name, what, value, set, required }) {
  const isUnset = value === undefined;
  const rows = [
    ["not set", isUnset, undefined, true],
    ["null", value === null, null, what.nullable],
    ['""', value === "", "", what.kind === "string"],
  ];
  return html`<span class="states" role="group" aria-label=${`Special values of ${visible(name)}`}>
    ${rows.map(
      ([label, isOn, one, isOffered]) =>
        isOffered &&
        html`<button
          class=${classes(required && isUnset && isOn && "missing")}
          aria-pressed=${isOn}
          onClick=${() => set(one)}>
          ${label}
        </button>`,
    )}
  </span>`;
}

/**
 * One field with its label. Args: `schema`, `root` (the whole schema), `value`, `set(value)`, `id`,
 * `name` (undefined for the whole form), `required`, `depth`, `extra` (what stands after the label).
 */
export function Field(props) {
  const { schema, root, value, set, id, name, required, depth, extra } = props;
  const what = useMemo(() => describe(schema, root), [schema, root]);
  const isGroup = ["object", "array", "union"].includes(what.kind);
  const Control = CONTROLS[what.kind];
  const control = html`<${Control} ...${props} what=${what} />`;
  if (name === undefined) return control;
  const description = what.schema.get("description");
  const label = html`<code><${Text} max=${200}>${name}<//></code
    >${
      required &&
      html`<span class="required" title="required">*<span class="sr">required</span></span>`
    }`;
  return html`<div
    class=${classes("field", isGroup && "group", depth > 8 && "flat")}
    role=${isGroup ? "group" : undefined}
    aria-label=${isGroup ? visible(name) : undefined}>
    <div class="field-head">
      ${isGroup ? html`<span class="label">${label}</span>` : html`<label class="label" for=${id}>${label}</label>`}
      <span class="hint"><${Text} max=${120}>${hint(what)}<//></span>
      <${States} name=${name} what=${what} value=${value} set=${set} required=${required} />
      ${extra}
    </div>
    ${typeof description === "string" && html`<p class="field-note"><${Text} max=${600}>${description}<//></p>`}
    ${control}
  </div>`;
}

function StringControl({ id, value, set }) {
  return html`<textarea
    id=${id}
    rows="1"
    class="line"
    placeholder=${value === "" ? "empty string" : value === null ? "null" : "not set"}
    value=${typeof value === "string" ? value : value == null ? "" : print(value)}
    onInput=${(event) => set(event.target.value)}></textarea>`;
}

const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const INTEGER = /^-?(0|[1-9]\d*)$/;

function NumberControl({ id, value, set, what }) {
  const isInteger = what.kind === "integer";
  const type = ({ target: { value: text } }) => {
    if (!text.trim()) set(undefined);
    else if ((isInteger ? INTEGER : NUMBER).test(text.trim())) set(readNumber(text.trim()));
    else set(new Draft(text, `This is not ${isInteger ? "an integer" : "a number"}.`));
  };
  const isWrong = value instanceof Draft;
  return html`<input
      id=${id}
      class="line number"
      inputmode=${isInteger ? "numeric" : "decimal"}
      autocomplete="off"
      placeholder=${value === null ? "null" : "not set"}
      aria-invalid=${isWrong}
      aria-describedby=${isWrong ? `${id}-error` : undefined}
      value=${value == null ? "" : print(value)}
      onInput=${type} />
    ${isWrong && html`<p id=${`${id}-error`} class="error">${value.message}</p>`}`;
}

function ChoiceControl({ id, value, set, what, options, labels }) {
  const index = options.findIndex((one) => isSame(one, value) && value !== undefined);
  const isMixed = options.some((one) => typeof one !== "string");
  const names = options.map((one, at) => {
    const text = isMixed || one === "" ? print(one) : one;
    return visible(labels?.[at] ? `${labels[at]} (${text})` : text);
  });
  const isForeign = value != null && index < 0 && !(value instanceof Draft);
  const choose = (event) =>
    set(event.target.value === "" ? undefined : options[event.target.value]);
  return html`<select id=${id} value=${index < 0 ? "" : String(index)} onChange=${choose}>
    <option value="">
      ${isForeign ? visible(print(value)) : value === null ? "null" : "not set"}
    </option>
    ${names.map((text, at) => html`<option value=${String(at)}>${text}</option>`)}
  </select>`;
}

const EnumControl = (props) =>
  html`<${ChoiceControl} ...${props} options=${props.what.options} labels=${props.what.labels} />`;
const BooleanControl = (props) => html`<${ChoiceControl} ...${props} options=${[true, false]} />`;

function AnyControl({ id, name, value, set }) {
  return html`<${JsonEditor}
    id=${id}
    label=${`${visible(name ?? "Value")} as JSON`}
    value=${value}
    set=${set}
    rows=${2} />`;
}

function NeverControl({ id }) {
  return html`<output id=${id} class="field-note">The schema allows no value here.</output>`;
}

function NullControl({ id, value, set }) {
  const change = (event) => set(event.target.value === "null" ? null : undefined);
  return html`<select id=${id} value=${value === null ? "null" : ""} onChange=${change}>
    <option value="">not set</option>
    <option value="null">null</option>
  </select>`;
}

function UnionControl({ schema, root, value, set, id, name, required, depth, what }) {
  const [chosen, choose] = useState(null);
  const fitting = chooseVariant(what.variants, root, value);
  const index = chosen ?? fitting;
  const variant = what.variants[index];
  const pick = (event) => {
    choose(Number(event.target.value));
    set(startValue(what.variants[event.target.value], root) || undefined);
  };
  return html`<div class="union">
      <label class="variant">
        <span>Variant</span>
        <select id=${`${id}-variant`} value=${String(index)} onChange=${pick}>
          ${what.names.map((text, at) => html`<option value=${String(at)}>${visible(text)}</option>`)}
        </select>
      </label>
    </div>
    <${Inner}
      key=${index}
      ...${{ schema: variant, root, value, set, id, name, required, depth }} />`;
}

/** The control of a variant: its label is that of the union, so that it needs a name of its own. */
function Inner(props) {
  const what = useMemo(() => describe(props.schema, props.root), [props.schema, props.root]);
  const Control = CONTROLS[what.kind];
  const control = html`<${Control} ...${props} what=${what} />`;
  const isPlain = !["object", "array", "union"].includes(what.kind);
  return isPlain
    ? html`<label class="sr" for=${props.id}>${visible(props.name ?? "Value")}</label>${control}`
    : control;
}

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

function ObjectControl({ schema, root, value, set, id, name, required, depth, what }) {
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
  const needed = new Set(flat.get("required") ?? []);
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
    ["patternProperties", "additionalProperties"].some((key) => flat.get(key)) || !known.size;
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
  const patterns = [...(flat.get("patternProperties") ?? new Map()).keys()];
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
      placeholder=${visible(patterns.length ? `name like ${patterns.join(" or ")}` : "name of another field")}
      value=${key}
      onInput=${(event) => setKey(event.target.value)} />
    <button disabled=${!allowed || map.has(key)}>Add field</button>
  </form>`;
}

function ArrayControl({ schema, root, value, set, id, name, required, depth, what }) {
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

const CONTROLS = {
  string: StringControl,
  number: NumberControl,
  integer: NumberControl,
  boolean: BooleanControl,
  enum: EnumControl,
  union: UnionControl,
  object: ObjectControl,
  array: ArrayControl,
  any: AnyControl,
  never: NeverControl,
  null: NullControl,
};
