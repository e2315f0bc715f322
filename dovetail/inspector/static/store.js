/**
 * What the page knows: a view of the numbered events of the inspector.
 *
 * The page asks for a snapshot, then follows the events. Signals hold what the newest events say;
 * `on(kind, handler)` gives a panel every event of its kind, also those from before it was loaded.
 */
import { batch, computed, effect, signal } from "./html.js";
import { ApiError, post, readEvents } from "./api.js";
import { parse, text } from "./components/json_text.js";

const MAX_KEPT = 20000; // events of a kind
const MAX_CALLS = 100;
const MAX_TASKS = 500;
const NOT_CONNECTED = 503; // the status of an operation that needs a connection
const OPENED = "dovetail.opened"; // in the storage of the tab: what was open before a reload
const KEYS = { tools: "name", resources: "uri", templates: "uriTemplate", prompts: "name" };
const LISTS = Object.keys(KEYS);
/** Kinds that the store itself turns into signals. Of these, old events say nothing new. */
const STATE_KINDS = new Set(["state", "changed", "lists", "call", "question", "answered", "task"]);

export const link = signal({ status: "opening", message: "" }); // to the inspector itself
export const state = signal({ status: "opening", message: "" }); // of the connection to the server
export const target = signal("");
export const revisions = signal([]);
export const lists = signal({}); // name -> items; null: not offered; undefined: not read yet
export const failures = signal({}); // list -> why it could not be read
export const reload = signal(null); // how the lists changed, or why a restart failed: {files?, message, traceback?}
export const calls = signal(new Map());
export const questions = signal([]);
export const tasks = signal(new Map());
export const answered = signal([]);
export const snapshot = signal({}); // the fields that belong to one panel: saved, roots, level, …
export const lastLogAt = signal(0); // when the server last wrote to stderr or its log, in seconds since 1970
export const announcement = signal(""); // for screen readers
export const problem = signal(null); // of the last operation: {message, whatToDo}

export const scheme = signal(localStorage.getItem("dovetail.scheme") ?? "light dark"); // or one of them
const system = matchMedia("(prefers-color-scheme: dark)");
const isSystemDark = signal(system.matches);
system.addEventListener("change", () => (isSystemDark.value = system.matches));
const themeOfSystem = computed(() => (isSystemDark.value ? "dark" : "light"));
export const theme = computed(() =>
  scheme.value === "light dark" ? themeOfSystem.value : scheme.value,
);

const opened = JSON.parse(sessionStorage.getItem(OPENED) ?? "{}");
export const panel = signal(opened.panel ?? "tools");
export const selection = signal(opened.selection ?? {}); // panel id -> key of the open item
export const view = signal(opened.view ?? "list"); // on a narrow screen: list, main or wire
export const isRecording = computed(() => state.value.status === "recording"); // there is no server
export const lastCall = computed(() => [...calls.value.values()].at(-1));

/** What identifies an item of a list, as text; "" if the server left it out. */
export const keyOf = (list, item) => text(item[KEYS[list]]);
export const labelOf = (list, item) => keyOf(list, item) || `(no ${KEYS[list]})`;

/** The key of the item of a list that is open: the first one until another is chosen. */
export const openedKey = (list) =>
  selection.value[list] ??
  (lists.value[list]?.length ? keyOf(list, lists.value[list][0]) : undefined);

/** The last call of a method that is about an item. */
export const lastCallOf = (method, name) =>
  [...calls.value.values()].findLast((one) => one.method === method && one.name === name);

/** Why lists show no row: nothing that is not known. Args: their `names`; `noun`; `words` of the filter. */
export function whyEmpty(names, noun, words) {
  const known = names.map((name) => lists.value[name]);
  if (known.some((items) => items?.length)) return words && `No ${noun} matches.`;
  if (known.includes(undefined) || names.some((name) => failures.value[name])) return "";
  return known.some(Boolean) ? "The list is empty." : `The server offers no ${noun}s.`;
}

/** Keep a text in the storage of the tab, unless it is full. */
export function keep(key, value) {
  try {
    sessionStorage.setItem(key, value);
  } catch {
    sessionStorage.removeItem(key);
  }
}

effect(() => {
  const keys = { ...selection.value, compare: undefined }; // not a key, but a request
  keep(OPENED, JSON.stringify({ panel: panel.value, view: view.value, selection: keys }));
});

export function openPanel(id, key) {
  batch(() => {
    panel.value = id;
    if (key !== undefined) selection.value = { ...selection.value, [id]: key };
    view.value = key === undefined ? "list" : "main";
  });
}

/** Run an operation; show its error instead of throwing it. */
export async function run(operation, fields) {
  try {
    const result = await post(operation, fields);
    problem.value = null;
    return result;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    problem.value = error;
    announcement.value = error.message;
    return undefined;
  }
}

