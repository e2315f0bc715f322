/** The requests of the page: operations, and the stream of events. */

const STORED = "dovetail.token";
const PROGRAM_ENDED =
  "The inspector cannot be reached. Is the command in the terminal still running?";

let token = null;

/** Take the token from the address, or from an earlier load of this tab; return whether there is one. */
export function takeToken() {
  const fragment = location.hash.slice(1);
  if (fragment) {
    sessionStorage.setItem(STORED, fragment);
    history.replaceState(null, "", location.pathname);
  }
  token = sessionStorage.getItem(STORED);
  return token !== null;
}

export class ApiError extends Error {
  constructor(status, { message, what_to_do: whatToDo = "" }) {
    super(message);
    this.status = status;
    this.whatToDo = whatToDo;
  }
}

async function request(path, options) {
  const headers = { Authorization: `Bearer ${token}`, ...options.headers };
  const reply = await fetch(path, { ...options, headers }).catch((problem) => {
    if (problem.name === "AbortError") throw problem;
    throw new ApiError(0, { message: PROGRAM_ENDED });
  });
  if (reply.ok) return reply;
  const body = await reply.json().catch(() => ({}));
  throw new ApiError(reply.status, body.error ?? { message: `HTTP status ${reply.status}` });
}

/** Run an operation; return its result. */
export async function post(operation, fields = {}) {
  const reply = await request(`/api/${operation}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(fields),
  });
  return reply.json();
}

/** Pass the events after a number to a function, as they arrive, until the stream ends. */
export async function readEvents(after, handle) {
  const reply = await request(`/api/events?after=${after}`, {});
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = []; // of the line that is not complete: joined once, because it may be long
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    parts.push(value);
    if (!value.includes("\n")) continue;
    const lines = parts.join("").split("\n");
    parts = [lines.pop()];
    handle(
      lines.filter((line) => line.startsWith("data:")).map((line) => JSON.parse(line.slice(5))),
    );
  }
}
