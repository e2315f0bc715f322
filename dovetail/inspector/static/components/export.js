/** A request in the forms in which it can be pasted elsewhere. */
import { html, signal, useEffect, useState } from "../html.js";
import { run } from "../store.js";
import { Copy, Text } from "./text.js";

const FORMS = {
  command: "Command line",
  python: "Python",
  pytest: "pytest",
  curl: "curl",
  json: "JSON",
};
const chosen = signal("command");

/** Args: `request` and `reply`, rows of the wire; `read(row)`, which returns the whole text of one. */
export function Export({ request, reply, read }) {
  const [found, setFound] = useState({ text: "" });
  const isSent = request.method !== undefined && request.direction === "to_server";
  const forms = isSent ? Object.keys(FORMS) : ["json"];
  const form = isSent ? chosen.value : "json";
  useEffect(() => {
    let isCurrent = true; // another form may be chosen before this one has come
    const load = async () => {
      const fields = { form, message: await read(request) };
      if (form === "pytest" && reply) fields.reply = await read(reply);
      return (await run("export", fields)) ?? { text: "" };
    };
    load().then((one) => isCurrent && setFound(one));
    return () => (isCurrent = false);
  }, [form, request, reply]);
  return html`<div class="block-head">
      <label
        >Export as
        <select value=${form} onChange=${(event) => (chosen.value = event.target.value)}>
          ${forms.map((one) => html`<option value=${one}>${FORMS[one]}</option>`)}
        </select></label
      >
      ${found.text && html`<${Copy} text=${found.text} />`}
    </div>
    ${found.problem && html`<p class="error" role="alert"><${Text} max=${500}>${found.problem}<//></p>`}
    ${
      found.text &&
      html`<pre
        class="content export"
        tabindex="0"
        role="group"
        aria-label="Exported text"><${Text}>${found.text}<//></pre>`
    }`;
}
