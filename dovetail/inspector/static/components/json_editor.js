/** A text area for JSON that names the line and the column of an error. */
import { html, useEffect, useRef, useState } from "../html.js";
import { Draft, parse, print } from "./json_text.js";

const show = (value) =>
  value === undefined ? "" : value instanceof Draft ? value.text : print(value, 2);

/** Read text: a value, undefined if it is empty, or a Draft if it is not JSON. */
export function read(text) {
  if (!text.trim()) return undefined;
  try {
    return parse(text);
  } catch (error) {
    return new Draft(text, error.message);
  }
}

/** Args: `id`, `label`, `value`, `set(value)`, `rows`. */
export function JsonEditor({ id, label, value, set, rows = 3 }) {
  const [text, setText] = useState(show(value));
  const written = useRef(value); // by this editor: its text stays as it was typed
  useEffect(() => {
    if (written.current !== value) setText(show(value));
    written.current = value;
  }, [value]);
  const type = (event) => {
    setText(event.target.value);
    written.current = read(event.target.value);
    set(written.current);
  };
  const isWrong = value instanceof Draft;
  return html`<textarea
      id=${id}
      class="code"
      aria-label=${label}
      aria-invalid=${isWrong}
      aria-describedby=${isWrong ? `${id}-error` : undefined}
      rows=${rows}
      spellcheck=${false}
      placeholder="not set"
      value=${text}
      onInput=${type}></textarea>
    ${isWrong && html`<p id=${`${id}-error`} class="error" role="alert">${value.message}</p>`}`;
}
