/** What a call returned: its content blocks, its structured content, or its error. */
import { html, signal, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { isRecording, labelOf, lastLogAt, openPanel, state } from "../store.js";
import { Json, JsonBlock, tryParse } from "./json.js";
import { print, text } from "./json_text.js";
import { Copy, Link, Text } from "./text.js";

const MAX_ROWS = 100;
const MAX_COLUMNS = 12;
const SAFE_TYPE = /^(image|audio)\/[\w.+-]+$/;
const BASE64 = /^[A-Za-z0-9+/\s]*(?:=\s*){0,2}$/;
const STATUS = { running: "running", done: "done", error: "failed", cancelled: "cancelled" };

/** The number of bytes that base64 text stands for. */
const sizeOf = (data) =>
  Math.max(
    0,
    Math.floor((data.length * 3) / 4) - (data.endsWith("==") ? 2 : data.endsWith("=") ? 1 : 0),
  );

function Media({ block, kind }) {
  const type = text(block.get("mimeType"));
  const data = text(block.get("data"));
  if (!SAFE_TYPE.test(type) || !type.startsWith(kind))
    return html`<p class="error">Not shown: the type is <${Text} max=${80}>${type}<//></p>`;
  if (!BASE64.test(data)) return html`<p class="error">Not shown: the data is not base64.</p>`;
  const source = `data:${type};base64,${data}`;
  const size = `${type}, ${sizeOf(data).toLocaleString("en")} bytes`;
  return kind === "image"
    ? html`<figure>
        <img src=${source} alt="" />
        <figcaption>${size}</figcaption>
      </figure>`
    : html`<figure>
        <audio controls src=${source}></audio>
        <figcaption>${size}</figcaption>
      </figure>`;
}

function TextBlock({ block }) {
  const content = text(block.get("text"));
  const [asJson, setAsJson] = useState(true);
  const value = /^\s*[[{]/.test(content) ? tryParse(content) : undefined;
  if (value === undefined) return html`<${Text} block=${true}>${content}<//>`;
  return html`<button class="quiet" aria-pressed=${asJson} onClick=${() => setAsJson(!asJson)}>
      as JSON
    </button>
    ${asJson ? html`<${Data} value=${value} />` : html`<${Text} block=${true}>${content}<//>`}`;
}

/** Save what a server sent as a file. Its type is none that a browser shows. */
function download(uri, data, isText) {
  const bytes = isText ? data : Uint8Array.from(atob(data), (char) => char.charCodeAt(0));
  const url = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = url;
  const name = uri.split("/").findLast(Boolean) ?? "";
  link.download = name.slice(-100).replace(/[^\w.-]/g, "_") || "resource";
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** The contents of a resource, by their type. HTML is shown as text. */
export function ResourceContents({ contents }) {
  const uri = text(contents.get("uri"));
  const type = text(contents.get("mimeType"));
  const isText = contents.has("text");
  const data = text(contents.get(isText ? "text" : "blob"));
  const media = !isText && SAFE_TYPE.exec(type);
  const [size, canSave] = useMemo(
    () => (isText ? [new Blob([data]).size, true] : [sizeOf(data), BASE64.test(data)]),
    [data],
  );
  return html`<div class="meta-line">
      <code><${Text} max=${300}>${uri}<//></code>
      ${type && html`<span class="tag"><${Text} max=${80}>${type}<//></span>`}
      <span class="hint">${formatBytes(size)}</span>
      <span class="grow"></span>
      <span>
        <${Copy} text=${data} label=${isText ? "Copy text" : "Copy base64"} />
        ${canSave && html`<button class="quiet" onClick=${() => download(uri, data, isText)}>Download</button>`}
      </span>
    </div>
    ${isText && html`<${TextBlock} block=${contents} />`}
    ${
      media &&
      html`<${Media} block=${new Map(Object.entries({ data, mimeType: type }))} kind=${media[1]} />`
    }
    ${!isText && !media && html`<p class="empty">${canSave ? "Binary data, which the page does not show." : "The data is not base64."}</p>`}`;
}

function Resource({ block }) {
  const inner = block.get("resource") instanceof Map ? block.get("resource") : new Map();
  return html`<${ResourceContents} contents=${inner} />`;
}

function ResourceLink({ block }) {
  const uri = text(block.get("uri"));
  return html`<p class="meta-line">
    <strong><${Text} max=${200}>${text(block.get("title") ?? block.get("name"))}<//></strong>
    <${Link} href=${uri} />
    <button onClick=${() => openPanel("resources", uri)}>Open in Resources</button>
  </p>`;
}

const BLOCKS = {
  text: TextBlock,
  image: ({ block }) => html`<${Media} block=${block} kind="image" />`,
  audio: ({ block }) => html`<${Media} block=${block} kind="audio" />`,
  resource: Resource,
  resource_link: ResourceLink,
};

/** The name, the title and the description of an item; what is between goes after the title. */
export function ItemHead({ list, item, children }) {
  const { title, description } = item;
  return html`<header class="item-head">
      <${Icon} item=${item} />
      <h2>
        <code><${Text} max=${300}>${labelOf(list, item)}<//></code>
      </h2>
      ${title != null && html`<span class="title"><${Text} max=${200}>${text(title)}<//></span>`}
      ${children}
    </header>
    ${typeof description === "string" && html`<p class="description"><${Text} max=${900}>${description}<//></p>`}`;
}

/** A content block of any type. */
export function Block({ block }) {
  const type = block instanceof Map ? block.get("type") : undefined;
  const Shown = Object.hasOwn(BLOCKS, type) ? BLOCKS[type] : null;
  return html`<div class="content">
    <span class="tag"><${Text} max=${40}>${text(type)}<//></span>
    ${Shown ? html`<${Shown} block=${block} />` : html`<${Json} value=${block} />`}
  </div>`;
}

/** Return the list of records in a value, if it is one, or contains exactly one. */
function findRecords(value) {
  const isList = (one) =>
    Array.isArray(one) && one.length > 1 && one.every((row) => row instanceof Map && row.size);
  if (isList(value)) return value;
  if (!(value instanceof Map) || value.size > 3) return null;
  const found = [...value.values()].filter(isList);
  return found.length === 1 ? found[0] : null;
}

function Table({ records }) {
  const columns = [...new Set(records.slice(0, MAX_ROWS).flatMap((row) => [...row.keys()]))].slice(
    0,
    MAX_COLUMNS,
  );
  return html`<div class="table" tabindex="0" role="group" aria-label="Table of records">
    <table>
      <thead>
        <tr>
          ${columns.map((key) => html`<th scope="col"><${Text} max=${60}>${key}<//></th>`)}
        </tr>
      </thead>
      <tbody>
        ${records.slice(0, MAX_ROWS).map(
          (row) =>
            html`<tr>
              ${columns.map((key) => html`<td class=${typeof row.get(key)}><${Text} max=${200}>${text(row.get(key))}<//></td>`)}
            </tr>`,
        )}
      </tbody>
    </table>
    ${records.length > MAX_ROWS && html`<p class="empty">${MAX_ROWS} of ${records.length.toLocaleString("en")} records. See JSON for all.</p>`}
  </div>`;
}

/** A value as a table if it is a list of records, otherwise as JSON. */
export function Data({ value }) {
  const records = findRecords(value);
  const [asTable, setAsTable] = useState(true);
  if (!records) return html`<${Json} value=${value} />`;
  return html`<button class="quiet" aria-pressed=${asTable} onClick=${() => setAsTable(!asTable)}>
      as a table
    </button>
    ${asTable ? html`<${Table} records=${records} />` : html`<${Json} value=${value} />`}`;
}

function Progress({ progress }) {
  const { progress: done, total, message } = progress;
  return html`<p class="progress">
    <progress
      aria-label="Progress"
      value=${total ? done : undefined}
      max=${total || undefined}></progress>
    ${total ? `${done} of ${total}` : done} <${Text} max=${300}>${message ?? ""}<//>
  </p>`;
}

function Failure({ error }) {
  return html`<div class="failure">
    <strong
      >${error.code !== undefined && `Error ${error.code}: `}<${Text}
        >${error.message ?? ""}<//
      ></strong
    >
    ${error.data !== undefined && html`<${JsonBlock} title="Data" text=${error.data} />`}
  </div>`;
}

function Content({ result }) {
  const value = tryParse(result);
  const blocks =
    value instanceof Map && Array.isArray(value.get("content")) ? value.get("content") : null;
  const structured = value instanceof Map ? value.get("structuredContent") : undefined;
  if (!blocks) return html`<${JsonBlock} title="Result" text=${result} />`;
  return html`${structured !== undefined && html`<div class="content"><span class="tag">structured</span><${Data} value=${structured} /></div>`}
  ${blocks.slice(0, MAX_ROWS).map((block) => html`<${Block} block=${block} />`)}
  ${blocks.length > MAX_ROWS && html`<p class="empty">${MAX_ROWS} of ${blocks.length} blocks</p>`}
  ${!blocks.length && structured === undefined && html`<p class="empty">The result has no content.</p>`}`;
}

const away = signal([]); // elements that are watched, and out of view

/** Watch whether an element is in view: if it is not, the bar of the form shows the way to it. */
export function useWatched(box) {
  useLayoutEffect(() => {
    const element = box.current;
    const leave = () => (away.value = away.value.filter((one) => one !== element));
    const look = (entries) => {
      leave();
      if (!entries.at(-1).isIntersecting) away.value = [...away.value, element];
    };
    const observer = new IntersectionObserver(look, { rootMargin: "-20px" });
    observer.observe(element);
    return () => {
      observer.disconnect();
      leave();
    };
  }, []);
}

const statusOf = (call) =>
  call.status === "error" && call.result ? "tool error" : STATUS[call.status];

/** In the bar of a form: the way to an open question and to the result, if they are out of view. */
export function Away({ call }) {
  const card = away.value.find((one) => one.matches(".card"));
  const result = away.value.find((one) => !one.matches(".card"));
  const answer = () => {
    card.scrollIntoView();
    card.querySelector("input, textarea, select, button")?.focus();
  };
  return html`${card && html`<button class="quiet" onClick=${answer}><span class="pill running">The server asks…</span> ↑</button>`}
  ${
    call &&
    result &&
    html`<button class="quiet" onClick=${() => result.scrollIntoView()}>
      <span class=${`pill ${call.status}`}>${statusOf(call)}</span>${" "}
      ${call.ms !== undefined && formatMs(call.ms)} ↓
    </button>`
  }`;
}

/**
 * A call: its status, progress and result. Args: `call`; `onCancel()`; `show`, the component for its
 * `result` (default: the content of a tool's result).
 */
export function CallResult({ call, onCancel, show: Shown = Content }) {
  const [isRaw, setRaw] = useState(false);
  const bar = useRef(null);
  useWatched(bar);
  return html`<section class="result" aria-label="Result" data-call=${call.call}>
    <div class="bar" ref=${bar}>
      <h3>Result</h3>
      <span class=${`pill ${call.status}`}>${statusOf(call)}</span>
      ${call.connection < state.value.connection && html`<span class="tag warn">before the restart</span>`}
      ${call.ms !== undefined && html`<span class="hint">${formatMs(call.ms)}</span>`}
      ${call.result && html`<span class="hint">${formatBytes(call.result.length)}</span>`}
      <span class="grow"></span>
      ${call.status === "running" && html`<button onClick=${onCancel}>Cancel</button>`}
      ${call.result && html`<button class="quiet" aria-pressed=${isRaw} onClick=${() => setRaw(!isRaw)}>Raw</button><${Copy} text=${call.result} />`}
    </div>
    ${call.status === "running" && call.progress && html`<${Progress} progress=${call.progress} />`}
    ${call.error && html`<${Failure} error=${call.error} />`}
    ${call.status === "error" && lastLogAt.value >= call.started && html`<p class="hint">The server wrote more to its <button class="link" onClick=${() => openPanel("log")}>log</button>.</p>`}
    ${call.result && (isRaw ? html`<${JsonBlock} title="As sent" text=${call.result} />` : html`<${Shown} key=${call.call} result=${call.result} />`)}
  </section>`;
}

/** What needs a server: it is left out if the page shows a recording. */
export const WithServer = ({ children }) => (isRecording.value ? null : children);

const ICON = /^data:image\/(png|jpeg|gif|webp|svg\+xml);base64,[\w+/]+=*$/;
const MAX_ICON_CHARS = 100000;

/** The first icon that the item contains. Icons at a URL are not loaded, because the page asks no other host. */
export function Icon({ item: { icons } }) {
  const sources = (Array.isArray(icons) ? icons : []).map((one) => one?.get?.("src"));
  const isShown = (one) =>
    typeof one === "string" && one.length <= MAX_ICON_CHARS && ICON.test(one);
  const src = sources.find(isShown);
  return src && html`<img src=${src} alt="" width="20" height="20" />`;
}

/** An item of a list, as the server sent it. */
export const Definition = ({ item }) =>
  html`<details class="options" open=${isRecording.value}>
    <summary>Definition</summary>
    <${JsonBlock} title="As listed" text=${print(new Map(Object.entries(item)))} />
  </details>`;

export const formatMs = (ms) =>
  ms < 1
    ? "<1 ms"
    : ms < 999.5
      ? `${Math.round(ms)} ms`
      : `${(ms / 1000).toFixed(ms < 9995 ? 2 : 1)} s`;
export const formatBytes = (bytes) =>
  bytes < 1000
    ? `${bytes} B`
    : bytes < 1e6
      ? `${(bytes / 1000).toFixed(bytes < 99950 ? 1 : 0)} kB`
      : `${(bytes / 1e6).toFixed(1)} MB`;
