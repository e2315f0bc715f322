/** The fields of a form. Unset, null and "" are three different things, and each can be chosen. */
import { classes, html, useMemo, useState } from "../html.js";
import { JsonEditor } from "./json_editor.js";
import { Draft, isSame, print, readNumber } from "./json_text.js";
import { ArrayControl, ObjectControl } from "./group_fields.js";
import { chooseVariant, describe, startValue } from "./schema.js";
import { Text, visible } from "./text.js";

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
  return html`<span
    class="segments states"
    role="group"
    aria-label=${`Special values of ${visible(name)}`}>
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
  const index = chooseVariant(what.variants, root, value, chosen);
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
