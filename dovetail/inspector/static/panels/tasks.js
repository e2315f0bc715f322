/** Tasks of the server, in both forms: a board by status, and the task that is open. */
import { html, signal, useEffect } from "../html.js";
import { post } from "../api.js";
import { calls, openPanel, questions, run, selection, state, tasks } from "../store.js";
import { tryParse } from "../components/json.js";
import { CallResult, formatMs } from "../components/result.js";
import { Copy, Text } from "../components/text.js";

const MAX_SHOWN = 50; // in a column
const EXTENSION = "io.modelcontextprotocol/tasks";
const RELATED = "io.modelcontextprotocol/related-task";
const COLUMNS = [
  ["Working", "running", (status) => !KNOWN.has(status)],
  ["Input required", "running", (status) => status === "input_required"],
  ["Done", "done", (status) => status === "completed"],
  ["Failed", "error", (status) => FAILED.has(status)],
];
const FAILED = new Set(["failed", "cancelled", "unknown"]);
const KNOWN = new Set(["input_required", "completed", ...FAILED]);
const isOver = ({ status }) => status === "completed" || FAILED.has(status);

const now = signal(Date.now());

/** A number of seconds in words: `8 s`, `3 min`, `2 h`. */
const words = (seconds) =>
  seconds < 100
    ? `${Math.round(seconds)} s`
    : seconds < 6000
      ? `${Math.round(seconds / 60)} min`
      : `${Math.round(seconds / 3600).toLocaleString("en")} h`;
const duration = (seconds) => (seconds < 100 ? formatMs(seconds * 1000) : words(seconds));
const since = (from, to) => Math.max(0, (to - Date.parse(from)) / 1000) || 0;

/** How old a task is, or how long it took. */
function age(task) {
  if (!task.created) return "";
  return isOver(task)
    ? `took ${duration(since(task.created, Date.parse(task.updated)))}`
    : `for ${words(since(task.created, now.value))}`;
}

function kept(task) {
  if (task.ttl === undefined) return "without limit";
  const rest = task.ttl / 1000 - since(task.created, now.value);
  return `${words(task.ttl / 1000)}, ${rest > 0 ? `${words(rest)} left` : "expired"}`;
}

const polled = ({ polls = 0 }) => `${polls} ${polls === 1 ? "poll" : "polls"}`;

/** The open question of a task: it names the task, or belongs to the call that waits for it. */
function findQuestion(task) {
  return questions.value.find((one) => {
    const related = tryParse(one.params)?.get("_meta")?.get?.(RELATED)?.get?.("taskId");
    return related === undefined ? one.call && one.call === task.call : related === task.task;
  });
}

function showQuestion({ question }) {
  const card = document.getElementById(`q${question}-head`)?.closest("section");
  card?.scrollIntoView({ block: "nearest" });
  card?.querySelector("input, select, textarea, button")?.focus();
}

