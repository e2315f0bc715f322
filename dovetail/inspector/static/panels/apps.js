/** Apps: the view of a tool in its sandbox, the messages to and from it, and what its policy blocked. */
import { classes, html, signal, useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { post } from "../api.js";
import {
  announcement,
  keep,
  keyOf,
  labelOf,
  lists,
  on,
  openPanel,
  run,
  selection,
  snapshot,
  state,
  theme as pageTheme,
} from "../store.js";
import { Form } from "../components/form.js";
import { JsonText } from "../components/json.js";
import { JsonEditor } from "../components/json_editor.js";
import { findDraft, print } from "../components/json_text.js";
import { Link, Text } from "../components/text.js";
import { VirtualList } from "../components/virtual_list.js";
import { draftOf, setDraft } from "./tools.js";

const ROW = 28;
const MAX_KEPT = 500;
const MAX_SHOWN = 100;
const MAX_WAITING = 64; // messages of a view that Python has not taken yet
const MAX_HEIGHT = 2000;
const READY = "ui/notifications/sandbox-proxy-ready";
const SIZE = "ui/notifications/size-changed";
const SHOWN = "dovetail.app"; // in the storage of the tab: the tool whose view is open
const WIDTHS = { full: "Full", 320: "320 px", 480: "480 px", 768: "768 px" };

const view = signal(null); // what `app_open` returned, and the tool
const events = signal([]);
const context = signal({}); // of the host, without the theme
const theme = signal(pageTheme.value); // of the view: it changes with that of the page
const width = signal("full");
const height = signal(240);
let frame = null;
let waiting = 0;

const uriOf = (tool) => {
  const ui = tool._meta instanceof Map ? tool._meta.get("ui") : undefined;
  const uri = ui instanceof Map ? ui.get("resourceUri") : tool._meta?.get?.("ui/resourceUri");
  return typeof uri === "string" && uri.startsWith("ui://") ? uri : null;
};
const tools = () => (lists.value.tools ?? []).filter(uriOf);
const nameOf = (tool) => keyOf("tools", tool);
const chosen = () => selection.value.apps ?? (tools().length ? nameOf(tools()[0]) : undefined);

// messages

const send = (message) =>
  frame?.contentWindow?.postMessage(message, new URL(view.value.src).origin);

on("app", (event) => {
  events.value = [...events.value, event].slice(-MAX_KEPT);
  if (event.violation) announcement.value = `Blocked: ${event.violation.directive}`;
  if (event.direction === "to_view" && event.app === view.value?.app)
    send(JSON.parse(event.post ?? event.text));
});

addEventListener("message", async ({ source, origin, data }) => {
  if (!view.value || source !== frame?.contentWindow || origin !== new URL(view.value.src).origin)
    return;
  if (data?.method === READY) return send(JSON.parse(view.value.resource));
  const asked = Number(data?.params?.height);
  if (data?.method === SIZE && asked > 0) height.value = Math.min(Math.ceil(asked), MAX_HEIGHT);
  if (waiting >= MAX_WAITING) return;
  waiting += 1;
  try {
    await run("app_post", { app: view.value.app, message: JSON.stringify(data) ?? "null" });
  } finally {
    waiting -= 1;
  }
});

/** Open the view of a tool with a new call, or `again` with the last result. */
async function show(name, again, send = run) {
  const given = JSON.stringify({ ...context.value, theme: theme.value });
  const fields = { tool: name, arguments: print(draftOf(name) ?? new Map()) };
  const found = await send("app_open", { ...fields, context: given, again });
  if (!found) return;
  view.value = { ...found, tool: name };
  keep(SHOWN, name);
}

/** Open the view that was open before a reload, if its result is still known. */
const reopen = (name) => show(name, true, (...sent) => post(...sent).catch(() => keep(SHOWN, "")));

const change = (fields) =>
  view.value && run("app_context", { app: view.value.app, context: JSON.stringify(fields) });

const setTheme = (value) => {
  theme.value = value;
  change({ theme: value });
};
pageTheme.subscribe((value) => value !== theme.value && setTheme(value));

// components

function Frame({ shown }) {
  const element = useRef(null);
  useLayoutEffect(() => {
    frame = element.current;
    return () => {
      frame = null;
      if (view.value === shown) {
        view.value = null;
        keep(SHOWN, "");
      }
      run("app_close", { app: shown.app });
    };
  }, []);
  return html`<div class=${classes("view", shown.border !== false && "content")}>
    <iframe
      ref=${element}
      title=${`The view of ${shown.tool}`}
      sandbox=${shown.sandbox}
      allow=${shown.allow}
      style=${{ width: width.value === "full" ? "100%" : `${width.value}px`, height: `${height.value}px` }}
      src=${shown.src}></iframe>
  </div>`;
}

function Select({ id, label, value, options, set }) {
  return html`<label for=${id}>${label}</label>
    <select id=${id} value=${value} onChange=${(event) => set(event.target.value)}>
      ${Object.entries(options).map(([key, name]) => html`<option value=${key}>${name}</option>`)}
    </select>`;
}

function Controls() {
  return html`<div class="actions">
    <${Select}
      id="app-width"
      label="Width"
      value=${width.value}
      options=${WIDTHS}
      set=${(value) => (width.value = value)} />
    <${Select}
      id="app-theme"
      label="Theme"
      value=${theme.value}
      options=${{ light: "Light", dark: "Dark" }}
      set=${setTheme} />
  </div>`;
}

function HostContext() {
  const [value, set] = useState(new Map());
  const draft = findDraft(value);
  const apply = () => {
    context.value = JSON.parse(print(value ?? new Map()));
    change(context.value);
  };
  return html`<details class="options">
    <summary>Host context</summary>
    <div class="editor">
      <${JsonEditor}
        id="app-context"
        label="Fields of the host context as JSON"
        value=${value}
        set=${set}
        rows=${3} />
      <div class="actions">
        <button disabled=${Boolean(draft)} onClick=${apply}>Send to the view</button>
        <span class="hint"
          >Such as {"locale": "de-CH", "containerDimensions": {"maxHeight": 400}}</span
        >
      </div>
    </div>
  </details>`;
}

function Policy({ shown }) {
  const { origins, permissions } = shown;
  const reaches = origins.length ? `reaches ${origins.join(", ")}` : "reaches no other site";
  const uses = permissions.length ? `, may use ${permissions.join(", ")}` : "";
  return html`<details class="options">
    <summary><${Text} max=${200}>${`Policy: ${reaches}${uses}`}<//></summary>
    <code><${Text} block=${true}>${shown.policy.replaceAll("; ", ";\n")}<//></code>
  </details>`;
}

function Message({ event }) {
  const [open, setOpen] = useState(false);
  const message = event.more ? {} : JSON.parse(event.text);
  const isOut = event.direction === "to_view";
  const link = message?.method === "ui/open-link" ? message.params?.url : undefined;
  const name = message?.method ?? (message?.error ? "error" : "reply");
  return html`<li>
    <button class="fold" aria-expanded=${open} onClick=${() => setOpen(!open)}>
      <span class=${isOut ? "out" : "in"}>${isOut ? "→ to the view" : "← from the view"}</span>
      ${" "}<code><${Text} max=${100}>${name}<//></code>
      ${message?.id !== undefined && html` <span class="hint"><${Text} max=${20}>${String(message.id)}<//></span>`}
    </button>
    ${typeof link === "string" && html`<${Link} href=${link} />`}
    ${open && html`<${JsonText} text=${event.text} />`}
    ${open && event.more && html`<p class="hint">The message is too long to be shown whole.</p>`}
  </li>`;
}

function Messages() {
  const violations = events.value.filter((event) => event.violation);
  const problems = events.value.filter((event) => event.problem);
  const messages = events.value.filter((event) => event.direction);
  return html`${problems.slice(-1).map((one) => html`<p class="failure error"><${Text} max=${1000}>${one.problem}<//></p>`)}
    ${
      violations.length > 0 &&
      html`<section>
        <h3>Blocked by the policy <span class="count">${violations.length}</span></h3>
        <ul class="plain" aria-label="Policy violations">
          ${violations.slice(-MAX_SHOWN).map(
            ({ n, violation: one }) =>
              html`<li key=${n} class="meta-line">
                <span class="tag bad"><${Text} max=${60}>${one.directive}<//></span>
                <code><${Text} max=${300}>${one.blocked}<//></code>
                ${one.line > 0 && html`<span class="hint">line ${one.line}</span>`}
              </li>`,
          )}
        </ul>
      </section>`
    }
    <section>
      <div class="bar">
        <h3>Messages <span class="count">${messages.length}</span></h3>
        <span class="grow"></span>
        <button class="quiet" onClick=${() => (events.value = [])}>Clear</button>
      </div>
      <ul class="plain app-messages" aria-label="Messages of the view">
        ${messages.slice(-MAX_SHOWN).map((event) => html`<${Message} key=${event.n} event=${event} />`)}
      </ul>
      ${!messages.length && html`<p class="empty">The view has sent nothing yet.</p>`}
    </section>`;
}

export function List() {
  const rows = tools();
  return html`<${VirtualList}
      id="apps"
      label="Apps"
      rows=${rows}
      height=${ROW}
      keyOf=${nameOf}
      selected=${chosen()}
      onSelect=${(tool) => (selection.value = { ...selection.value, apps: nameOf(tool) })}
      onOpen=${(tool) => openPanel("apps", nameOf(tool))}
      render=${(tool) => html`<span class="name"><${Text} max=${160}>${labelOf("tools", tool)}<//></span>`} />
    ${!rows.length && html`<p class="empty pad">No tool of this server has a view.</p>`}`;
}

function App({ tool }) {
  const name = nameOf(tool);
  const shown = view.value?.tool === name ? view.value : null;
  const draft = findDraft(draftOf(name));
  const isOpen = state.value.status === "open";
  useEffect(() => {
    if (isOpen && !view.value && sessionStorage.getItem(SHOWN) === name) reopen(name);
  }, [isOpen]);
  const isOff = Boolean(draft) || !isOpen;
  return html`<article class="item">
    <header class="item-head">
      <h2>
        <code><${Text} max=${300}>${labelOf("tools", tool)}<//></code>
      </h2>
      <span class="title hint"><${Text} max=${200}>${uriOf(tool)}<//></span>
    </header>
    ${typeof tool.description === "string" && html`<p class="description"><${Text} max=${900}>${tool.description}<//></p>`}
    <${Form}
      id="app-arguments"
      schema=${tool.inputSchema ?? true}
      value=${draftOf(name)}
      set=${(value) => setDraft(name, value)} />
    <div class="bar">
      <button class="primary" data-key="c" disabled=${isOff} onClick=${() => show(name, false)}>
        Call and show <kbd>c</kbd>
      </button>
      <button disabled=${isOff || !shown} onClick=${() => show(name, true)}>
        Show the result again
      </button>
      ${draft && html`<span class="error">${draft.message}</span>`}
    </div>
    <${Controls} />
    <${HostContext} />
    ${shown && html`<${Policy} shown=${shown} />`}
    ${shown && html`<${Frame} key=${shown.app} shown=${shown} />`}
    <${Messages} />
  </article>`;
}

export function Main() {
  const name = chosen();
  const tool = tools().find((one) => nameOf(one) === name);
  const whyNot = snapshot.value.apps?.why_not;
  if (!whyNot && tool) return html`<${App} key=${name} tool=${tool} />`;
  return html`<article class="item">
    <h2>Apps</h2>
    <p class="empty">
      ${whyNot ?? "Tools whose _meta.ui names a ui:// resource have a view, which is shown here."}
    </p>
  </article>`;
}
