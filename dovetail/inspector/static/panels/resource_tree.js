/** The rows of the list of resources: a tree by scheme, host and path, with a heading per folder. */
import { text } from "../components/json_text.js";
import { keyOf, labelOf } from "../store.js";

const MAX_DEPTH = 6; // deeper folders are shown in one line
const URI = /^([a-z][a-z0-9+.-]*):(?:\/\/([^/?#]*))?(.*)$/is;

/** Return the folders of a URI, and the rest: ["notes://", "host", "a"] and "b?c". */
export function splitUri(uri) {
  const found = URI.exec(uri);
  if (!found) return { folders: [], name: uri };
  const [, scheme, host, rest] = found;
  const path = /^[^?#]*/.exec(rest)[0];
  const parts = `${host ?? ""}${path}`.split("/");
  if (!parts[0] && parts.length > 1) parts.shift(); // file:///a
  const last = parts.pop() + rest.slice(path.length);
  const start = `${scheme}:${host === undefined ? "" : host ? "//" : "///"}`;
  if (last || !parts.length) return { folders: [start, ...parts], name: last || start };
  return { folders: [start, ...parts.slice(0, -1)], name: `${parts.at(-1)}/` };
}

/** Add an item to a tree: `{folders: Map, items: []}`. */
function plant(tree, folders, item) {
  let at = tree;
  for (const [index, name] of folders.entries()) {
    const isLast = index === MAX_DEPTH - 1;
    const key = isLast ? folders.slice(index).join("/") : name;
    if (!at.folders.has(key)) at.folders.set(key, { folders: new Map(), items: [] });
    at = at.folders.get(key);
    if (isLast) break;
  }
  at.items.push(item);
}

/** A folder that only contains one folder is shown together with it. */
function join(name, tree) {
  if (tree.items.length || tree.folders.size !== 1) return [name, tree];
  const [[inner, below]] = tree.folders;
  return join(/[:/]$/.test(name) ? name + inner : `${name}/${inner}`, below);
}

const countIn = (tree) =>
  [...tree.folders.values()].reduce((sum, one) => sum + countIn(one), tree.items.length);

function addRows(rows, tree, depth) {
  for (const item of tree.items) rows.push({ ...item, depth });
  for (const [key, below] of tree.folders) {
    const [label, inner] = join(key, below);
    rows.push({ label, depth, count: countIn(inner) });
    addRows(rows, inner, depth + 1);
  }
}

const matches = (item, words) =>
  !words ||
  [item.uri, item.uriTemplate, item.name, item.title, item.description].some(
    (one) => typeof one === "string" && one.toLowerCase().includes(words),
  );

/**
 * Return rows: a heading is `{label, depth, count}`; a resource or template has a `key`, too.
 * A text that is a URI, and not listed, becomes a row by which it can be opened.
 */
export function rowsOf(resources, templates, filter) {
  const words = filter.toLowerCase();
  const tree = { folders: new Map(), items: [] };
  for (const item of (resources ?? []).filter((one) => matches(one, words))) {
    const uri = keyOf("resources", item);
    const { folders, name } = splitUri(uri);
    const title = item.title === undefined ? "" : text(item.title);
    plant(tree, folders, { key: uri, uri, label: name || labelOf("resources", item), title });
  }
  const rows = [];
  addRows(rows, tree, 0);
  const found = (templates ?? []).filter((one) => matches(one, words));
  if (found.length) rows.push({ label: "Templates", depth: 0, count: found.length });
  for (const item of found) {
    rows.push({ key: keyOf("templates", item), label: labelOf("templates", item), depth: 1 });
  }
  const isListed = rows.some((row) => row.key === filter);
  if (URI.test(filter) && filter.includes("/") && !isListed)
    rows.push({ label: "Not listed", depth: 0 }, { key: filter, label: filter, depth: 1 });
  return rows;
}
