/** The wire: one line per message, always visible, and the message that is open. */
import { classes, html, signal, useEffect, useMemo, useRef, useState } from "../html.js";
import { post } from "../api.js";
import { isRecording, openPanel, run, snapshot } from "../store.js";
import { useFocusReturn } from "../keys.js";
import { findExchanges, pin, readFilter, rows, touch, version, whyNoMatch } from "../messages.js";
import { Diff } from "../components/diff.js";
import { JsonBlock, ProtocolMark, tryParse } from "../components/json.js";
import { JsonEditor } from "../components/json_editor.js";
import { Draft, parse, print } from "../components/json_text.js";
import { formatBytes, formatMs } from "../components/result.js";
import { Copy, Text } from "../components/text.js";
import { VirtualList } from "../components/virtual_list.js";

const ROW = 22;
export const filter = signal("");
const open = signal(null); // the number of the open message
const exports = signal(null); // the module, once it is needed

const time = (at) => {
  const date = new Date(at * 1000);
  return `${date.toLocaleTimeString("en-GB")}.${String(date.getMilliseconds()).padStart(3, "0")}`;
};

const titleOf = (row) => row.method ?? (row.kind === "lost" ? "lost message" : "reply");

/** What a request is about: the name of a tool or prompt, or the URI of a resource. */
function subject(row) {
  if (row.kind !== "request" || row.more) return "";
  if (row.about === undefined) {
    const params = tryParse(row.text)?.get("params");
    row.about = params instanceof Map ? String(params.get("name") ?? params.get("uri") ?? "") : "";
  }
  return row.about;
}

