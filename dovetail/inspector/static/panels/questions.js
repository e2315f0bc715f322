/** Questions of the server: open ones are cards above every panel, never a dialog in front of it. */
import { html, useRef, useState } from "../html.js";
import { useFocusReturn } from "../keys.js";
import { answered, questions, run, snapshot } from "../store.js";
import { Form } from "../components/form.js";
import { tryParse } from "../components/json.js";
import { findDraft, print } from "../components/json_text.js";
import { Block, useWatched } from "../components/result.js";
import { Link, Text } from "../components/text.js";

const ACTIONS = { accept: "answered", decline: "declined", cancel: "cancelled" };
const TITLES = {
  form: "The server asks for input",
  url: "The server asks you to open a page",
  sampling: "The server asks a model",
  roots: "The server asks for your folders",
};

function FormBody({ params, id, value, set }) {
  return html`<p class="description"><${Text} max=${2000}>${params.get("message") ?? ""}<//></p>
    <${Form}
      id=${`q${id}`}
      title="Answer"
      schema=${params.get("requestedSchema") ?? true}
      value=${value}
      set=${set} />`;
}

function UrlBody({ params }) {
  return html`<p class="description"><${Text} max=${2000}>${params.get("message") ?? ""}<//></p>
    <p class="meta-line"><${Link} href=${String(params.get("url") ?? "")} /></p>`;
}

function SamplingBody({ params, id, value, set }) {
  const messages = Array.isArray(params.get("messages")) ? params.get("messages") : [];
  const system = params.get("systemPrompt");
  return html`${system && html`<p class="description"><strong>System</strong> <${Text} max=${2000}>${system}<//></p>`}
    ${messages.slice(0, 50).map((message) => {
      const blocks = message instanceof Map ? [message.get("content")].flat() : [];
      return html`<div class="chat">
        <strong><${Text} max=${40}>${message.get?.("role") ?? ""}<//></strong>
        ${blocks.map((block) => html`<${Block} block=${block} />`)}
      </div>`;
    })}
    <label class="label" for=${`q${id}`}>Answer of the model</label>
    <textarea
      id=${`q${id}`}
      class="line"
      rows="2"
      placeholder="empty: the stub model answers"
      value=${value ?? ""}
      onInput=${(event) => set(event.target.value || undefined)}></textarea>`;
}

function RootsBody() {
  return html`<p class="description">The answer is the folders that are ticked.</p>
    <${Roots} />`;
}

/** The folders of `--root`: the server gets those that are ticked. */
function Roots() {
  const { roots = [], allowed_roots: allowed = [] } = snapshot.value;
  if (!allowed.length)
    return html`<p class="empty">None. Start the command with <code>--root DIR</code>.</p>`;
  const toggle = (root) =>
    run("set_roots", { roots: allowed.filter((one) => roots.includes(one) !== (one === root)) });
  return html`<ul class="plain" aria-label="Folders">
    ${allowed.map(
      (root) =>
        html`<li key=${root}>
          <label>
            <input type="checkbox" checked=${roots.includes(root)} onChange=${() => toggle(root)} />
            <code><${Text}>${root}<//></code>
          </label>
        </li>`,
    )}
  </ul>`;
}

const BODIES = { form: FormBody, url: UrlBody, sampling: SamplingBody, roots: RootsBody };

function Card({ question }) {
  const box = useRef(null);
  useFocusReturn(box);
  useWatched(box);
  const [value, set] = useState(undefined);
  const [always, setAlways] = useState(false);
  const id = question.question;
  const Body = BODIES[question.form];
  const params = tryParse(question.params) ?? new Map();
  const draft = findDraft(value);
  const answer = (action) => {
    const fields = { question: id, action };
    if (always) fields.always = true;
    if (action === "accept" && question.form === "form") fields.content = print(value ?? new Map());
    if (action === "accept" && question.form === "sampling" && value) fields.content = print(value);
    run("answer", fields);
  };
  return html`<section class="card" ref=${box} aria-labelledby=${`q${id}-head`}>
    <h2 id=${`q${id}-head`}>${TITLES[question.form]}</h2>
    <${Body} params=${params} id=${id} value=${value} set=${set} />
    <div class="actions">
      <button class="primary" disabled=${Boolean(draft)} onClick=${() => answer("accept")}>
        ${question.form === "url" ? "I opened it" : "Answer"}
      </button>
      <button onClick=${() => answer("decline")}>Decline</button>
      <button onClick=${() => answer("cancel")}>Cancel</button>
      <label
        ><input
          type="checkbox"
          checked=${always}
          onChange=${(event) => setAlways(event.target.checked)} />
        Always answer this way</label
      >
      ${draft && html`<span class="error">${draft.message}</span>`}
    </div>
  </section>`;
}

/** The open questions. */
export function Cards() {
  return questions.value.map((one) => html`<${Card} key=${one.question} question=${one} />`);
}

export function Main() {
  const rules = snapshot.value.always ?? [];
  return html`<article class="item">
    <header class="item-head"><h2>Questions</h2></header>
    ${!questions.value.length && html`<p class="empty">No question is open. Open questions are shown at the top of every panel.</p>`}
    <h3>Folders for the server</h3>
    <${Roots} />
    <h3>Always answered</h3>
    ${!rules.length && html`<p class="empty">None. Tick "Always answer this way" on a question.</p>`}
    <ul class="plain">
      ${rules.map(
        (rule) =>
          html`<li>
            <span class="tag">${rule.form}</span> <strong>${ACTIONS[rule.action]}</strong>${" "}
            <${Text} max=${200}>${rule.message ?? ""}<//>
            <button class="quiet" onClick=${() => run("forget_answer", { key: rule.key })}>
              Forget
            </button>
          </li>`,
      )}
    </ul>
    <h3>Answered</h3>
    ${!answered.value.length && html`<p class="empty">None yet.</p>`}
    <ul class="plain">
      ${answered.value.slice(-100).map((one) => {
        const params = tryParse(one.params) ?? new Map();
        return html`<li>
          <span class="tag">${one.form}</span> <strong>${ACTIONS[one.how] ?? one.how}</strong>${" "}
          <${Text} max=${200}>${params.get?.("message") ?? ""}<//>
        </li>`;
      })}
    </ul>
  </article>`;
}