// events

const past = new Map(); // kind -> events
const handlers = new Map(); // kind -> functions

/** Call a function with each event of a kind, the past ones first; return a function that ends it. */
export function on(kind, handler) {
  for (const event of past.get(kind) ?? []) handler(event);
  if (!handlers.has(kind)) handlers.set(kind, new Set());
  handlers.get(kind).add(handler);
  return () => handlers.get(kind).delete(handler);
}

let last = 0;
let known = 0; // the event up to which the snapshot holds

function take(event) {
  if (event.kind === "gap") return void load().catch(() => {}); // then the stream ends as well
  if (event.n > last) last = event.n;
  const isState = STATE_KINDS.has(event.kind);
  if (isState && event.n <= known) return;
  if (!isState) {
    const kept = past.get(event.kind) ?? past.set(event.kind, []).get(event.kind);
    kept.push(event);
    if (kept.length > MAX_KEPT * 1.1) kept.splice(0, kept.length - MAX_KEPT);
  }
  for (const handler of handlers.get(event.kind) ?? []) handler(event);
}

const arrived = []; // events that are not taken yet

function takeArrived() {
  batch(() => arrived.splice(0).forEach(take));
}

/** Take events once per frame, so that the page draws once for many. A hidden page has no frames. */
function receive(events) {
  if (!arrived.length && events.length) {
    requestAnimationFrame(takeArrived);
    setTimeout(takeArrived, 100);
  }
  arrived.push(...events);
}

on("state", (event) => {
  state.value = event;
  if (event.status === "open" && problem.value?.status === NOT_CONNECTED) problem.value = null;
});
on("changed", ({ what, value }) => {
  snapshot.value = { ...snapshot.value, [what]: value };
  if (what === "revisions") revisions.value = value;
});
on("lists", (event) => {
  lists.value = readLists(event.lists);
  failures.value = event.failures ?? {};
  const message = event.changes?.join(", ");
  if (message || !reload.value?.files) reload.value = { message }; // a restart says it with its files
  if (message) announcement.value = `The server changed: ${message}`;
});
for (const kind of ["stderr", "log"]) on(kind, ({ at }) => (lastLogAt.value = at));
on("reload", (event) => {
  reload.value = event;
  announcement.value = event.message;
});
on("call", (event) => {
  const kept = [...calls.value].slice(-MAX_CALLS);
  calls.value = new Map(kept).set(event.call, { ...calls.value.get(event.call), ...event });
  if (event.status !== "running") {
    const ms = event.ms === undefined ? "" : ` after ${Math.round(event.ms)} ms`;
    announcement.value = `${event.name || event.method}: ${event.status}${ms}`;
  }
});
on("task", (event) => {
  tasks.value = new Map([...tasks.value].slice(-MAX_TASKS)).set(event.task, event);
});
on("question", (event) => {
  questions.value = [...questions.value.filter((one) => one.question !== event.question), event];
  announcement.value = "The server asks a question";
});
on("answered", (event) => {
  const found = questions.value.find((one) => one.question === event.question);
  questions.value = questions.value.filter((one) => one !== found);
  if (found) answered.value = [...answered.value, { ...found, how: event.how }];
});

/** A JSON object as a plain object: its values stay exact. */
export const record = (map) => (map instanceof Map ? Object.fromEntries(map) : {});

function readLists(sent) {
  const read = (text) => (text ? parse(text).map(record) : text);
  return Object.fromEntries(LISTS.map((name) => [name, read(sent?.[name])]));
}

async function load() {
  const got = await post("snapshot");
  known = got.n;
  batch(() => {
    state.value = got.state;
    target.value = got.target;
    revisions.value = got.revisions ?? [];
    lists.value = readLists(got.lists);
    failures.value = got.failures ?? {};
    calls.value = new Map((got.calls ?? []).map((call) => [call.call, call]));
    questions.value = got.questions ?? [];
    answered.value = got.answered ?? [];
    tasks.value = new Map((got.tasks ?? []).map((task) => [task.task, task]));
    snapshot.value = got;
    link.value = { status: "open", message: "" };
  });
}

/** Follow the inspector for as long as the page is open. */
export async function follow() {
  for (let pause = 250; ; pause = Math.min(pause * 2, 4000)) {
    try {
      takeArrived();
      await load();
      pause = 250;
      await readEvents(last, receive);
      link.value = {
        status: "closed",
        message: "The inspector has ended. Start its command again.",
      };
    } catch (error) {
      const status = error.status === 401 ? "refused" : "closed"; // refused: of another command
      link.value = { status, message: error.message, whatToDo: error.whatToDo };
      if (status === "refused") return;
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}
