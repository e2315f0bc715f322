/** The findings of `dovetail check`, worst first, each linked to its item. */
import { html, signal, useEffect, useRef, useState } from "../html.js";
import { useSwappedFocus } from "../keys.js";
import { openPanel, run, state } from "../store.js";
import { Prose, Text } from "../components/text.js";

const TONES = { error: "bad", warning: "warn", info: "" };
const PANEL_OF = { tool: "tools", resource: "resources", template: "resources", prompt: "prompts" };

const report = signal(null); // {findings, ignored}

async function check(again = false) {
  report.value = (await run("check", { again })) ?? report.value;
}

/** Findings of one item are shown together, in the order in which the first of them comes. */
function group(findings) {
  const groups = new Map();
  for (const one of findings) {
    const key = `${one.where.kind} ${one.where.name ?? ""}`;
    groups.set(key, [...(groups.get(key) ?? []), one]);
  }
  return [...groups];
}

function Ignore({ finding, id, close }) {
  const [reason, setReason] = useState("");
  const { kind, name } = finding.where;
  const send = async (tool) => {
    const fields = { rule: finding.rule };
    if (tool) fields.tool = tool;
    if (reason) fields.reason = reason;
    if (await run("ignore", fields)) {
      close();
      await check();
      document.querySelector(".middle").focus(); // the finding is gone
    }
  };
  return html`<div class="actions">
    <label class="sr" for=${id}>Reason</label>
    <input
      id=${id}
      class="line"
      placeholder="reason (optional)"
      value=${reason}
      onInput=${(event) => setReason(event.target.value)} />
    ${name && html`<button class="primary" onClick=${() => send(name)}>Ignore for this ${kind}</button>`}
    <button onClick=${() => send(null)}>Ignore everywhere</button>
    <button class="quiet" onClick=${close}>Cancel</button>
  </div>`;
}

function Finding({ finding, id }) {
  const [isOpen, setOpen] = useState(false);
  const box = useRef(null);
  useSwappedFocus(box, isOpen);
  return html`<li ref=${box}>
    <div class="meta-line">
      <span class=${`tag ${TONES[finding.level]}`}>${finding.level}</span>
      <strong><code>${finding.rule}</code></strong>
      <${Text} max=${500}>${finding.message}<//>
      ${finding.where.path && html`<code class="hint"><${Text} max=${200}>${finding.where.path}<//></code>`}
      ${
        !isOpen &&
        html`<button
          class="quiet"
          aria-label=${`Ignore ${finding.rule}`}
          onClick=${() => setOpen(true)}>
          Ignore…
        </button>`
      }
    </div>
    <p class="field-note"><${Prose}>${finding.why} ${finding.fix}<//></p>
    ${isOpen && html`<${Ignore} finding=${finding} id=${id} close=${() => setOpen(false)} />`}
  </li>`;
}

function Group({ findings }) {
  const { kind, name } = findings[0].where;
  const panel = PANEL_OF[kind];
  return html`<section>
    <h3>
      ${
        panel && name
          ? html`<button class="link" onClick=${() => openPanel(panel, name)}>
              <${Text} max=${120}>${name}<//>
            </button>`
          : "Server"
      }
      ${name && html` <span class="hint">${kind}</span>`}
    </h3>
    <ul class="plain">
      ${findings.map((one, at) => html`<${Finding} key=${`${one.rule} ${one.where.path} ${at}`} finding=${one} id=${`reason-${kind}-${name ?? ""}-${at}`} />`)}
    </ul>
  </section>`;
}

function summary({ findings, ignored }) {
  const count = (level) => findings.filter((one) => one.level === level).length;
  const words = [
    [count("error"), "error", "errors"],
    [count("warning"), "warning", "warnings"],
    [count("info"), "info", "info"],
    [ignored, "ignored", "ignored"],
  ];
  return (
    words
      .filter(([number]) => number)
      .map(([number, one, many]) => `${number} ${number === 1 ? one : many}`)
      .join(", ") || "No problems"
  );
}

export function Main() {
  const isOpen = state.value.status === "open";
  useEffect(() => {
    if (isOpen) check();
  }, [isOpen, state.value.connection]);
  const found = report.value;
  return html`<article class="item">
    <header class="item-head">
      <h2>Checks</h2>
      <span class="hint" role="status">${found && summary(found)}</span>
      <span class="grow"></span>
      <button disabled=${!isOpen} onClick=${() => check(true)}>Check again</button>
    </header>
    ${!found && html`<p class="empty">${isOpen ? "Checking…" : "The server is not connected."}</p>`}
    ${found && group(found.findings).map(([key, all]) => html`<${Group} key=${key} findings=${all} />`)}
  </article>`;
}
