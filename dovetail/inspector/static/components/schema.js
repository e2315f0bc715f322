/** Read a JSON Schema as a form does: what kind of field it describes. Schemas are exact JSON (Maps). */
import { isSame, print } from "./json_text.js";

const MAX_EXAMPLE_DEPTH = 6;
const MAX_EXAMPLE_VALUES = 1000;
const MAX_EXAMPLE_CHARS = 1000;
const HINTS = {
  object: ["properties", "patternProperties", "additionalProperties", "required", "minProperties"],
  array: ["items", "prefixItems", "minItems", "maxItems", "uniqueItems"],
  string: ["pattern", "minLength", "maxLength", "format"],
  number: ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"],
};
const SAMPLES = {
  date: "2026-08-01",
  "date-time": "2026-08-01T09:00:00Z",
  time: "09:00:00Z",
  email: "ada@example.com",
  uri: "https://example.com/",
  uuid: "00000000-0000-4000-8000-000000000000",
  ipv4: "192.0.2.1",
  hostname: "example.com",
};

const isObject = (value) => value instanceof Map;
export const list = (value) => (Array.isArray(value) ? value : []);
const object = (value) => (isObject(value) ? value : new Map());
export const properties = (schema) => object(schema.get("properties"));
export const patterns = (schema) => object(schema.get("patternProperties"));

/** Return the schema with this `$anchor`, or undefined. */
function findAnchor(root, name) {
  const found = [root]; // grows while it is read
  for (const one of found) {
    if (isObject(one) && [one.get("$anchor"), one.get("$dynamicAnchor")].includes(name)) return one;
    if (isObject(one)) found.push(...one.values());
    else found.push(...list(one));
  }
  return undefined;
}

/** Return what a reference points to in the document, or undefined. */
function lookUp(root, reference) {
  if (!reference.startsWith("#")) return undefined;
  let path;
  try {
    path = decodeURIComponent(reference.slice(1));
  } catch {
    return undefined;
  }
  if (path !== "" && !path.startsWith("/")) return findAnchor(root, path);
  const keys = path.split("/").slice(1);
  return keys.reduce((found, key) => {
    const name = key.replaceAll("~1", "/").replaceAll("~0", "~");
    if (isObject(found)) return found.get(name);
    return Array.isArray(found) ? found[Number(name)] : undefined;
  }, root);
}

const JOINS = {
  required: (one, other) => [...new Set([...list(one), ...list(other)])],
  enum: (one, other) =>
    list(one).filter((value) => list(other).some((same) => isSame(value, same))),
  type: (one, other) => {
    const both = [one].flat().filter((type) => [other].flat().includes(type));
    return both.length === 1 ? both[0] : both.length ? both : other;
  },
  properties: (one, other) => {
    const joined = new Map(object(one));
    for (const [key, schema] of object(other))
      joined.set(key, joined.has(key) ? new Map([["allOf", [joined.get(key), schema]]]) : schema);
    return joined;
  },
};

function merge(one, other) {
  if (one === false || other === false) return false;
  const merged = new Map(one);
  for (const [key, value] of other)
    merged.set(key, JOINS[key] && merged.has(key) ? JOINS[key](merged.get(key), value) : value);
  return merged;
}

/** Follow references and join `allOf`: a Map, or false if nothing is allowed. */
export function flatten(schema, root, followed = []) {
  if (schema === false) return false;
  if (!isObject(schema)) return new Map();
  let flat = new Map(schema);
  for (const key of ["$ref", "$dynamicRef"]) {
    const reference = flat.get(key);
    if (typeof reference !== "string") continue;
    flat.delete(key);
    const found = followed.includes(reference) ? undefined : lookUp(root, reference);
    if (found === undefined)
      return new Map([["description", `The reference ${reference} leads nowhere.`]]);
    flat = merge(flatten(found, root, [...followed, reference]), flat);
    if (flat === false) return false;
    if (!flat.has("title") && key === "$ref")
      flat.set("title", reference.split("/").at(-1).replaceAll("~1", "/"));
  }
  const parts = list(flat.get("allOf"));
  flat.delete("allOf");
  return parts.reduce((sum, part) => sum && merge(sum, flatten(part, root, followed)), flat);
}

