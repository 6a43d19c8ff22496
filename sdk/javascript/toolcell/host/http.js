// HTTP of the host, through wasi:http.

import { handle } from "host:http/outgoing-handler@0.2.12";
import { Fields, OutgoingBody, OutgoingRequest } from "host:http/types@0.2.12";
import { ToolError, connect } from "../toolcell.js";

/** Maximum size of the body of a response, in bytes, unless the request says more. */
const MAX_BODY = 8 << 20;
/** Bytes that are written at once: the most that a stream of WASI takes. */
const CHUNK = 4096;

const METHODS = ["get", "head", "post", "put", "delete", "connect", "options", "trace", "patch"];

/** Resources of a call. The engine would drop some before those that they belong to; the host drops all of them after the call. */
const kept = [];
function keep(resource) {
  kept.push(resource);
  return resource;
}

function fail(url, error) {
  if (error instanceof ToolError) throw error;
  const code = error?.payload ?? error?.val ?? error;
  const name = String(code?.tag ?? code);
  const message = `${url}: ${name}${code?.val === undefined ? "" : ` ${JSON.stringify(code.val)}`}`;
  if (name === "HTTP-request-denied") throw ToolError.denied(message);
  throw ToolError.unavailable(message);
}

function request(url, { method = "GET", headers = {}, body, maxBody = MAX_BODY } = {}) {
  const parts = /^(https?):\/\/([^/?#]+)([^#]*)/.exec(url);
  if (!parts) throw ToolError.invalid(`not a URL for HTTP: ${url}`);
  const bytes = typeof body === "string" ? new TextEncoder().encode(body) : body;
  try {
    const given = { ...headers };
    const hasBody = bytes !== undefined || !["GET", "HEAD"].includes(method);
    // Many servers take no body without its length.
    if (hasBody && !Object.keys(given).some((name) => name.toLowerCase() === "content-length")) {
      given["content-length"] = String(bytes?.length ?? 0);
    }
    const entries = Object.entries(given).map(([name, value]) => [name, new TextEncoder().encode(value)]);
    const outgoing = keep(new OutgoingRequest(keep(Fields.fromList(entries))));
    const name = method.toLowerCase();
    outgoing.setMethod(METHODS.includes(name) ? { tag: name } : { tag: "other", val: method });
    outgoing.setScheme({ tag: parts[1] === "https" ? "HTTPS" : "HTTP" });
    outgoing.setAuthority(parts[2]);
    outgoing.setPathWithQuery(parts[3].startsWith("/") ? parts[3] : `/${parts[3]}`);
    const sent = keep(outgoing.body());
    const waiting = keep(handle(outgoing, undefined));
    // A request that is refused closes its body; the answer has the reason.
    if (!bytes || send(sent.write(), bytes)) OutgoingBody.finish(sent, undefined);
    keep(waiting.subscribe()).block();
    return response(keep(unwrap(unwrap(waiting.get()))), maxBody, url);
  } catch (error) {
    fail(url, error);
  }
}

/** Sends a body. Returns `false` if it was closed before its end. */
function send(stream, bytes) {
  kept.push(stream);
  try {
    for (let at = 0; at < bytes.length; at += CHUNK) stream.blockingWriteAndFlush(bytes.subarray(at, at + CHUNK));
  } catch {
    return false;
  }
  kept.pop();
  stream[Symbol.dispose]();
  return true;
}

/** Returns the value of a `result` inside of another type, or throws its error. */
function unwrap(result) {
  if (result?.tag === "err") throw result.val;
  return result?.tag === "ok" ? result.val : result;
}

function response(incoming, maxBody, url) {
  const decode = (bytes) => new TextDecoder().decode(bytes);
  const status = incoming.status();
  const headers = Object.fromEntries(keep(incoming.headers()).entries().map(([name, value]) => [name.toLowerCase(), decode(value)]));
  const body = keep(incoming.consume());
  const stream = keep(body.stream());
  const parts = [];
  let size = 0;
  for (;;) {
    let part;
    try {
      part = stream.blockingRead(65536);
    } catch (error) {
      const code = error?.payload ?? error?.val ?? error;
      if (code?.tag === "closed") break;
      throw error;
    }
    size += part.length;
    if (size > maxBody) throw ToolError.failed(`${url}: the response has more than ${maxBody} bytes`);
    parts.push(part);
  }
  const bytes = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return { status, headers, bytes, text: () => decode(bytes), json: () => JSON.parse(decode(bytes)) };
}

connect({ http: { request } });
