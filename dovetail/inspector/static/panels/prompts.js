/** Prompts: the list, arguments with completion, and the messages as a chat. */
import { classes, html, signal, useMemo } from "../html.js";
import { keyOf, labelOf, lastCallOf, lists, openedKey, openPanel, run, state } from "../store.js";
import { CompletedFields, filled, makeDrafts } from "../components/completion.js";
import { JsonBlock, tryParse } from "../components/json.js";
import { text } from "../components/json_text.js";
import { Away, Block, CallResult, Definition, ItemHead, WithServer } from "../components/result.js";
import { Copy, Text, visible } from "../components/text.js";
import { FilteredList, filterItems } from "../components/virtual_list.js";

const MAX_MESSAGES = 100;

const filter = signal("");
const drafts = makeDrafts("prompt");
const nameOf = (prompt) => keyOf("prompts", prompt);

export function List() {
  const prompts = lists.value.prompts;
  const words = filter.value.toLowerCase();
  const rows = useMemo(() => filterItems(prompts, words), [prompts, words]);
  const row = (one) =>
    html`<span class="name"><${Text} max=${160}>${labelOf("prompts", one)}<//></span>
      ${one.title !== undefined && html`<span class="hint"><${Text} max=${80}>${text(one.title)}<//></span>`}`;
  return html`<${FilteredList}
    id="prompts"
    noun="prompt"
    filter=${filter}
    rows=${rows}
    keyOf=${nameOf}
    selected=${openedKey("prompts")}
    render=${row} />`;
}

/** The text of a message: of its text blocks, or else the JSON of a block. */
function plainText(message) {
  const blocks = [message.get("content")].flat();
  const of = (block) =>
    block instanceof Map && block.has("text") ? text(block.get("text")) : text(block);
  return `${text(message.get("role"))}: ${blocks.map(of).join("\n")}`;
}

function Message({ message }) {
  const role = text(message.get("role"));
  return html`<li class=${classes("chat", role === "assistant" && "assistant")}>
    <strong class="role"><${Text} max=${40}>${role}<//></strong>
    ${[message.get("content")].flat().map((block) => html`<${Block} block=${block} />`)}
  </li>`;
}

/** What prompts/get returned. */
function Messages({ result }) {
  const value = useMemo(() => tryParse(result), [result]);
  const sent = value instanceof Map ? value.get("messages") : undefined;
  if (!Array.isArray(sent)) return html`<${JsonBlock} title="Result" text=${result} />`;
  const messages = sent.filter((one) => one instanceof Map);
  const about = value.get("description");
  return html`<div class="meta-line">
      ${typeof about === "string" && html`<p class="description"><${Text} max=${900}>${about}<//></p>`}
      <span class="grow"></span>
      <${Copy} text=${messages.map(plainText).join("\n\n")} label="Copy messages" />
    </div>
    <ul class="plain chats" aria-label="Messages">
      ${messages.slice(0, MAX_MESSAGES).map((one) => html`<${Message} message=${one} />`)}
    </ul>
    ${messages.length > MAX_MESSAGES && html`<p class="empty">${MAX_MESSAGES} of ${messages.length.toLocaleString("en")} messages. See Raw for all.</p>`}
    ${!messages.length && html`<p class="empty">The prompt has no messages.</p>`}`;
}

/** The arguments that a prompt lists. */
const fieldsOf = (prompt) =>
  (Array.isArray(prompt.arguments) ? prompt.arguments : [])
    .filter((one) => one instanceof Map)
    .map((one) => ({
      name: text(one.get("name")),
      required: one.get("required") === true,
      title: one.has("title") ? text(one.get("title")) : undefined,
      description: one.has("description") ? text(one.get("description")) : undefined,
    }));

function Prompt({ prompt }) {
  const name = nameOf(prompt);
  const fields = fieldsOf(prompt);
  const values = drafts.read(name);
  const done = lastCallOf("prompts/get", name);
  return html`<article class="item">
    <${ItemHead} list="prompts" item=${prompt} />
    <${WithServer}>
      ${fields.length > 0 && html`<${CompletedFields} id="arguments" title="Arguments" fields=${fields} values=${values} set=${(next) => drafts.write(name, next)} about=${{ prompt: name }} />`}
      ${!fields.length && html`<p class="hint">This prompt takes no arguments.</p>`}
    <//>
    <${Definition} item=${prompt} />
    <${WithServer}>
      <div class="actions">
        <button
          class="primary"
          data-key="c"
          disabled=${state.value.status !== "open"}
          onClick=${() => run("prompt", { name, arguments: filled(values) })}>
          Get <kbd>c</kbd>
        </button>
        <button
          onClick=${() => openPanel("compare", { method: "prompts/get", params: JSON.stringify({ name, arguments: filled(values) }) })}>
          Compare revisions
        </button>
        <${Away} call=${done} />
      </div>
    <//>
    ${done && html`<${CallResult} call=${done} show=${Messages} onCancel=${() => run("cancel", { call: done.call })} />`}
  </article>`;
}

export function Main() {
  const name = openedKey("prompts");
  const prompts = lists.value.prompts;
  const prompt = prompts?.find((one) => nameOf(one) === name);
  if (prompt) return html`<${Prompt} key=${name} prompt=${prompt} />`;
  const gone = prompts && name && `The server no longer has a prompt named ${visible(name)}.`;
  return html`<p class="empty pad">${gone || (prompts?.length > 0 && "Choose a prompt.")}</p>`;
}