function Line({ row }) {
  const isOut = row.direction === "to_server";
  const about = subject(row);
  const tone = row.isError || row.reply?.isError ? "bad" : "";
  return html`<span class="at">${time(row.at)}</span>
    <span class=${isOut ? "out" : "in"} title=${isOut ? "to the server" : "to the client"}>
      ${isOut ? "→" : "←"}<span class="sr">${isOut ? "to the server" : "to the client"}</span>
    </span>
    <span class=${classes("method", row.kind, tone)}>
      ${row.isPinned && "● "}<${Text} max=${80}>${titleOf(row)}<//>
      ${row.reason && html`<span class="kind"><${Text} max=${80}>${row.reason}<//></span>`}
      ${about && html`<span class="kind"><${Text} max=${80}>${about}<//></span>`}
      ${row.kind === "reply" && html`<span class="kind">${row.isError ? "error" : "reply"}</span>`}
    </span>
    <span class="id"><${Text} max=${12}>${row.id ?? ""}<//></span>
    <span class="bytes">${formatBytes(row.bytes)}</span>
    <span class="ms">${row.ms === undefined ? "" : formatMs(row.ms)}</span>`;
}

/** The rows that match the filter. New rows are added without testing the old ones again. */
function useMatching(text) {
  const memo = useMemo(() => ({ test: readFilter(text), from: null, at: 0, found: [] }), [text]);
  const isStable = !/\b(error|ms|pinned|open)\b/.test(text); // a reply or a pin changes old rows
  if (!text.trim()) return rows;
  if (!isStable || memo.from !== rows[0]) Object.assign(memo, { from: rows[0], at: 0, found: [] });
  const added = rows.slice(memo.at).filter(memo.test);
  if (added.length) memo.found = [...memo.found, ...added];
  memo.at = rows.length;
  return memo.found;
}

const wholeText = async (row) => (row.more ? (await post("message", { n: row.n })).text : row.text);

function paramsOf(text) {
  const params = parse(text).get("params") ?? new Map();
  const meta = params instanceof Map ? params.get("_meta") : undefined;
  if (meta instanceof Map) {
    const kept = new Map(
      [...meta].filter(
        ([key]) => key !== "progressToken" && !key.startsWith("io.modelcontextprotocol/"),
      ),
    );
    if (kept.size) params.set("_meta", kept);
    else params.delete("_meta");
  }
  return params;
}

function Editor({ row, close }) {
  const [method, setMethod] = useState(row.method);
  const [params, setParams] = useState(() => paramsOf(row.text));
  const send = async () => {
    const sent = await run("send", { method, params: print(params ?? new Map()) });
    if (sent) close();
  };
  return html`<div class="editor">
    <label
      >Method
      <input class="line" value=${method} onInput=${(event) => setMethod(event.target.value)}
    /></label>
    <${JsonEditor}
      id="edit-params"
      label="Parameters as JSON"
      value=${params}
      set=${setParams}
      rows=${8} />
    <div class="actions">
      <button class="primary" disabled=${params instanceof Draft || !method} onClick=${send}>
        Send
      </button>
      <button onClick=${close}>Close</button>
    </div>
  </div>`;
}

/** The head of an HTTP request and of its response. */
export function HttpHead({ exchange }) {
  const headers = (sent) => (Array.isArray(sent) ? sent : Object.entries(sent ?? {}));
  const table = (title, sent) =>
    html`<h4>${title}</h4>
      <dl class="headers">
        ${headers(sent).map(
          ([name, value]) =>
            html`<dt class=${classes(/^mcp-/i.test(name) && "era")}>
                <${Text} max=${100}>${name}<//>${/^mcp-/i.test(name) && html` <${ProtocolMark} />`}
              </dt>
              <dd><${Text} max=${500}>${value}<//></dd>`,
        )}
      </dl>`;
  return html`<details class="options">
    <summary>HTTP ${exchange.status ?? ""} <${Text} max=${200}>${exchange.error ?? ""}<//></summary>
    <p class="meta-line">${exchange.method} <${Text} max=${500}>${exchange.url}<//></p>
    ${table("Request", exchange.request_headers)} ${table("Response", exchange.response_headers)}
  </details>`;
}

function Message({ title, row }) {
  const [whole, setWhole] = useState(null);
  const more = async () => setWhole(await wholeText(row));
  return html`<${JsonBlock} title=${title} text=${whole ?? row.text} />
    ${row.more && whole === null && html`<button class="more" onClick=${more}>Show the whole message (${formatBytes(row.bytes)})</button>`}`;
}

async function prettyText(row) {
  const text = await wholeText(row);
  const value = tryParse(text);
  return value === undefined ? text : print(value, 2);
}

function MessageDiff({ before, after }) {
  const [found, setFound] = useState({});
  useEffect(() => {
    let isOld = false;
    const show = (next) => isOld || setFound(next);
    Promise.all([before, after].map(prettyText)).then(
      (texts) => show({ texts }),
      (error) => show({ problem: error.message }),
    );
    return () => (isOld = true);
  }, [before.n, after.n]);
  if (found.problem) return html`<p class="error">${found.problem}</p>`;
  return found.texts && html`<${Diff} before=${found.texts[0]} after=${found.texts[1]} />`;
}

function Detail({ row }) {
  const box = useRef(null);
  useFocusReturn(box);
  const [mode, setMode] = useState("");
  const request = row.request ?? row;
  const reply = row.request ? row : row.reply;
  const canSend =
    !isRecording.value &&
    request.method !== undefined &&
    request.direction === "to_server" &&
    !request.more;
  const exchanges = findExchanges(row);
  const other = rows.find((one) => one.isPinned && one !== row);
  const again = () =>
    run("send", { method: request.method, params: print(paramsOf(request.text)) });
  const compare = () =>
    openPanel("compare", { method: request.method, params: print(paramsOf(request.text)) });
  const toggle = (name) => () => setMode(mode === name ? "" : name);
  const openExport = async () => {
    exports.value ??= await import("../components/export.js");
    toggle("export")();
  };
  return html`<section class="detail" aria-label="Message" ref=${box}>
    <div class="bar">
      <h3><${Text} max=${80}>${titleOf(row)}<//></h3>
      <span class="grow"></span>
      <button
        class="quiet icon"
        aria-label="Close the message"
        onClick=${() => (open.value = null)}>
        ×
      </button>
    </div>
    <div class="bar">
      ${canSend && html`<button class="quiet" data-key="r" onClick=${again}>Send again <kbd>r</kbd></button>`}
      ${canSend && html`<button class="quiet" data-key="e" aria-expanded=${mode === "edit"} onClick=${toggle("edit")}>Edit and send <kbd>e</kbd></button>`}
      ${row.kind !== "lost" && html`<button class="quiet" aria-expanded=${mode === "export"} onClick=${openExport}>Export</button>`}
      ${canSend && html`<button class="quiet" onClick=${compare}>Compare</button>`}
      <button class="quiet" aria-pressed=${row.isPinned} onClick=${() => pin(row)}>Pin</button>
      ${other && html`<button class="quiet" aria-pressed=${mode === "diff"} onClick=${toggle("diff")}>Diff with pinned</button>`}
      <${Copy} text=${() => wholeText(row)} />
    </div>
    <div class="detail-body" tabindex="0" role="group" aria-label="Contents of the message">
      ${mode === "edit" && html`<${Editor} row=${request} close=${() => setMode("")} />`}
      ${mode === "export" && html`<${exports.value.Export} request=${request} reply=${reply} read=${wholeText} />`}
      ${mode === "diff" && other && html`<${MessageDiff} before=${other} after=${row} />`}
      ${row.reason && html`<p class="error">Lost: <${Text} max=${1000}>${row.reason}<//></p>`}
      ${mode !== "diff" && request.text && html`<${Message} key=${request.n} title=${request.kind === "request" ? "Request" : "Message"} row=${request} />`}
      ${mode !== "diff" && reply && reply !== request && html`<${Message} key=${reply.n} title="Reply" row=${reply} />`}
      ${exchanges.map((one) => html`<${HttpHead} key=${one.n} exchange=${one} />`)}
    </div>
  </section>`;
}

/** Switch recording on and off; say where the recording is, and why it ended. */
function Recorder() {
  const { on, file, problem } = snapshot.value.recording ?? {};
  if (isRecording.value) return null;
  return html`<button
      class=${classes("record", on && "on")}
      aria-label=${on ? "Stop recording" : undefined}
      onClick=${() => run("record", { on: !on })}>
      ${on ? "Stop" : "Record"}
    </button>
    <span class="record-file hint" role="status">
      ${problem ? html`<span class="error"><${Text} max=${300}>${problem}<//></span>` : file && html`${on ? "Recording to " : "Recorded to "}<${Text} max=${200}>${file}<//>`}
    </span>`;
}

export function Wire() {
  version.value; // renders again when rows change
  const matching = useMatching(filter.value);
  const row = open.value === null ? null : rows.find((one) => one.n === open.value);
  const choose = (one) => (open.value = one.n);
  useEffect(() => touch(), []);
  return html`<div class="wire-head">
      <h2>Wire</h2>
      <input
        type="search"
        class="filter"
        aria-label="Filter messages"
        placeholder="method:tools/call error ms:>500"
        value=${filter.value}
        onInput=${(event) => (filter.value = event.target.value)} />
      <span class="count" aria-live="off">${matching.length.toLocaleString("en")}</span>
      <${Recorder} />
    </div>
    <${VirtualList}
      id="wire"
      label="Messages"
      rows=${matching}
      height=${ROW}
      follow=${true}
      keyOf=${(one) => one.n}
      selected=${open.value ?? undefined}
      onOpen=${choose}
      render=${(one) => html`<${Line} row=${one} />`} />
    ${!matching.length && rows.length > 0 && html`<p class="empty pad"><${Text} max=${300}>${whyNoMatch(filter.value)}<//></p>`}
    ${row && html`<${Detail} key=${row.n} row=${row} />`}`;
}
