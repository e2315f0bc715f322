/**
 * Exact JSON. Objects become Maps (their order and all their keys are kept), integers beyond 2^53
 * become BigInts, and numbers that JavaScript would write differently keep their text.
 */

export class NumberText {
  constructor(text) {
    this.text = text;
  }
}

/** Text that somebody is still writing, and what is wrong with it. It stands where a value will be. */
export class Draft {
  constructor(text, message) {
    this.text = text;
    this.message = message;
  }
}

export class JsonError extends Error {
  constructor(problem, text, at) {
    const lines = text.slice(0, at).split("\n");
    super(`Line ${lines.length}, column ${lines.at(-1).length + 1}: ${problem}`);
    this.line = lines.length;
    this.column = lines.at(-1).length + 1;
  }
}

const SPACES = [" ", "\t", "\n", "\r"];
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const NEEDS_CARE = /[\\\u0000-\u001f]/;
const WORDS = { t: ["true", true], f: ["false", false], n: ["null", null] };

/** Return the value of a number's text: a number, a BigInt, or the text itself. */
export function readNumber(text) {
  const number = Number(text);
  if (String(number) === text) return number;
  return /^-?[1-9]\d*$/.test(text) ? BigInt(text) : new NumberText(text);
}

/** Parse JSON text; throw a JsonError with line and column. */
export function parse(text) {
  let at = 0;

  const fail = (problem, where = at) => {
    throw new JsonError(problem, text, where);
  };
  const skip = () => {
    while (SPACES.includes(text[at])) at += 1;
    return text[at];
  };
  const expect = (char, what) => {
    if (skip() !== char)
      fail(at < text.length ? `expected ${what}` : `expected ${what}, but the text ends`);
    at += 1;
  };

  function readString() {
    const start = at;
    for (let end = at; ;) {
      end = text.indexOf('"', end + 1);
      if (end < 0) fail("this string has no end");
      let slashes = 0;
      while (text[end - 1 - slashes] === "\\") slashes += 1;
      if (slashes % 2) continue;
      at = end + 1;
      const raw = text.slice(start, at);
      if (!NEEDS_CARE.test(raw)) return raw.slice(1, -1);
      try {
        return JSON.parse(raw);
      } catch {
        fail("this string has an escape or a control character that JSON does not allow", start);
      }
    }
  }

  function readMembers(close, readOne) {
    at += 1;
    if (skip() === close) return void (at += 1);
    for (;;) {
      readOne();
      if (skip() === close) return void (at += 1);
      expect(",", `"," or "${close}"`);
    }
  }

  function readValue() {
    const char = skip();
    if (char === '"') return readString();
    if (char === "{") {
      const map = new Map();
      readMembers("}", () => {
        if (skip() !== '"') fail("expected a key in double quotes");
        const key = readString();
        expect(":", '":"');
        map.set(key, readValue());
      });
      return map;
    }
    if (char === "[") {
      const items = [];
      readMembers("]", () => items.push(readValue()));
      return items;
    }
    const [word, value] = WORDS[char] ?? [];
    if (word && text.startsWith(word, at)) {
      at += word.length;
      return value;
    }
    NUMBER.lastIndex = at;
    const number = NUMBER.exec(text)?.[0];
    if (number === undefined)
      fail(char === undefined ? "expected a value, but the text ends" : "expected a value");
    at += number.length;
    return readNumber(number);
  }

  try {
    const value = readValue();
    if (skip() !== undefined) fail("expected the end of the text");
    return value;
  } catch (error) {
    if (error instanceof RangeError) fail("the values are nested too deeply");
    throw error;
  }
}

/** Return the JSON text of a value; `indent` spaces per level, or 0 for one line. */
export function print(value, indent = 0, margin = "\n") {
  if (value instanceof NumberText || value instanceof Draft) return value.text;
  if (typeof value === "bigint") return String(value);
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  const isMap = value instanceof Map;
  const inner = margin + " ".repeat(indent);
  const colon = indent ? ": " : ":";
  const members = isMap
    ? [...value].map(([key, one]) => JSON.stringify(key) + colon + print(one, indent, inner))
    : value.map((one) => print(one, indent, inner));
  const [open, close] = isMap ? "{}" : "[]";
  if (!members.length) return open + close;
  return indent
    ? open + inner + members.join(`,${inner}`) + margin + close
    : open + members.join(",") + close;
}

/** A string as it is; other values as JSON; nothing as "". */
export const text = (value) =>
  typeof value === "string" ? value : value === undefined ? "" : print(value);

/** Return the first draft in a value and where it is: {draft, path}; or undefined. */
export function locateDraft(value, path = []) {
  if (value instanceof Draft) return { draft: value, path };
  if (value === null || typeof value !== "object" || value instanceof NumberText) return undefined;
  for (const [key, one] of value.entries()) {
    const found = locateDraft(one, [...path, key]);
    if (found) return found;
  }
  return undefined;
}

/** Return the first draft in a value, or undefined if the value is complete. */
export const findDraft = (value) => locateDraft(value)?.draft;

export const isSame = (one, other) => one === other || print(one) === print(other);