function guessType(schema) {
  const type = schema.get("type");
  if (type !== undefined) return [type].flat();
  const found = Object.keys(HINTS).find((kind) => HINTS[kind].some((key) => schema.has(key)));
  return found ? [found] : [];
}

/** How people call a variant of a union. */
function nameVariant(schema, index) {
  if (schema === false) return "nothing";
  const title = schema.get("title");
  const constants = [...properties(schema)].filter(([, one]) => isObject(one) && one.has("const"));
  const mark = constants.map(([key, one]) => `${key}: ${print(one.get("const"))}`).join(", ");
  const type = guessType(schema).join(" or ");
  if (typeof title === "string" && title) return mark ? `${title} (${mark})` : title;
  if (schema.has("const")) return print(schema.get("const"));
  if (mark) return mark;
  if (type === "object" && schema.has("required"))
    return `with ${list(schema.get("required")).join(", ")}`;
  if (type === "array" && isObject(schema.get("items")))
    return `array of ${schema.get("items").get("type") ?? "any"}`;
  return type || `variant ${index + 1}`;
}

/**
 * Return what a schema describes: `{kind, schema, nullable, options?, variants?}`. The kind is one of
 * string, number, integer, boolean, object, array, enum, union, null, any and never.
 */
export function describe(schema, root) {
  const flat = flatten(schema, root);
  if (flat === false) return { kind: "never", schema: new Map(), nullable: false };
  let nullable = flat.get("nullable") === true;
  if (flat.has("const"))
    return { kind: "enum", schema: flat, nullable, options: [flat.get("const")] };
  if (Array.isArray(flat.get("enum")))
    return { kind: "enum", schema: flat, nullable, options: flat.get("enum") };
  const key = ["oneOf", "anyOf"].find((name) => list(flat.get(name)).length);
  if (key) {
    const base = new Map(flat);
    base.delete(key);
    const isNull = (one) =>
      isObject(one) && (one.get("type") === "null" || one.get("const") === null);
    const given = flat.get(key).map((one) => flatten(one, root));
    const others = given.filter((one) => !isNull(one));
    nullable ||= others.length < given.length;
    base.delete("title");
    const variants = others.map((one) => merge(base, one));
    if (flat.has("description") && variants.length === 1 && variants[0])
      variants[0].set("description", flat.get("description"));
    if (variants.length === 1) return { ...describe(variants[0], root), nullable };
    if (others.length && others.every((one) => one && one.has("const")))
      return {
        kind: "enum",
        schema: base,
        nullable,
        options: others.map((one) => one.get("const")),
        labels: others.map((one) => one.get("title")),
      };
    if (variants.length)
      return { kind: "union", schema: flat, nullable, variants, names: others.map(nameVariant) };
  }
  const types = guessType(flat);
  const real = types.filter((type) => type !== "null");
  nullable ||= real.length > 0 && real.length < types.length;
  if (real.length > 1) {
    const variants = real.map((type) => new Map(flat).set("type", type));
    return { kind: "union", schema: flat, nullable, variants, names: real };
  }
  const kind = real[0] ?? (types.length ? "null" : "any");
  const isKnown = ["string", "number", "integer", "boolean", "object", "array", "null"].includes(
    kind,
  );
  return { kind: isKnown ? kind : "any", schema: flat, nullable };
}

const JSON_TYPES = {
  string: (value) => typeof value === "string",
  boolean: (value) => typeof value === "boolean",
  object: isObject,
  array: Array.isArray,
  null: (value) => value === null,
};
const isNumber = (value) => !Object.values(JSON_TYPES).some((test) => test(value));

