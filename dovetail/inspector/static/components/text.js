/** Text from a server: always text nodes, with every invisible character shown. */
import { html, useState } from "../html.js";

// Controls, direction marks and overrides, invisible letters, lone surrogates, private use, tags,
// variation selectors other than those of emoji, and joiners that join nothing.
const INVISIBLE = new RegExp(
  "([\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160" +
    "\\u17b4\\u17b5\\u180b-\\u180f\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164" +
    "\\ud800-\\udfff\\ue000-\\uf8ff\\ufe00-\\ufe0d\\ufeff\\uffa0\\ufff0-\\ufffb\\u{1bca0}-\\u{1bca3}" +
    "\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}\\u{f0000}-\\u{10ffff}]" +
    "|(?<=[0-9A-Za-z_\\u200c\\u200d])[\\u200c\\u200d]|[\\u200c\\u200d](?=[0-9A-Za-z_\\u200c\\u200d]))",
  "u",
);
const MAX_CHARS = 20000;
const SHORT_CHARS = 200; // texts that may be inside a button or a row
const MAX_MARKS = 2000; // so that a text of only invisible characters stays small

const name = (char) => `U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

/** Replace invisible characters in a text that goes into an attribute. */
export const visible = (text, max = 500) => {
  const parts = String(text).slice(0, max).split(INVISIBLE);
  return parts.map((part, index) => (index % 2 ? `⟨${name(part)}⟩` : part)).join("");
};

function marked(text) {
  if (!INVISIBLE.test(text)) return text;
  const parts = text.split(INVISIBLE);
  const rest = parts.splice(MAX_MARKS).length;
  const shown = parts.map((part, index) =>
    index % 2
      ? html`<span class="invisible" title="invisible character">${name(part)}</span>`
      : part,
  );
  return rest ? [...shown, html`<span class="invisible">… and more</span>`] : shown;
}

/**
 * A text. A long one is cut: with a button that shows more; at up to 200 characters, the title has
 * the whole text.
 */
export function Text({ children, max = MAX_CHARS, block = false }) {
  const [limit, setLimit] = useState(max);
  const text = [children].flat().join("");
  const more = text.length - limit;
  const isShort = max <= SHORT_CHARS && more > 0;
  const shown = html`<span
    class=${block ? "text block" : "text"}
    dir="auto"
    title=${isShort ? visible(text, MAX_CHARS) : undefined}
    >${marked(more > 0 ? text.slice(0, limit) : text)}${isShort && "…"}</span
  >`;
  if (more <= 0 || isShort) return shown;
  const grow = () => setLimit(limit * 4);
  return html`${shown}<button class="quiet more" onClick=${grow}>
      Show more (${more.toLocaleString("en")} characters)
    </button>`;
}

/** A sentence of the inspector itself, never of a server: what is in backticks becomes code. */
export const Prose = ({ children }) =>
  [children]
    .flat()
    .join("")
    .split(/`([^`]+)`/)
    .map((part, index) => (index % 2 ? html`<code>${part}</code>` : part));

/** A link, if its scheme is safe: it shows its host and its text, and opens in another tab. */
export function Link({ href, text = href }) {
  const url = URL.canParse(href) ? new URL(href) : null;
  if (url === null || !["http:", "https:"].includes(url.protocol))
    return html`<${Text}>${href}<//>`;
  return html`<a href=${url.href} target="_blank" rel="noopener noreferrer"
    ><strong>${url.host}</strong> <${Text} max=${200}>${text}<//></a
  >`;
}

/** Copy text; a button that says so. */
export function Copy({ text, label = "Copy" }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(typeof text === "function" ? await text() : text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button class="quiet" onClick=${copy}>${done ? "Copied" : label}</button>`;
}
