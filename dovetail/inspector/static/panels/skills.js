/** Skills: the front matter and the files of each, which are verified as they are read. */
import { html, signal, useEffect, useState } from "../html.js";
import { calls, lists, openPanel, run, selection, snapshot, state } from "../store.js";
import { JsonText, tryParse } from "../components/json.js";
import { CallResult, formatBytes, ResourceContents } from "../components/result.js";
import { Copy, Text, visible } from "../components/text.js";
import { VirtualList } from "../components/virtual_list.js";

const ROW = 28;
const MAX_FILES = 500;
const NOT_OFFERED = "The server offers no skills.";

const skills = signal(undefined); // undefined: not read yet; null: not offered
const labelOf = (skill) => skill.name || skill.uri || "(no name)";
const chosen = () => selection.value.skills ?? skills.value?.[0]?.uri;

async function load() {
  const found = await run("skills", {});
  if (found) skills.value = found.skills;
}

export function List() {
  const isOpen = state.value.status === "open";
  useEffect(() => {
    if (isOpen) load();
  }, [isOpen, state.value.connection, lists.value.resources]);
  const rows = skills.value ?? [];
  return html`<${VirtualList}
      id="skills"
      label="Skills"
      rows=${rows}
      height=${ROW}
      keyOf=${(one) => one.uri}
      selected=${chosen()}
      onSelect=${(one) => (selection.value = { ...selection.value, skills: one.uri })}
      onOpen=${(one) => openPanel("skills", one.uri)}
      render=${(one) =>
        html`<span class="name"><${Text} max=${160}>${labelOf(one)}<//></span>
          ${one.problem && html`<span class="tag bad">not valid</span>`}
          ${one.dynamic && html`<span class="tag">dynamic</span>`}`} />
    ${skills.value === null && html`<p class="empty pad">${NOT_OFFERED}</p>`}
    ${skills.value?.length === 0 && html`<p class="empty pad">The list is empty.</p>`}`;
}

/** The last time that a file was read. */
const readingOf = (uri, path) =>
  [...calls.value.values()].findLast(
    (one) =>
      one.method === "read_skill" && one.name === uri && tryParse(one.params).get("path") === path,
  );

/** What reading a file has shown about it: words and a tone. */
function verdict(skill, { path, uri, digest }) {
  const { status = "done", error } = readingOf(skill.uri, path) ?? {};
  if (status === "error") return [error?.type === "SkillRefused" ? "differs" : "failed", "bad"];
  if (status !== "done") return [status, "warn"];
  return snapshot.value.verified?.includes(`${uri} ${digest}`)
    ? ["verified", "ok"]
    : ["not read", ""];
}

function Contents({ result }) {
  const contents = tryParse(result)?.get("contents");
  return html`<div class="content">
    ${contents instanceof Map && html`<${ResourceContents} contents=${contents} />`}
  </div>`;
}

/** A digest that can be told from others: its first and its last digits. */
const short = (digest) => digest.replace(/^((?:\w+:)?\w{6})\w{20,}(\w{4})$/, "$1…$2");

function FileRow({ skill, file, isChosen, choose }) {
  const [words, tone] = verdict(skill, file);
  return html`<tr>
    <td class="path">
      <code><${Text} max=${200}>${file.path}<//></code>
    </td>
    <td class="number">${formatBytes(file.size)}</td>
    <td class="digest">
      ${file.digest && html`<code title=${file.digest}>${short(file.digest)}</code>`}
    </td>
    <td><span class=${`tag ${tone}`}>${words}</span></td>
    <td>
      <button
        class="quiet"
        aria-pressed=${isChosen}
        aria-label=${`Read ${visible(file.path)}`}
        onClick=${() => choose(file.path)}>
        Read
      </button>
      ${file.digest && html`<${Copy} text=${file.digest} label="Copy digest" />`}
    </td>
  </tr>`;
}

function Files({ skill, path, choose }) {
  if (!skill.files.length) return html`<p class="empty">The skill lists no files.</p>`;
  return html`<div class="table" tabindex="0" role="region" aria-label="Files">
    <table>
      <thead>
        <tr>
          <th scope="col">File</th>
          <th scope="col" class="number">Size</th>
          <th scope="col" class="digest">Digest</th>
          <th scope="col">State</th>
          <th scope="col"><span class="sr">Actions</span></th>
        </tr>
      </thead>
      <tbody>
        ${skill.files.slice(0, MAX_FILES).map((file) => html`<${FileRow} key=${file.path} skill=${skill} file=${file} isChosen=${file.path === path} choose=${choose} />`)}
      </tbody>
    </table>
    ${skill.files.length > MAX_FILES && html`<p class="empty">${MAX_FILES} of ${skill.files.length.toLocaleString("en")} files</p>`}
  </div>`;
}

function AnyFile({ path, choose }) {
  const [typed, setTyped] = useState(path);
  return html`<p class="hint">
      The skill is dynamic: its files are not listed, and have no digests.
    </p>
    <div class="actions">
      <label for="skill-path">Path</label>
      <input
        id="skill-path"
        class="line number"
        value=${typed}
        onInput=${(event) => setTyped(event.target.value)} />
      <button class="primary" data-key="c" onClick=${() => choose(typed)}>Read <kbd>c</kbd></button>
    </div>`;
}

function Skill({ skill }) {
  const [path, setPath] = useState("SKILL.md");
  const call = readingOf(skill.uri, path);
  const choose = (one) => {
    setPath(one);
    run("read_skill", { uri: skill.uri, path: one });
  };
  return html`<article class="item">
    <header class="item-head">
      <h2>
        <code><${Text} max=${100}>${labelOf(skill)}<//></code>
      </h2>
      <span class="hint"><${Text} max=${300}>${skill.uri}<//></span>
      <span class="grow"></span>
      <button class="quiet" onClick=${() => openPanel("resources", skill.uri)}>
        Open in Resources
      </button>
    </header>
    <p class="description"><${Text} max=${1200}>${skill.description}<//></p>
    ${skill.problem && html`<p class="error">This skill cannot be used: <${Text} max=${500}>${skill.problem}<//></p>`}
    <h3>Front matter</h3>
    <${JsonText} text=${skill.frontmatter} />
    <h3>Files</h3>
    ${skill.dynamic ? html`<${AnyFile} path=${path} choose=${choose} />` : html`<${Files} skill=${skill} path=${path} choose=${choose} />`}
    ${
      skill.fingerprint &&
      html`<p class="meta-line">
        <span class="hint">Fingerprint</span>
        <code title=${skill.fingerprint}>${short(skill.fingerprint)}</code>
        <${Copy} text=${skill.fingerprint} label="Copy fingerprint" />
      </p>`
    }
    ${call && html`<${CallResult} key=${call.call} call=${call} show=${Contents} onCancel=${() => run("cancel", { call: call.call })} />`}
  </article>`;
}

export function Main() {
  const skill = skills.value?.find((one) => one.uri === chosen());
  if (skill) return html`<${Skill} key=${skill.uri} skill=${skill} />`;
  const isEmpty = !skills.value?.length;
  const gone = `The server no longer has the skill ${visible(chosen() ?? "")}.`;
  return html`<p class="empty pad">
    ${isEmpty ? "A skill is a folder with a SKILL.md, which a server publishes for models." : gone}
  </p>`;
}
