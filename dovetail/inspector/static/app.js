/** The page: a header, tabs, and three columns (what the server has, the open item, the wire). */
import {
  classes,
  effect,
  html,
  render,
  signal,
  useEffect,
  useErrorBoundary,
  useLayoutEffect,
  useState,
} from "./html.js";
import { takeToken } from "./api.js";
import { CONTROL, dialog, listen, openDialog } from "./keys.js";
import { openedPanel, panels } from "./panels/index.js";
import { Wire } from "./panels/wire.js";
import { formatMs } from "./components/result.js";
import { Prose, Text } from "./components/text.js";
import * as store from "./store.js";

const STATES = {
  opening: ["Connecting", "busy"],
  open: ["Connected", "ok"],
  closed: ["Closed", "off"],
  failed: ["Failed", "bad"],
  recording: ["Recorded session", "off"],
};
const SAVE = "Correct the file and save it.";
const KEPT = " Until then, you see the lists of the last version.";
const OPEN_URL = "Open the URL that the terminal printed.";
const OLD_TAB = `This tab belongs to an earlier command. ${OPEN_URL}`;
const SCHEMES = ["light dark", "light", "dark"];
const SCHEME_NAMES = { "light dark": "auto", light: "light", dark: "dark" };
const { scheme } = store;

const isWireHidden = signal(false);
effect(() => {
  document.documentElement.style.colorScheme = scheme.value;
  localStorage.setItem("dovetail.scheme", scheme.value);
});

function Status() {
  const { status, message } = store.state.value;
  const isLost = store.link.value.status === "closed";
  const [words, tone] = isLost ? ["Inspector ended", "bad"] : (STATES[status] ?? [status, "off"]);
  return html`<span class=${`status ${tone}`} title=${message || words}>${words}</span>`;
}

let hasAsked = false; // in which revisions the server answers, if it does not list them

function findRevisions() {
  if (!hasAsked && store.state.value.status === "open") store.run("find_revisions", {});
  hasAsked = store.state.value.status === "open";
}

function Revision() {
  const { status, revision, chosen } = store.state.value;
  const current = chosen ?? revision;
  const answered = store.revisions.value;
  if (!answered.length || store.isRecording.value || !(current || status === "failed"))
    return revision && html`<span class="fact">${revision}</span>`;
  const known = !current || answered.includes(current) ? answered : [current, ...answered];
  const choose = (event) =>
    store.run("open", event.target.value ? { revision: event.target.value } : {});
  return html`<label class="fact">
    <span class="sr">Protocol revision</span>
    <select value=${current ?? ""} onFocus=${findRevisions} onChange=${choose}>
      ${!current && html`<option value="">Any revision</option>`}
      ${known.map((one) => html`<option value=${one}>${one}</option>`)}
    </select>
  </label>`;
}

function LastCall() {
  const call = store.lastCall.value;
  if (!call || call.ms === undefined) return null;
  return html`<span
    class=${classes("fact", "last", call.status === "error" && "bad")}
    title="the last call">
    <${Text} max=${40}>${call.name || call.method}<//> ${formatMs(call.ms)}
  </span>`;
}

