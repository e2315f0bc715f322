/** Resources: a tree by URI, templates with completion, contents by type, and changes. */
import { html, signal, useEffect, useMemo, useState } from "../html.js";
import * as store from "../store.js";
import { CompletedFields, filled, makeDrafts } from "../components/completion.js";
import { JsonBlock, tryParse } from "../components/json.js";
import { print, text } from "../components/json_text.js";
import {
  Away,
  CallResult,
  Definition,
  formatBytes,
  Icon,
  ResourceContents,
  WithServer,
} from "../components/result.js";
import { Copy, Text } from "../components/text.js";
import { FilteredList } from "../components/virtual_list.js";
import { rowsOf } from "./resource_tree.js";

const ROW = 26;
const INDENT = 12;
const MAX_CONTENTS = 50;

const filter = signal("");
const updates = new Map(); // URI -> {count, at}
const updated = signal(0); // changes when they do
const drafts = makeDrafts("template");

store.on("updated", ({ uri, at }) => {
  updates.set(uri, { count: (updates.get(uri)?.count ?? 0) + 1, at });
  updated.value += 1;
});

const time = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");
const lastReadOf = (uri) => store.lastCallOf("resources/read", uri);

/** The changes to a resource, or to one below it. */
function updatesOf(uri) {
  updated.value; // renders again when there are more
  const below = uri.endsWith("/") ? uri : `${uri}/`;
  const found = [...updates].filter(([one]) => one === uri || one.startsWith(below));
  return found.reduce(
    (sum, [, one]) => ({ count: sum.count + one.count, at: Math.max(sum.at, one.at) }),
    { count: 0, at: 0 },
  );
}

const isNew = (changed, read) => changed.count > 0 && !(read?.started > changed.at);

