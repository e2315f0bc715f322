/** The messages on the wire: each reply is joined to its request, and each row can be filtered. */
import { signal } from "./html.js";
import { keep, on, state } from "./store.js";
import { tryParse } from "./components/json.js";
import { print } from "./components/json_text.js";

/** A request that is open for as long as its stream. */
export const STREAM = "subscriptions/listen";
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
  open: (row) => row.kind === "request" && endOf(row) === undefined,
};
const RANGE = /^at:(\d+(?:\.\d+)?)\.\.(\d+(?:\.\d+)?)$/; // seconds since the first message
const COMPARE = /^(ms|bytes):([<>]=?)?(\d+(?:\.\d+)?)$/;

export let rows = [];
export const version = signal(0); // changes with the rows
const waiting = new Map(); // connection, direction and id -> the request
const exchanges = [];
const closings = []; // {connection, at}: when this connection, and those before it, were over

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
  if (id === undefined) {
    row.kind = "notification";
    if (method === "notifications/cancelled") cancel(event);
  } else if (method !== undefined) {
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

/** Note when the request was cancelled that a notification is about. A reply may still come. */
function cancel({ connection, direction, text, at }) {
  const id = tryParse(text)?.get?.("params")?.get?.("requestId");
  const request = waiting.get(`${connection} ${direction} ${print(id)}`);
  if (request) request.cancelledAt ??= at;
}

/** When the connection of a message was over. After a reload of the page, this may be too late. */
function endOfConnection(row) {
  const { connection, status } = state.value;
  const isOver = row.connection < connection || !["opening", "open"].includes(status);
  if (!isOver) return undefined;
  const closed = closings.find((one) => one.connection >= row.connection && one.at >= row.at);
  const next = closed ?? rows.find((one) => one.connection > row.connection) ?? rows.at(-1);
  return next.at;
}

/** When a request ended: with its reply, when it was cancelled, or with its connection. */
export const endOf = (row) => row.reply?.at ?? row.cancelledAt ?? endOfConnection(row);

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
on("state", ({ connection, status, at }) => {
  if (status === "opening") closings.push({ connection: connection - 1, at });
  else if (status !== "open") closings.push({ connection, at });
});
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

const isKey = (term) =>
  COMPARE.test(term) || RANGE.test(term) || Object.hasOwn(WORDS, term.split(":")[0]);

/** Why no message matches a filter, in words. */
export function whyNoMatch(text) {
  const terms = text.split(/\s+/).map((term) => term.replace(/^-/, ""));
  const odd = terms.find((term) => /^\w+:./.test(term) && !isKey(term));
  const keys = "The keys are method:, id:, to:, ms:, bytes: and at:.";
  return `No messages match.${odd ? ` ${odd} is searched as text. ${keys}` : ""}`;
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
