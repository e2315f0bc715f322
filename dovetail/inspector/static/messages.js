/** The messages on the wire: each reply is joined to its request, and each row can be filtered. */
import { signal } from "./html.js";
import { keep, on } from "./store.js";

const MAX_ROWS = 20000;
const PINS = "dovetail.pins"; // in the storage of the tab
const NUMBERS = { ms: (row) => row.ms ?? row.reply?.ms, bytes: (row) => row.bytes };
const WORDS = {
  method: (row, word) => (row.method ?? "").toLowerCase().includes(word),
  id: (row, word) => (row.id ?? "").replaceAll('"', "").toLowerCase() === word,
  to: (row, word) => row.direction === `to_${word}`,
};
const FLAGS = {
  error: (row) => row.isError || row.reply?.isError,
  pinned: (row) => row.isPinned,
  open: (row) => row.kind === "request" && !row.reply,
};
const RANGE = /^at:(\d+(?:\.\d+)?)\.\.(\d+(?:\.\d+)?)$/; // seconds since the first message
const COMPARE = /^(ms|bytes):([<>]=?)?(\d+(?:\.\d+)?)$/;

export let rows = [];
export const version = signal(0); // changes with the rows
const waiting = new Map(); // connection, direction and id -> the request
const exchanges = [];

const pins = new Set(JSON.parse(sessionStorage.getItem(PINS) ?? "[]"));
const pinOf = (row) => `${row.n} ${row.at}`; // numbers begin again with each command

let first;
/** When the first message passed, in seconds since 1970. */
export const firstAt = () => first;

export const touch = () => (version.value += 1);

function add(event) {
  const { direction, connection, id, method } = event;
  first ??= event.at;
  const row = { ...event, isError: event.error === true, isPinned: pins.has(pinOf(event)) };
  const keyFor = (way) => `${connection} ${way} ${id}`;
  if (id === undefined) row.kind = "notification";
  else if (method !== undefined) {
    row.kind = "request";
    waiting.set(keyFor(direction), row);
  } else {
    row.kind = "reply";
    const key = keyFor(direction === "to_server" ? "to_client" : "to_server");
    const request = waiting.get(key);
    if (request) {
      waiting.delete(key);
      Object.assign(row, { request, method: request.method, ms: (event.at - request.at) * 1000 });
      request.reply = row;
    }
  }
  push(row);
}

function push(row) {
  rows.push(row);
  if (rows.length > MAX_ROWS * 1.1)
    rows = rows.filter((one, at) => one.isPinned || at >= rows.length - MAX_ROWS);
  touch();
}

/** Pin a message, or remove its pin. */
export function pin(row) {
  row.isPinned = !row.isPinned;
  if (row.isPinned) pins.add(pinOf(row));
  else pins.delete(pinOf(row));
  keep(PINS, JSON.stringify([...pins]));
  touch();
}

on("wire", add);
on("lost", ({ id, data, ...event }) => {
  const bytes = new TextEncoder().encode(data).length;
  const fields = { id: id == null ? undefined : JSON.stringify(id), text: data, bytes };
  push({ ...event, ...fields, kind: "lost", isError: true, isPinned: pins.has(pinOf(event)) });
});
on("http", (event) => {
  exchanges.push(event);
  if (exchanges.length > MAX_ROWS) exchanges.splice(0, MAX_ROWS / 10);
  touch();
});

/**
 * Return the HTTP requests that carried a message, or the request that it answers: several, if it
 * was sent again. Notifications have no id, so those of the same method match by order.
 */
export function findExchanges(row) {
  const sent = row.direction === "to_server" ? row : (row.request ?? row);
  if (sent.direction !== "to_server") return [];
  const method = sent.kind === "reply" ? undefined : sent.method;
  const found = exchanges
    .filter((one) => one.connection === sent.connection)
    .filter((one) => one.message_id === sent.id && one.message_method === method)
    .sort((one, other) => one.started - other.started);
  if (sent.kind !== "notification") return found;
  const isAlike = (one) =>
    one.kind === "notification" &&
    one.method === method &&
    one.connection === sent.connection &&
    one.direction === sent.direction;
  const alike = rows.filter(isAlike);
  const kept = found.filter((one) => one.started >= alike[0].at);
  return kept.slice(alike.indexOf(sent), alike.indexOf(sent) + 1);
}

function readTerm(term) {
  const [, name, sign = "", number] = COMPARE.exec(term) ?? [];
  if (name) {
    const limit = Number(number);
    const tests = {
      ">": (n) => n > limit,
      ">=": (n) => n >= limit,
      "<": (n) => n < limit,
      "<=": (n) => n <= limit,
    };
    const test = tests[sign] ?? ((n) => Math.round(n) === limit);
    return (row) => NUMBERS[name](row) !== undefined && test(NUMBERS[name](row));
  }
  const [from, to] = (RANGE.exec(term) ?? []).slice(1).map(Number);
  if (to !== undefined) return (row) => row.at - first >= from && row.at - first <= to;
  const [, word, value] = /^(\w+):(.+)$/.exec(term) ?? [];
  if (word && Object.hasOwn(WORDS, word)) return (row) => WORDS[word](row, value.toLowerCase());
  if (Object.hasOwn(FLAGS, term)) return FLAGS[term];
  const pattern = new RegExp(term.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i");
  return (row) =>
    pattern.test(row.method ?? "") || pattern.test(row.text) || pattern.test(row.reason ?? "");
}

/** Return the test of a filter such as `method:tools/call error ms:>500 -ping`. */
export function readFilter(text) {
  const tests = text
    .split(/\s+/)
    .filter((term) => term && term !== "-")
    .map((term) => {
      if (!term.startsWith("-")) return readTerm(term);
      const test = readTerm(term.slice(1));
      return (row) => !test(row);
    });
  return (row) => tests.every((test) => test(row));
}