function Header() {
  const { name, version, title, transport } = store.state.value;
  const next = SCHEMES[(SCHEMES.indexOf(scheme.value) + 1) % SCHEMES.length];
  return html`<header class="top">
    <h1><${Text} max=${80}>${title || name || store.target.value || "Inspector"}<//></h1>
    ${version && html`<span class="fact version"><${Text} max=${30}>${version}<//></span>`}
    <${Status} />
    ${transport && html`<span class="fact transport">${transport}</span>`}
    <${Revision} />
    <${LastCall} />
    <span class="grow"></span>
    <button class="search" onClick=${() => openDialog("palette")}>
      Go to <kbd>${CONTROL}K</kbd>
    </button>
    ${!store.isRecording.value && html`<button onClick=${() => store.run("restart", {})}>Restart</button>`}
    <button class="quiet" onClick=${() => (scheme.value = next)}>
      Theme: ${SCHEME_NAMES[scheme.value]}
    </button>
    <button class="quiet icon" aria-label="Help" onClick=${() => openDialog("help")}>?</button>
  </header>`;
}

function Tabs() {
  const isWire = store.view.value === "wire";
  const opened = openedPanel().id;
  const loaded = opened !== "tools" && store.link.value.status; // the counts make tabs wider
  useLayoutEffect(() => {
    const show = () =>
      document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest" });
    show();
    addEventListener("resize", show);
    return () => removeEventListener("resize", show);
  }, [opened, isWire, loaded]);
  return html`<nav class="tabs" aria-label="Panels">
    ${panels().map(({ id, title, badge }) => {
      const count = badge?.();
      return html`<button
        aria-current=${opened === id && !isWire ? "page" : undefined}
        onClick=${() => store.openPanel(id)}>
        ${title}${count !== undefined && html`<span class="count">${count.toLocaleString("en")}</span>`}
      </button>`;
    })}
    <button
      class="wire-tab"
      aria-current=${isWire ? "page" : undefined}
      onClick=${() => (store.view.value = "wire")}>
      Wire
    </button>
    <button class="wire-switch" onClick=${() => (isWireHidden.value = !isWireHidden.value)}>
      ${isWireHidden.value ? "Show wire" : "Hide wire"}
    </button>
  </nav>`;
}

function Notices() {
  const { status, message, what_to_do: whatToDo, stderr } = store.state.value;
  const rows = [];
  if (store.link.value.status === "closed") rows.push(store.link.value);
  else if (status === "failed") {
    const { traceback, message: reason } = store.reload.value ?? {};
    const isKnown = Object.values(store.lists.value).some((one) => one !== undefined);
    const advice = isKnown ? SAVE + KEPT : SAVE;
    if (traceback) rows.push({ message: reason, whatToDo: advice, stderr: traceback });
    else rows.push({ message, whatToDo, stderr });
  }
  if (store.problem.value)
    rows.push({ ...store.problem.value, message: store.problem.value.message, canClose: true });
  return rows.map(
    (row) =>
      html`<div class="notice" role="alert">
        <p>
          <${Text} max=${1000}>${row.message}<//
          >${row.whatToDo && !/[.!?:…]$/.test(row.message) ? ". " : " "}
          ${row.whatToDo && html`<strong><${Prose}>${row.whatToDo}<//></strong>`}
        </p>
        ${row.stderr && html`<pre tabindex="0"><${Text} max=${4000}>${row.stderr}<//></pre>`}
        ${row.canClose && html`<button class="quiet icon" aria-label="Close" onClick=${() => (store.problem.value = null)}>×</button>`}
      </div>`,
  );
}

/** What changed last; or what a recording is. */
function Restarted() {
  if (store.isRecording.value)
    return html`<p class="note"><${Text} max=${1000}>${store.state.value.message}<//></p>`;
  const { message, files = [] } = store.reload.value ?? {};
  if (!message || store.state.value.status === "failed") return null;
  return html`<p class="hint pad restarted">
    <${Text} max=${300}>${files.length ? `${files.join(", ")} changed. ` : ""}${message}<//>
  </p>`;
}

/** A module that is loaded when it is first needed. */
function useModule(load, key) {
  const [loaded, setLoaded] = useState({});
  useLayoutEffect(() => {
    let isCurrent = true; // another panel may be chosen before this one is loaded
    if (load) load().then((module) => isCurrent && setLoaded({ key, module }));
    return () => (isCurrent = false);
  }, [key]);
  return loaded.key === key ? loaded.module : null;
}

/** Shows a problem instead of its children. Another item of the panel is another try. */
function Guard({ children, name, item }) {
  const [error, reset] = useErrorBoundary((problem) => console.error(problem));
  useEffect(() => error && reset(), [item]);
  if (!error) return children;
  return html`<div class="notice" role="alert">
    <p>${name} cannot be shown: ${String(error)}</p>
    <button onClick=${reset}>Try again</button>
  </div>`;
}

function Columns() {
  const row = openedPanel();
  const module = useModule(row.load, row.id);
  const hasQuestions = store.questions.value.length > 0;
  const cards = useModule(
    hasQuestions ? () => import("./panels/questions.js") : null,
    hasQuestions,
  );
  const back = () => (store.view.value = "list");
  return html`<main
    class=${classes("columns", `view-${store.view.value}`, isWireHidden.value && "no-wire", module && !module.List && "no-list")}>
    ${
      module?.List &&
      html`<section class="left" aria-label=${row.title}>
        <${Guard} key=${row.id} name=${row.title}><${module.List} /><//>
      </section>`
    }
    <section class="middle" aria-label=${`${row.title}: open item`} tabindex="-1">
      ${module?.List && html`<button class="quiet back" onClick=${back}>← ${row.title}</button>`}
      <${Notices} /><${Restarted} />
      ${hasQuestions && cards && html`<${cards.Cards} />`}
      ${module && html`<${Guard} key=${row.id} name=${row.title} item=${store.selection.value[row.id]}><${module.Main} /><//>`}
    </section>
    <section class="wire" aria-label="Wire">
      <${Guard} name="Wire"><${Wire} /><//>
    </section>
  </main>`;
}

const Alone = ({ message }) =>
  html`<main class="alone">
    <h1>Dovetail inspector</h1>
    <p>${message}</p>
  </main>`;

function App() {
  const palette = useModule(
    dialog.value ? () => import("./palette.js") : null,
    Boolean(dialog.value),
  );
  if (store.link.value.status === "refused") return html`<${Alone} message=${OLD_TAB} />`;
  return html`<${Header} /><${Tabs} /><${Columns} />
    <div class="sr" role="status">${store.announcement.value}</div>
    ${palette && html`<${palette.Dialog} />`}`;
}

if (takeToken()) {
  store.follow(); // first: its reply is on the way while the page is drawn
  listen();
  render(html`<${App} />`, document.body);
} else {
  render(html`<${Alone} message=${OPEN_URL} />`, document.body);
}
