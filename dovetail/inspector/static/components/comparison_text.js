/**
 * A comparison as rows, and as text. A column: `label`, `ms`, `result`, `error`, `messages`,
 * `differences` (from the base, the column with `isBase`).
 */
import { tryParse } from "./json.js";

const MIN_GROUP = 3;
const MAX_CELL = 80;

/** Whether one path leads through another. */
const isBelow = (path, other) =>
  path.length > other.length && path.startsWith(other) && ".[".includes(path[other.length]);

/** Rows `{path, base, cells}`: each place in which a column differs; `cells` is label -> difference. */
export function findRows(columns) {
  const rows = new Map();
  for (const { label, differences = [] } of columns)
    for (const one of differences) {
      const row = rows.get(one.path) ?? { path: one.path, base: one.before, cells: new Map() };
      row.base ??= one.before;
      rows.set(one.path, row);
      row.cells.set(label, one);
    }
  const lost = [...rows.values()].filter((row) => [...row.cells.values()].some(isLost));
  for (const row of rows.values())
    for (const above of lost)
      if (isBelow(row.path, above.path))
        for (const [label, one] of above.cells)
          if (isLost(one) && !row.cells.has(label)) row.cells.set(label, { kind: "lost" });
  return [...rows.values()];
}

const isLost = (one) => one.kind === "lost";
const general = (path) => path.replace(/\[(?!")[^\]]*\]/g, "[*]");

/**
 * Put rows that say the same of different items into groups: `{path, cells, rows}`. What the protocol
 * adds comes last.
 */
export function groupRows(rows) {
  const groups = new Map();
  for (const row of rows) {
    const kinds = [...row.cells].map(([label, { kind }]) => `${label} ${kind}`).sort();
    const key = [general(row.path), ...kinds].join("\n");
    groups.set(key, [...(groups.get(key) ?? []), row]);
  }
  const found = [...groups.values()].flatMap((all) => {
    if (all.length < MIN_GROUP) return all;
    const cells = [...all[0].cells].map(([label, { kind }]) => [label, { kind }]);
    return [{ path: general(all[0].path), cells: new Map(cells), rows: all }];
  });
  return [...found.filter((row) => !isOfProtocol(row)), ...found.filter(isOfProtocol)];
}

const PREFIX = "io.modelcontextprotocol/";
const PROTOCOL = new Set(["$.resultType", "$.ttlMs", "$.cacheScope"]);

/** Whether the protocol, and not the author, put a value into a result. */
export function isOfProtocol({ path, before, after, base }) {
  if (PROTOCOL.has(path) || path.startsWith(`$._meta["${PREFIX}`)) return true;
  const value = path === "$._meta" && tryParse(before ?? after ?? base);
  return value instanceof Map && [...value.keys()].every((key) => key.startsWith(PREFIX));
}

/** What a column loses, in a few words. What only the protocol adds does not count. */
export function summarise({ status, isBase, error, result, differences = [] }) {
  if (status === "running" || status === "cancelled") return status;
  if (error && result === undefined) return "failed";
  if (isBase) return "base";
  const own = differences.filter((one) => !isOfProtocol(one));
  const count = (kind) => own.filter((one) => one.kind === kind).length;
  const words = ["lost", "changed", "added"].filter(count).map((kind) => `${count(kind)} ${kind}`);
  return words.join(", ") || "same";
}

export const plural = (count, noun) =>
  `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/** Which differences `summarise` does not count, in words: those of the protocol's own fields. */
export function countProtocol(column) {
  const count = column.differences?.filter(isOfProtocol).length;
  if (!count) return "";
  return `${summarise(column) === "same" ? "except" : "and"} ${plural(count, "protocol field")}`;
}

const cut = (text) => (text.length > MAX_CELL ? `${text.slice(0, MAX_CELL)}…` : text);

function code(text) {
  const longest = Math.max(0, ...(text.match(/`+/g) ?? []).map((one) => one.length));
  const fence = "`".repeat(longest + 1);
  const space = longest ? " " : "";
  return `${fence}${space}${text.replaceAll("|", "\\|").replace(/\s+/g, " ")}${space}${fence}`;
}

function cell(row, column) {
  if (column.result === undefined) return "no result";
  if (column.isBase && row.rows) return plural(row.rows.length, "value");
  if (column.isBase) return row.base === undefined ? "–" : code(cut(row.base));
  const { kind, after } = row.cells.get(column.label) ?? { kind: "same" };
  return after === undefined ? kind : `${kind} ${code(cut(after))}`;
}

const outcome = (column) => `${summarise(column)} ${countProtocol(column)}`.trim();

/** A comparison as a Markdown table. */
export function toMarkdown(method, params, columns) {
  const line = (cells) => `| ${cells.join(" | ")} |`;
  const ms = (column) => (column.ms === undefined ? "–" : `${Math.round(column.ms)} ms`);
  return [
    `${code(method)} with ${code(params)}`,
    "",
    line(["", ...columns.map((column) => column.label)]),
    line(["---", ...columns.map(() => "---")]),
    line(["outcome", ...columns.map(outcome)]),
    line(["time", ...columns.map(ms)]),
    ...groupRows(findRows(columns)).map((row) =>
      line([code(row.path), ...columns.map((column) => cell(row, column))]),
    ),
    ...columns
      .filter((column) => column.error)
      .map(({ label, error }) => `\n${label}: ${code(error.message ?? "")}`),
    "",
  ].join("\n");
}
