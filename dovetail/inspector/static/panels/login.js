/** Login: the steps of `dovetail login`, each with its requests, what is required, and what is wrong. */
import { html, signal, useEffect } from "../html.js";
import { run, snapshot } from "../store.js";
import { JsonText } from "../components/json.js";
import { formatMs } from "../components/result.js";
import { Link, Text } from "../components/text.js";

const STATES = {
  waiting: ["not run", ""],
  paused: ["next", "warn"],
  running: ["running", "warn"],
  done: ["done", "ok"],
  failed: ["failed", "bad"],
  skipped: ["skipped", ""],
};
const TONES = { done: "ok", failed: "bad", running: "busy", paused: "busy" };
const WORDS = {
  idle: "",
  running: "Running",
  paused: "Paused",
  done: "Done",
  failed: "Failed",
  cancelled: "Cancelled",
};

const FIRST = "The request with which the connection begins";

const chosen = signal({}); // step -> whether the user opened or closed it

const isOpen = (step) =>
  chosen.value[step.name] ?? (step.state === "failed" || step.state === "paused");

function Pairs({ title, pairs }) {
  if (!pairs.length) return null;
  return html`<h4>${title}</h4>
    <dl class="headers">
      ${pairs.map(
        ([name, value]) =>
          html`<dt><${Text} max=${100}>${name}<//></dt>
            <dd><${Text} max=${1000}>${value}<//></dd>`,
      )}
    </dl>`;
}

const parametersOf = (url) => (URL.canParse(url) ? [...new URL(url).searchParams] : []);
const isForm = (headers) =>
  headers["content-type"]?.startsWith("application/x-www-form-urlencoded");

function Body({ title, headers, text }) {
  if (!text) return null;
  if (isForm(headers))
    return html`<${Pairs} title=${title} pairs=${[...new URLSearchParams(text)]} />`;
  return html`<h4>${title}</h4>
    <${JsonText} text=${text} />`;
}

function Exchange({ one }) {
  const reply = one.status ?? null;
  return html`<div class="content exchange">
    <p class="meta-line">
      <code><${Text} max=${600}>${one.url ? `${one.method} ${one.url}` : FIRST}<//></code>
    </p>
    ${one.problem && html`<p class="failure error"><${Text} max=${2000}>${one.problem}<//></p>`}
    ${
      one.remarks.length > 0 &&
      html`<ul class="problems">
        ${one.remarks.map((remark) => html`<li key=${remark}>${remark}</li>`)}
      </ul>`
    }
    <${Pairs} title="Parameters of the request" pairs=${parametersOf(one.url)} />
    <${Pairs} title="Headers of the request" pairs=${Object.entries(one.request_headers)} />
    <${Body} title="Body of the request" headers=${one.request_headers} text=${one.request_body} />
    ${
      reply !== null &&
      html`<p class="meta-line">
          <span class=${`tag ${reply >= 400 ? "bad" : "ok"}`}>HTTP ${reply}</span>
          <span class="hint">after ${formatMs(one.ms)}</span>
        </p>
        <${Pairs}
          title="Parameters of the redirect"
          pairs=${parametersOf(one.reply_headers.location ?? "")} />
        <${Pairs} title="Headers of the reply" pairs=${Object.entries(one.reply_headers)} />
        <${Body} title="Body of the reply" headers=${one.reply_headers} text=${one.reply_body} />`
    }
  </div>`;
}

function Step({ step, number, canRun }) {
  const [word, tone] = STATES[step.state];
  const open = isOpen(step);
  const toggle = () => (chosen.value = { ...chosen.value, [step.name]: !open });
  const remarks = step.requests.reduce((sum, one) => sum + one.remarks.length, 0);
  return html`<li>
    <div class="bar step">
      <h3>
        <button class="fold" aria-expanded=${open} onClick=${toggle}>
          ${number}. ${step.title}
        </button>
      </h3>
      <span class=${`tag ${tone}`}>${word}</span>
      ${remarks > 0 && html`<span class="tag warn">${remarks} ${remarks === 1 ? "remark" : "remarks"}</span>`}
      <span class="grow"></span>
      ${
        canRun &&
        html`<button
          class="quiet"
          aria-label=${`Run to here: ${step.title}`}
          onClick=${() => run("login_step", { last: step.name })}>
          Run to here
        </button>`
      }
    </div>
    ${
      open &&
      html`<div class="step-body">
        <p class="description">${step.requirement}</p>
        <p class="hint"><${Link} href=${step.reference.url} text=${step.reference.text} /></p>
        ${step.requests.map((one, at) => html`<${Exchange} key=${at} one=${one} />`)}
        ${!step.requests.length && html`<p class="empty">Nothing was sent.</p>`}
      </div>`
    }
  </li>`;
}

function Saved({ saved }) {
  if (!saved) return html`<p class="hint">No login is saved for this server.</p>`;
  const expires = saved.expires ? `${saved.expired ? "expired" : "expires"} ${saved.expires}` : "";
  const facts = [
    saved.issuer,
    saved.scopes.join(" "),
    expires,
    saved.renews && "renewed automatically",
  ];
  return html`<p class="meta-line">
    <strong
      ><${Text} max=${120}
        >${saved.user ? `Saved login of ${saved.user}` : "Saved login"}<//
      ></strong
    >
    <span class="hint"><${Text} max=${600}>${facts.filter(Boolean).join(" · ")}<//></span>
  </p>`;
}

function Buttons({ status, saved }) {
  const isActive = status === "running" || status === "paused";
  const again = status !== "idle" && !isActive;
  return html`${
      status !== "running" &&
      html`<button class="primary" onClick=${() => run("login_step", { again })}>
        ${status === "paused" ? "Continue to the end" : again ? "Log in again" : "Log in"}
      </button>`
    }
    ${isActive && html`<button onClick=${() => run("login_step", { again: true, last: "challenge" })}>Start over</button>`}
    ${isActive && html`<button onClick=${() => run("login_cancel")}>Cancel</button>`}
    <button disabled=${!saved || isActive} onClick=${() => run("login_forget")}>
      Forget the login
    </button>`;
}

export function Main() {
  const login = snapshot.value.login;
  useEffect(() => {
    if (login === undefined) run("login");
  }, [login === undefined]);
  if (!login) return html`<p class="empty pad">Reading the saved login…</p>`;
  if (login.why_not)
    return html`<article class="item">
      <h2>Login</h2>
      <p class="empty"><${Text} max=${1000}>${login.why_not}<//></p>
    </article>`;
  const { status } = login;
  const isForgotten = login.steps.some((step) => step.name === "revocation");
  const steps = login.steps.filter((step) => !isForgotten || step.state !== "skipped");
  const canRun = (step) => step.state === "waiting" || step.state === "paused";
  return html`<article class="item">
    <header class="item-head">
      <h2>Login</h2>
      ${WORDS[status] && html`<span class=${`status ${TONES[status] ?? ""}`}>${WORDS[status]}</span>`}
      <span class="grow"></span>
      <${Buttons} status=${status} saved=${login.saved} />
    </header>
    <${Saved} saved=${login.saved} />
    <p role="status" class=${status === "failed" ? "error" : ""}>
      ${login.message && html`<${Text} max=${2000}>${login.message}<//>`}
    </p>
    ${
      login.link &&
      html`<div class="note login-link">
        <p>Open this page to log in. It opens in another tab, and this page goes on by itself.</p>
        <${Link} href=${login.link} text=${login.link.split("?")[0]} />
      </div>`
    }
    <ol class="plain steps">
      ${steps.map(
        (step, at) =>
          html`<${Step} key=${step.name} step=${step} number=${at + 1} canRun=${canRun(step)} />`,
      )}
    </ol>
  </article>`;
}