/** How well a value fits a variant: -1 if not at all. */
function fit(variant, root, value) {
  const { kind, schema, options, nullable } = describe(variant, root);
  if (value === null && nullable) return 1;
  if (kind === "any" || kind === "union") return 0;
  if (kind === "never") return -1;
  if (kind === "enum") return options.some((one) => isSame(one, value)) ? 2 : -1;
  if (!(JSON_TYPES[kind] ?? isNumber)(value)) return -1;
  if (kind !== "object") return 1;
  let score = list(schema.get("required")).every((key) => value.has(key)) ? 1 : 0;
  for (const [key, one] of properties(schema)) {
    const flat = flatten(one, root);
    if (!value.has(key) || !flat) continue;
    if (flat.has("const")) {
      if (!isSame(flat.get("const"), value.get(key))) return -1;
      score += 2;
    }
    score += 1;
  }
  return score;
}

/** Return the index of the chosen variant, if the value allows it; otherwise of the one that fits best. */
export function chooseVariant(variants, root, value, chosen) {
  if (value === undefined) return chosen ?? 0;
  if (chosen !== null && fit(variants[chosen], root, value) >= 0) return chosen;
  const scores = variants.map((variant) => fit(variant, root, value));
  return scores.indexOf(Math.max(...scores));
}

/** Return what a field contains when somebody adds it: required constants, and nothing else. */
export function startValue(schema, root) {
  const { kind, schema: flat, options, variants } = describe(schema, root);
  if (kind === "enum") return options[0];
  if (kind === "union") return startValue(variants[0], root);
  if (kind === "array") return [];
  if (kind === "null") return null;
  if (kind !== "object") return kind === "string" ? "" : undefined;
  return new Map(requiredConstants(flat, root));
}

export function requiredConstants(flat, root) {
  return list(flat.get("required")).flatMap((key) => {
    const one = flatten(properties(flat).get(key), root);
    return one && one.has("const") ? [[key, one.get("const")]] : [];
  });
}

/** Return the schema of a key that is not in `properties`, or undefined if it is not allowed. */
export function schemaOfKey(flat, key) {
  for (const [pattern, schema] of patterns(flat)) {
    try {
      if (new RegExp(pattern, "u").test(key)) return schema;
    } catch {
      continue; // not a pattern that JavaScript knows
    }
  }
  const rest = flat.get("additionalProperties");
  return rest === false ? undefined : (rest ?? true);
}

/**
 * Return a value that the schema probably allows. `budget.left` is the number of values that may
 * still be made: a schema that needs itself twice would need more and more of them.
 */
export function example(schema, root, depth = 0, budget = { left: MAX_EXAMPLE_VALUES }) {
  if ((budget.left -= 1) < 0) return null;
  const { kind, schema: flat, options, variants, nullable } = describe(schema, root);
  if (list(flat.get("examples")).length) return flat.get("examples")[0];
  if (flat.has("default")) return flat.get("default");
  if (nullable && depth > MAX_EXAMPLE_DEPTH) return null;
  const makers = {
    enum: () => options[0],
    union: () => example(variants[0], root, depth + 1, budget),
    boolean: () => true,
    integer: () => flat.get("minimum") ?? 1,
    number: () => flat.get("minimum") ?? 1,
    string: () => SAMPLES[flat.get("format")] ?? exampleText(flat.get("minLength")),
    array: () => exampleItems(flat, root, depth, budget),
    object: () => exampleObject(flat, root, depth, budget),
    any: () => "text",
  };
  return makers[kind]?.() ?? null;
}

const exampleText = (length) =>
  "text".padEnd(Math.min(Number(length ?? 0), MAX_EXAMPLE_CHARS) || 0, "x");

function exampleItems(flat, root, depth, budget) {
  const first = list(flat.get("prefixItems"));
  const items = flat.get("items") ?? true;
  const count = Math.max(
    Number(flat.get("minItems") ?? 0),
    first.length,
    depth < 3 && items ? 1 : 0,
  );
  return Array.from({ length: Math.min(count, 100) }, (_, index) =>
    example(first[index] ?? items, root, depth + 1, budget),
  );
}

function exampleObject(flat, root, depth, budget) {
  const required = list(flat.get("required"));
  const entries = [...properties(flat)].filter(
    ([key, one]) => one !== false && (required.includes(key) ? depth < 60 : depth < 2),
  );
  return new Map(
    entries.slice(0, 200).map(([key, one]) => [key, example(one, root, depth + 1, budget)]),
  );
}