function Card({ task, isChosen }) {
  return html`<button
    class="task-card"
    aria-pressed=${isChosen}
    onClick=${() => openPanel("tasks", task.task)}>
    <strong><${Text} max=${60}>${task.tool ?? task.task}<//></strong>
    ${["cancelled", "unknown"].includes(task.status) && html`<span class="tag">${task.status}</span>`}
    ${task.message && html`<span class="message"><${Text} max=${120}>${task.message}<//></span>`}
    <span class="hint">${age(task)} · ${polled(task)}</span>
  </button>`;
}

function Column({ title, all, chosen }) {
  return html`<section aria-label=${title}>
    <h3>${title} <span class="count">${all.length}</span></h3>
    ${all.slice(0, MAX_SHOWN).map((one) => html`<${Card} key=${one.task} task=${one} isChosen=${one === chosen} />`)}
    ${all.length > MAX_SHOWN && html`<p class="hint">The newest ${MAX_SHOWN} of ${all.length}</p>`}
  </section>`;
}

function Facts({ task }) {
  const rows = [
    ["id", task.task],
    ["message", task.message],
    ["created", task.created],
    ["changed", task.updated],
    ["kept for", kept(task)],
    ["poll interval", task.poll_interval && `${task.poll_interval} ms`],
    ["polls", String(task.polls ?? 0)],
    ["problem", task.problem],
  ];
  return html`<dl class="headers">
    ${rows.map(
      ([name, value]) =>
        value &&
        html`<dt>${name}</dt>
          <dd><${Text} max=${2000}>${value}<//></dd>`,
    )}
  </dl>`;
}

function Task({ task }) {
  const { task: id, tool, status } = task;
  const call = calls.value.get(task.call);
  const isFollowed = call?.status === "running";
  const question = findQuestion(task);
  const isEarlier = task.connection !== state.value.connection;
  const act = (action) => () => run("task", { task: id, action });
  const tone = status === "cancelled" ? "" : COLUMNS.find(([, , test]) => test(status))[1];
  return html`<section class="open-task" aria-label="Open task">
    <div class="bar">
      <h3><${Text} max=${80}>${tool ?? id}<//></h3>
      <span class=${`pill ${tone}`}><${Text} max=${40}>${status.replace("_", " ")}<//></span>
      ${isEarlier && html`<span class="tag">earlier connection</span>`}
      <span class="grow"></span>
      ${question && html`<button class="primary" onClick=${() => showQuestion(question)}>Answer</button>`}
      ${!isFollowed && html`<button onClick=${act("result")}>${isOver(task) ? "Get the result" : "Wait for the result"}</button>`}
      <button onClick=${act("get")}>Refresh</button>
      ${!isOver(task) && html`<button onClick=${act("cancel")}>Cancel</button>`}
      ${tool && html`<button class="quiet" onClick=${() => openPanel("tools", tool)}>Open the tool</button>`}
      <${Copy} text=${id} label="Copy id" />
    </div>
    <${Facts} task=${task} />
    ${call && html`<${CallResult} key=${call.call} call=${call} onCancel=${() => run("cancel", { call: call.call })} />`}
  </section>`;
}

/** What the server offers: `none`, `core`, `listed` (core, with tasks/list) or `extension`. */
function offered() {
  const can = tryParse(state.value.capabilities ?? "{}") ?? new Map();
  const core = can.get("tasks");
  if (core instanceof Map) return core.has("list") ? "listed" : "core";
  return can.get("extensions")?.get?.(EXTENSION) ? "extension" : "none";
}

const FORMS = {
  none: "",
  core: "core protocol",
  listed: "core protocol",
  extension: "tasks extension",
};
const NONE = {
  none: "This server does not run calls as tasks.",
  extension: "No tasks yet. The server decides which calls become tasks.",
};

export function Main() {
  const isOpen = state.value.status === "open";
  const form = offered();
  useEffect(() => {
    const timer = setInterval(() => (now.value = Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  useEffect(() => {
    if (isOpen && form === "listed") post("task", { action: "list" }).catch(() => {});
  }, [isOpen, form, state.value.connection]);
  const all = [...tasks.value.values()].reverse();
  const chosen = all.find((one) => one.task === selection.value.tasks) ?? all[0];
  return html`<article class="item">
    <header class="item-head">
      <h2>Tasks</h2>
      <span class="hint">${FORMS[form]}</span>
      <span class="grow"></span>
      ${form === "listed" && html`<button disabled=${!isOpen} onClick=${() => run("task", { action: "list" })}>Refresh</button>`}
    </header>
    ${!all.length && html`<p class="empty">${NONE[form] ?? 'No tasks yet. Call a tool with "Run as a task".'}</p>`}
    ${
      all.length > 0 &&
      html`<div class="board">
        ${COLUMNS.map(([title, , test]) => html`<${Column} key=${title} title=${title} all=${all.filter((one) => test(one.status))} chosen=${chosen} />`)}
      </div>`
    }
    ${chosen && html`<${Task} key=${chosen.task} task=${chosen} />`}
  </article>`;
}
