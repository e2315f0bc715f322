/** A form from a JSON Schema, which can be edited as JSON instead. */
import { html, useEffect, useState } from "../html.js";
import { post } from "../api.js";
import { Field } from "./fields.js";
import { JsonEditor } from "./json_editor.js";
import { Draft, findDraft, print } from "./json_text.js";
import { example } from "./schema.js";
import { Text } from "./text.js";

const CHECK_AFTER_MS = 400;

/**
 * Args: `schema` (exact JSON); `value` (exact JSON, undefined if unset, with a Draft where text is not
 * valid yet); `set(value)`; `id`, which is unique on the page; `title` of the heading.
 */
export function Form({ schema, value, set, id, title = "Arguments" }) {
  const [asJson, setAsJson] = useState(value instanceof Draft);
  const modes = [
    ["Form", false],
    ["JSON", true],
  ];
  const [filled, setFilled] = useState(0); // how often the whole value was replaced
  const replace = (next) => {
    set(next);
    setFilled(filled + 1);
  };
  const isLocked = value instanceof Draft;
  return html`<section class="form" aria-labelledby=${`${id}-title`}>
    <div class="bar">
      <h3 id=${`${id}-title`}>${title}</h3>
      <span class="segments" role="group" aria-label="Edit as">
        ${modes.map(
          ([name, mode]) =>
            html`<button
              aria-pressed=${asJson === mode}
              disabled=${isLocked && !mode}
              onClick=${() => setAsJson(mode)}>
              ${name}
            </button>`,
        )}
      </span>
      <span class="grow"></span>
      <button class="quiet" onClick=${() => replace(example(schema, schema))}>
        Fill in an example
      </button>
      <button class="quiet" onClick=${() => replace(undefined)}>Clear</button>
    </div>
    ${
      asJson
        ? html`<${JsonEditor}
            id=${`${id}-json`}
            label=${`${title} as JSON`}
            value=${value}
            set=${set}
            rows=${8} />`
        : html`<${Field}
            key=${filled}
            id=${id}
            root=${schema}
            schema=${schema}
            value=${value}
            set=${set}
            depth=${0} />`
    }
    <${Problems} schema=${schema} value=${value} />
  </section>`;
}

/** What the schema does not allow. It may be sent all the same: that is what an inspector is for. */
function Problems({ schema, value }) {
  const [errors, setErrors] = useState([]);
  const text = value === undefined || findDraft(value) ? null : print(value);
  useEffect(() => {
    setErrors([]);
    if (text === null) return;
    let isOld = false;
    const timer = setTimeout(async () => {
      const checked = await post("check_json", { text, schema: print(schema) }).catch(() => null);
      if (checked && !isOld) setErrors(checked.errors);
    }, CHECK_AFTER_MS);
    return () => {
      isOld = true;
      clearTimeout(timer);
    };
  }, [text, schema]);
  if (!errors.length) return null;
  return html`<ul class="problems" aria-label="What the schema does not allow">
    ${errors.slice(0, 20).map(
      (error) =>
        html`<li>
          ${
            error.path &&
            html`<code><${Text} max=${200}>${error.path}<//></code
              >${" "}`
          }<${Text} max=${500}>${error.message}<//>
        </li>`,
    )}
  </ul>`;
}