function Row({ row }) {
  const changed = updated.value > 0 && updates.get(row.uri);
  return html`<span class="name" style=${{ paddingLeft: `${row.depth * INDENT}px` }}>
      <${Text} max=${160}>${row.label}<//></span
    >
    ${row.count !== undefined && html`<span class="count">${row.count.toLocaleString("en")}</span>`}
    ${row.title && html`<span class="hint"><${Text} max=${80}>${row.title}<//></span>`}
    ${changed && html`<span class="tag warn" title="changes">${changed.count}</span>`}`;
}

export function List() {
  const { resources, templates } = store.lists.value;
  const words = filter.value.trim();
  const rows = useMemo(() => rowsOf(resources, templates, words), [resources, templates, words]);
  const key = store.selection.value.resources ?? firstKey();
  return html`<${FilteredList}
    id="resources"
    noun="resource"
    filter=${filter}
    placeholder="Filter, or enter a URI"
    of=${["resources", "templates"]}
    rows=${rows}
    keyOf=${(row) => row.key}
    isHeading=${(row) => row.key === undefined}
    selected=${key}
    render=${(row) => html`<${Row} row=${row} />`} />`;
}

/** What resources/read returned. */
function Contents({ result }) {
  const value = useMemo(() => tryParse(result), [result]);
  const contents = value instanceof Map ? value.get("contents") : undefined;
  if (!Array.isArray(contents)) return html`<${JsonBlock} title="Result" text=${result} />`;
  return html`${contents
    .slice(0, MAX_CONTENTS)
    .map(
      (one) =>
        html`<div class="content">
          ${one instanceof Map ? html`<${ResourceContents} contents=${one} />` : print(one)}
        </div>`,
    )}
  ${contents.length > MAX_CONTENTS && html`<p class="empty">${MAX_CONTENTS} of ${contents.length.toLocaleString("en")} contents</p>`}
  ${!contents.length && html`<p class="empty">The resource has no contents.</p>`}`;
}

/**
 * The buttons for one URI, its changes, and what was read. Args: `uri`; `find()`, which returns the
 * URI to read, if what is typed may be newer than `uri`.
 */
function Reading({ uri, find = () => uri }) {
  const read = lastReadOf(uri);
  const changed = updatesOf(uri);
  const isSubscribed = store.snapshot.value.subscriptions?.includes(uri) ?? false;
  const isOpen = store.state.value.status === "open" && uri !== "";
  const toggle = () => store.run(isSubscribed ? "unsubscribe" : "subscribe", { uri });
  const isChanged = isNew(changed, read);
  return html`<div class="actions">
      <button
        class="primary"
        data-key="c"
        disabled=${!isOpen}
        onClick=${async () => store.run("read", { uri: (await find()) ?? uri })}>
        ${isChanged && read ? "Read again" : "Read"} <kbd>c</kbd>
      </button>
      <button
        onClick=${() => store.openPanel("compare", { method: "resources/read", params: JSON.stringify({ uri }) })}>
        Compare revisions
      </button>
      <button aria-pressed=${isSubscribed} disabled=${!isOpen} onClick=${toggle}>
        ${isSubscribed ? "Unsubscribe" : "Subscribe"}
      </button>
      <${Away} call=${read} />
      <span role="status" class="meta-line">
        ${isSubscribed && !changed.count && html`<span class="hint">Subscribed. No changes yet.</span>`}
        ${changed.count > 0 && html`<span class=${`tag ${isChanged ? "warn" : ""}`}>Changed ${changed.count === 1 ? "once" : `${changed.count.toLocaleString("en")} times`}, last at ${time(changed.at)}</span>`}
      </span>
    </div>
    ${read && html`<${CallResult} call=${read} show=${Contents} onCancel=${() => store.run("cancel", { call: read.call })} />`}`;
}

function Head({ uri, label = uri, item }) {
  const rest = item.title ?? item.name;
  return html`<header class="item-head">
      <${Icon} item=${item} />
      <h2>
        <code><${Text} max=${300}>${label}<//></code>
      </h2>
      ${rest !== undefined && html`<span class="title"><${Text} max=${200}>${text(rest)}<//></span>`}
      ${item.mimeType !== undefined && html`<span class="tag"><${Text} max=${80}>${text(item.mimeType)}<//></span>`}
      ${typeof item.size === "number" && html`<span class="hint">${formatBytes(item.size)}</span>`}
      <span class="grow"></span>
      <${Copy} text=${uri} label="Copy URI" />
    </header>
    ${typeof item.description === "string" && html`<p class="description"><${Text} max=${900}>${item.description}<//></p>`}`;
}

function Resource({ uri, item }) {
  return html`<article class="item">
    <${Head} uri=${uri} label=${item && store.labelOf("resources", item)} item=${item ?? {}} />
    ${item ? html`<${Definition} item=${item} />` : html`<p class="hint">The server does not list this URI. It may still answer.</p>`}
    <${WithServer}><${Reading} uri=${uri} /><//>
  </article>`;
}

const expand = (template) =>
  store.run("expand", { template, values: filled(drafts.read(template)) });

/** The URI and the variables of a template, which Python works out. */
function useExpanded(template, values) {
  const [found, setFound] = useState({ uri: "", variables: [] });
  const sent = print(new Map(Object.entries(values)));
  useEffect(() => {
    let isCurrent = true;
    expand(template).then((expanded) => isCurrent && expanded && setFound(expanded));
    return () => (isCurrent = false);
  }, [template, sent]);
  return found;
}

function Template({ template, item }) {
  const values = drafts.read(template);
  const { uri, variables, problem } = useExpanded(template, values);
  const fields = variables.map(({ name, separator }) => ({
    name,
    description: separator ? `A list, separated by ${separator}` : undefined,
  }));
  return html`<article class="item">
    <${Head} uri=${template} label=${store.labelOf("templates", item)} item=${item} />
    <${Definition} item=${item} />
    <${WithServer}>
      ${problem && html`<p class="error"><${Text} max=${500}>${problem}<//></p>`}
      <${CompletedFields}
        id="variables"
        title="Variables"
        fields=${fields}
        values=${values}
        set=${(next) => drafts.write(template, next)}
        about=${{ template }} />
      ${
        uri &&
        html`<p class="meta-line">
          <span class="hint">URI</span> <code data-uri><${Text} max=${1000}>${uri}<//></code>
        </p>`
      }
      <${Reading} uri=${uri} find=${async () => (await expand(template))?.uri} />
    <//>
  </article>`;
}

function firstKey() {
  const { resources, templates } = store.lists.value;
  if (resources?.length) return store.keyOf("resources", resources[0]);
  return templates?.length ? store.keyOf("templates", templates[0]) : undefined;
}

export function Main() {
  const resources = store.lists.value.resources ?? [];
  const templates = store.lists.value.templates ?? [];
  const key = store.selection.value.resources ?? firstKey();
  if (key === undefined) return html`<p class="empty pad">Enter a URI on the left to read it.</p>`;
  const has = (field) => (one) => text(one[field]) === key;
  const resource = resources.find(has("uri")) ?? resources.find(has("name"));
  const template = templates.find(has("uriTemplate")) ?? templates.find(has("name"));
  if (!resource && template) {
    const uriTemplate = store.keyOf("templates", template);
    return html`<${Template} key=${uriTemplate} template=${uriTemplate} item=${template} />`;
  }
  const uri = resource ? store.keyOf("resources", resource) : key;
  return html`<${Resource} key=${uri} uri=${uri} item=${resource} />`;
}
