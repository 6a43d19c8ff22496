// Requests to the server: one place that knows paths, errors and streams.

/** An error of the server, or a connection that failed (`code` is `offline`). */
export class ApiError extends Error {
  constructor(status, code, message, hints = []) {
    super(message);
    Object.assign(this, { status, code, hints });
  }
}

async function failure(response) {
  let body = null;
  try { body = await response.json(); } catch { /* the status says it */ }
  const error = body?.error || {};
  const hints = error.hints || (error.hint ? [error.hint] : []);
  return new ApiError(response.status, error.code || String(response.status), error.message || `the server answered with status ${response.status}`, hints);
}

export async function request(method, path, body, options = {}) {
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: { accept: "application/json", ...(body === undefined ? {} : { "content-type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin", cache: "no-store", redirect: "error", referrerPolicy: "no-referrer",
      signal: options.signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "offline", "the server does not answer");
  }
  if (!response.ok) throw await failure(response);
  if (response.status === 204) return null;
  const type = response.headers.get("content-type") || "";
  return type.includes("json") ? response.json() : response.text();
}

export const get = (path, options) => request("GET", path, undefined, options);
export const post = (path, body = {}) => request("POST", path, body);

/** Parses Server-Sent Events: calls `each({ id, event, data })`. */
export async function readEvents(response, each, quiet = () => {}) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    quiet();
    rest += decoder.decode(value, { stream: true });
    let end;
    while ((end = rest.indexOf("\n\n")) >= 0) {
      const message = { event: "message", data: "" };
      for (const row of rest.slice(0, end).split("\n")) {
        const colon = row.indexOf(":");
        if (colon <= 0) continue;
        const value = row.slice(colon + 1).replace(/^ /, "");
        if (row.startsWith("data")) message.data += (message.data ? "\n" : "") + value;
        else if (row.startsWith("id")) message.id = value;
        else if (row.startsWith("event")) message.event = value;
      }
      rest = rest.slice(end + 2);
      if (message.data) each(message);
    }
  }
}

const LONGEST_WAIT = 15_000;
/** The server sends something at least every 15 seconds; a stream that is silent for longer is broken, in milliseconds. */
const SILENCE = 40_000;

/** Follows a stream of events; after a broken connection it goes on behind the last number. `state` hears `live`, or
 *  `lost` with the seconds until the next try. Returns `{ stop, retry }`. */
export function follow(path, { last, onMessage, onState }) {
  let stopped = false;
  let abort = new AbortController();
  let wake = () => {};
  const run = async () => {
    for (let tries = 0; !stopped;) {
      abort = new AbortController();
      try {
        const response = await fetch(path, {
          headers: { accept: "text/event-stream", "last-event-id": String(last()) },
          credentials: "same-origin", cache: "no-store", redirect: "error", signal: abort.signal,
        });
        if (!response.ok) {
          const error = await failure(response);
          if (response.status !== 429 && response.status < 500) { onState("refused", error); return; }
          throw error;
        }
        tries = 0;
        onState("live");
        let timer;
        const heard = () => { clearTimeout(timer); timer = setTimeout(() => abort.abort(), SILENCE); };
        heard();
        try { await readEvents(response, onMessage, heard); } finally { clearTimeout(timer); }
      } catch { /* told below */ }
      if (stopped) return;
      // A stream that ended without an error is opened again at once, and then more and more slowly.
      const wait = Math.min(LONGEST_WAIT, 1000 * 2 ** Math.min(tries, 5) - (tries ? 0 : 500));
      tries += 1;
      for (let left = wait; left > 0 && !stopped; left -= 1000) {
        onState("lost", Math.ceil(left / 1000));
        const slept = await new Promise((resolve) => {
          const timer = setTimeout(() => resolve(true), Math.min(left, 1000));
          wake = () => { clearTimeout(timer); resolve(false); };
        });
        if (!slept) break;
      }
    }
  };
  run();
  return {
    stop() { stopped = true; abort.abort(); wake(); },
    retry() { wake(); },
  };
}

// Markdown: texts that become visible are collected for a moment and rendered together.
const MOST_TEXTS = 32;
const MOST_CHARACTERS = 250_000;
let queue = [];
let scheduled = false;

export function markdown(text) {
  return new Promise((resolve, reject) => {
    queue.push({ text, resolve, reject });
    if (!scheduled) { scheduled = true; setTimeout(flush, 0); }
  });
}

async function flush() {
  scheduled = false;
  while (queue.length) {
    const batch = [];
    let size = 0;
    while (queue.length && batch.length < MOST_TEXTS && (size === 0 || size + queue[0].text.length < MOST_CHARACTERS)) {
      size += queue[0].text.length;
      batch.push(queue.shift());
    }
    try {
      const { rendered } = await post("/api/markdown", { texts: batch.map(({ text }) => text) });
      batch.forEach(({ resolve }, index) => resolve(rendered[index]));
    } catch (error) {
      batch.forEach(({ reject }) => reject(error));
    }
  }
}
