/** A comparison: a table of the differences, and below it the result and the messages of each column. */
import { classes, html, signal, useState } from "../html.js";
import {
  countProtocol,
  findRows,
  groupRows,
  isOfProtocol,
  plural,
  summarise,
  toMarkdown,
} from "./comparison_text.js";
import { HttpHead } from "../panels/wire.js";
import { JsonText, ProtocolMark, tryParse } from "./json.js";
import { formatBytes, formatMs } from "./result.js";
import { Copy, Text } from "./text.js";

const STEP = 100;
const TONES = { lost: "bad", changed: "warn", added: "ok", failed: "bad", running: "warn" };

const hidden = signal(new Set()); // labels of columns
const only = signal(null); // the label of the column that a narrow screen shows

const toneOf = (words) => TONES[/[a-z]+/.exec(words)?.[0]] ?? "";

function Head({ column }) {
  const words = summarise(column);
  return html`<span class="revision">${column.label}</span>
    <span class=${`tag ${toneOf(words)}`}>${words}</span>${" "}
    ${column.ms !== undefined && html`<span class="hint">${formatMs(column.ms)}</span>`}
    ${countProtocol(column) && html`<span class="hint protocol">${countProtocol(column)}</span>`}`;
}

function Cell({ row, column }) {
  if (column.result === undefined) return html`<span class="hint">no result</span>`;
  if (column.isBase) {
    if (row.rows) return html`<span class="hint">${plural(row.rows.length, "value")}</span>`;
    return html`<code><${Text} max=${60}>${row.base ?? "–"}<//></code>`;
  }
  const found = row.cells.get(column.label);
  if (!found) return html`<span class="hint">same</span>`;
  return html`<span class=${`tag ${TONES[found.kind]}`}>${found.kind}</span>${" "}
    ${found.before !== undefined && html`<code class="narrow"><${Text} max=${60}>${found.before}<//>${found.after !== undefined && " → "}</code>`}
    ${found.after !== undefined && html`<code><${Text} max=${60}>${found.after}<//></code>`}`;
}

function Row({ row, columns, depth = 0 }) {
  const [isOpen, setOpen] = useState(false);
  return html`<tr>
      <th scope="row" class=${classes(depth && "inner")}>
        ${
          row.rows
            ? html`<button class="fold" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>
                <code><${Text} max=${200}>${row.path}<//></code
                >${" "}<span class="count">${plural(row.rows.length, "place")}</span>
              </button>`
            : html`<code><${Text} max=${200}>${row.path}<//></code
                >${" "} ${isOfProtocol(row) && html`<${ProtocolMark} />`}`
        }
      </th>
      ${columns.map((column) => html`<td class=${classes(isOther(column, columns) && "other")}><${Cell} row=${row} column=${column} /></td>`)}
    </tr>
    ${isOpen && row.rows.slice(0, STEP).map((one) => html`<${Row} key=${one.path} row=${one} columns=${columns} depth=${1} />`)}`;
}

/** Whether a narrow screen leaves a column out: it shows one at a time. */
function isOther(column, columns) {
  const shown = columns.find((one) => one.label === only.value) ?? columns.at(-1);
  return column !== shown;
}

function Table({ columns }) {
  const [limit, setLimit] = useState(STEP);
  const rows = groupRows(findRows(columns));
  const isRunning = columns.some((one) => one.status === "running");
  const hasAll = columns.every((one) => one.result !== undefined);
  if (columns.length < 2) return null;
  if (!rows.length && !isRunning && hasAll)
    return html`<p class="empty">No differences: the result is the same in every column.</p>`;
  return html`<div class="table" tabindex="0" role="region" aria-label="Differences">
    <table class="differences">
      <thead>
        <tr>
          <th scope="col"><span class="sr">Path</span></th>
          ${columns.map(
            (column) =>
              html`<th scope="col" class=${classes(isOther(column, columns) && "other")}>
                <${Head} column=${column} />
              </th>`,
          )}
        </tr>
      </thead>
      <tbody>
        ${rows.slice(0, limit).map((row) => html`<${Row} key=${row.path} row=${row} columns=${columns} />`)}
      </tbody>
    </table>
    ${rows.length > limit && html`<button class="quiet more" onClick=${() => setLimit(limit * 4)}>Show more (${rows.length - limit} hidden)</button>`}
  </div>`;
}

/** A part that is in the document only while it is open. */
function Fold({ title, isOpen: isOpenFirst = false, children }) {
  const [isOpen, setOpen] = useState(isOpenFirst);
  return html`<details
    class="options"
    open=${isOpen}
    onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>${title}</summary>
    ${isOpen && children()}
  </details>`;
}

function Message({ message }) {
  const isOut = message.direction === "to_server";
  const parsed = tryParse(message.text);
  const method = parsed instanceof Map ? parsed.get("method") : undefined;
  const title = html`<span class=${isOut ? "out" : "in"}>${isOut ? "→" : "←"}</span
    ><span class="sr">${isOut ? "to the server" : "to the client"}</span> ${" "}
    <code><${Text} max=${60}>${method ?? "reply"}<//></code>
    <span class="hint"> ${formatBytes(message.bytes)}</span>`;
  return html`<li>
    <${Fold} title=${title}
      >${() =>
        html`<${JsonText} text=${message.text} />
          ${message.http?.map((one, at) => html`<${HttpHead} key=${at} exchange=${one} />`)}`}<//
    >
  </li>`;
}

function Failure({ error, stderr }) {
  return html`<div class="failure">
    <strong
      >${error.code !== undefined && `Error ${error.code}: `}<${Text} max=${1000}
        >${error.message ?? ""}<//
      ></strong
    >
    ${stderr && html`<pre tabindex="0"><${Text} max=${2000}>${stderr}<//></pre>`}
  </div>`;
}

function Column({ column, columns }) {
  const { label, error, stderr, result, messages = [], left_out: leftOut } = column;
  return html`<section
    class=${classes("compared", isOther(column, columns) && "other")}
    aria-label=${label}>
    <h3 class="meta-line"><${Head} column=${column} /></h3>
    ${error && html`<${Failure} error=${error} stderr=${stderr} />`}
    ${
      result !== undefined &&
      html`<${Fold} title=${`Result, ${formatBytes(result.length)}`} isOpen=${true}
        >${() => html`<${JsonText} text=${result} />`}<//
      >`
    }
    ${
      messages.length > 0 &&
      html`<${Fold} title=${plural(messages.length, "message")}
        >${() =>
          html`<ul class="plain">
            ${messages.map((one, at) => html`<${Message} key=${at} message=${one} />`)}
            ${leftOut > 0 && html`<li class="hint">and ${leftOut.toLocaleString("en")} more</li>`}
          </ul>`}<//
      >`
    }
  </section>`;
}

function Toolbar({ method, params, columns, shown }) {
  const toggle = (label) => () => {
    const next = new Set(hidden.value);
    if (!next.delete(label)) next.add(label);
    hidden.value = next;
  };
  const others = columns.filter((one) => !one.isBase); // the base is always shown
  const asJson = () => JSON.stringify({ method, params, columns: shown }, null, 2);
  return html`<div class="bar">
    ${
      others.length > 0 &&
      html`<span class="segments wide" role="group" aria-label="Columns">
        ${others.map(
          ({ label }) =>
            html`<button aria-pressed=${!hidden.value.has(label)} onClick=${toggle(label)}>
              ${label}
            </button>`,
        )}
      </span>`
    }
    <label class="narrow"
      >Column${" "}
      <select
        value=${(shown.find((one) => !isOther(one, shown)) ?? shown.at(-1))?.label}
        onChange=${(event) => (only.value = event.target.value)}>
        ${shown.map(({ label }) => html`<option value=${label}>${label}</option>`)}
      </select>
    </label>
    <span class="grow"></span>
    <${Copy} label="Copy as Markdown" text=${() => toMarkdown(method, params, shown)} />
    <${Copy} label="Copy as JSON" text=${asJson} />
  </div>`;
}

/** Args: `method` and `params` of the request; `columns` (see comparison_text.js). */
export function Comparison({ method, params, columns }) {
  const shown = columns.filter((one) => one.isBase || !hidden.value.has(one.label));
  return html`<${Toolbar} method=${method} params=${params} columns=${columns} shown=${shown} />
    <${Table} columns=${shown} />
    <div class="compared-columns" tabindex="0" role="region" aria-label="Results and messages">
      ${shown.map((one) => html`<${Column} key=${one.label} column=${one} columns=${shown} />`)}
    </div>`;
}
