// Requests to hosts that are granted, with "http" in `wasi` of tool.toml.

import { area, bytesAt, liftAt, wellFormed } from "./abi";
import { Result, denied, failed, invalid, unavailable } from "./tool";

@external("wasi:http/types@0.2.12", "[constructor]fields")
declare function newFields(): i32;
@external("wasi:http/types@0.2.12", "[method]fields.append")
declare function append(fields: i32, name: usize, size: i32, value: usize, valueSize: i32, returned: usize): void;
@external("wasi:http/types@0.2.12", "[method]fields.entries")
declare function entries(fields: i32, returned: usize): void;
@external("wasi:http/types@0.2.12", "[constructor]outgoing-request")
declare function newRequest(headers: i32): i32;
@external("wasi:http/types@0.2.12", "[method]outgoing-request.set-method")
declare function setMethod(request: i32, method: i32, name: usize, size: i32): i32;
@external("wasi:http/types@0.2.12", "[method]outgoing-request.set-scheme")
declare function setScheme(request: i32, isSome: i32, scheme: i32, name: usize, size: i32): i32;
@external("wasi:http/types@0.2.12", "[method]outgoing-request.set-authority")
declare function setAuthority(request: i32, isSome: i32, text: usize, size: i32): i32;
@external("wasi:http/types@0.2.12", "[method]outgoing-request.set-path-with-query")
declare function setPath(request: i32, isSome: i32, text: usize, size: i32): i32;
@external("wasi:http/types@0.2.12", "[method]outgoing-request.body")
declare function bodyOf(request: i32, returned: usize): void;
@external("wasi:http/types@0.2.12", "[method]outgoing-body.write")
declare function streamOf(body: i32, returned: usize): void;
@external("wasi:http/types@0.2.12", "[static]outgoing-body.finish")
declare function finish(body: i32, hasTrailers: i32, trailers: i32, returned: usize): void;
@external("wasi:io/streams@0.2.12", "[method]output-stream.blocking-write-and-flush")
declare function writeAndFlush(stream: i32, bytes: usize, size: i32, returned: usize): void;
@external("wasi:io/streams@0.2.12", "[resource-drop]output-stream")
declare function dropOutput(stream: i32): void;
@external("wasi:http/outgoing-handler@0.2.12", "handle")
declare function handle(request: i32, hasOptions: i32, options: i32, returned: usize): void;
@external("wasi:http/types@0.2.12", "[method]future-incoming-response.subscribe")
declare function subscribe(future: i32): i32;
@external("wasi:io/poll@0.2.12", "[method]pollable.block")
declare function block(pollable: i32): void;
@external("wasi:http/types@0.2.12", "[method]future-incoming-response.get")
declare function responseOf(future: i32, returned: usize): void;
@external("wasi:http/types@0.2.12", "[method]incoming-response.status")
declare function statusOf(response: i32): i32;
@external("wasi:http/types@0.2.12", "[method]incoming-response.headers")
declare function headersOf(response: i32): i32;
@external("wasi:http/types@0.2.12", "[method]incoming-response.consume")
declare function consume(response: i32, returned: usize): void;
@external("wasi:http/types@0.2.12", "[method]incoming-body.stream")
declare function inputOf(body: i32, returned: usize): void;
@external("wasi:io/streams@0.2.12", "[method]input-stream.blocking-read")
declare function blockingRead(stream: i32, length: i64, returned: usize): void;

/** Maximum size of the body of a response, in bytes, unless the request says more. */
const MAX_BODY: i32 = 8 << 20;
/** Bytes that are written at once: the most that a stream of WASI takes. */
const WRITTEN: i32 = 4096;
/** Bytes that are read at once. */
const READ: i64 = 65536;

/** Methods and errors of WASI in their order. */
const METHODS = "GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH";
const ERRORS =
  "DNS-timeout DNS-error destination-not-found destination-unavailable destination-IP-prohibited " +
  "destination-IP-unroutable connection-refused connection-terminated connection-timeout connection-read-timeout " +
  "connection-write-timeout connection-limit-reached TLS-protocol-error TLS-certificate-error TLS-alert-received " +
  "HTTP-request-denied HTTP-request-length-required HTTP-request-body-size HTTP-request-method-invalid " +
  "HTTP-request-URI-invalid HTTP-request-URI-too-long HTTP-request-header-section-size HTTP-request-header-size " +
  "HTTP-request-trailer-section-size HTTP-request-trailer-size HTTP-response-incomplete " +
  "HTTP-response-header-section-size HTTP-response-header-size HTTP-response-body-size " +
  "HTTP-response-trailer-section-size HTTP-response-trailer-size HTTP-response-transfer-coding " +
  "HTTP-response-content-coding HTTP-response-timeout HTTP-upgrade-failed HTTP-protocol-error loop-detected " +
  "configuration-error internal-error";

/** A request. */
export class Request {
  method: string = "GET";
  headers: Map<string, string> = new Map();
  body: Uint8Array | null = null;
  /** Maximum size of the body of the response, in bytes. */
  maxBody: i32 = MAX_BODY;
  constructor(public url: string) {}

  /** Sends it and waits for the whole response. */
  send(): Response {
    const response = new Response();
    response.error = new Exchange(this, response).run();
    return response;
  }
}

/** A response, or the error that the tool returns. */
export class Response {
  error: Result | null = null;
  status: i32 = 0;
  /** Headers, by their names in lower case. */
  headers: Map<string, string> = new Map();
  bytes: Uint8Array = new Uint8Array(0);

  /** The body as a text in UTF-8. */
  text(): string {
    return String.UTF8.decodeUnsafe(this.bytes.dataStart, this.bytes.byteLength);
  }
}

/** Sends a request with GET. */
export function get(url: string): Response {
  return new Request(url).send();
}

class Exchange {
  private at: usize = area(64);
  constructor(
    private request: Request,
    private response: Response,
  ) {}

  run(): Result | null {
    const url = this.request.url;
    const isSecure = url.startsWith("https://");
    const start = isSecure ? 8 : 7;
    if (!isSecure && !url.startsWith("http://")) return invalid("not a URL for HTTP: " + url);
    let end = start;
    while (end < url.length && "/?#".indexOf(url.charAt(end)) < 0) end++;
    const fragment = url.indexOf("#", end);
    const rest = url.substring(end, fragment < 0 ? url.length : fragment);
    const path = rest.startsWith("/") ? rest : "/" + rest;

    const fields = newFields();
    const names = this.request.headers.keys();
    let hasLength = false;
    for (let i = 0; i < names.length; i++) {
      if (!this.append(fields, names[i], this.request.headers.get(names[i]))) {
        return invalid("not a header of a request: " + names[i]);
      }
      hasLength = hasLength || names[i].toLowerCase() == "content-length";
    }
    const body = this.request.body;
    const isRead = this.request.method == "GET" || this.request.method == "HEAD";
    // Many servers take no body without its length.
    if (!hasLength && (body !== null || !isRead)) {
      this.append(fields, "content-length", (body === null ? 0 : body.length).toString());
    }
    const outgoing = newRequest(fields);
    const method = METHODS.split(" ").indexOf(this.request.method);
    const other = this.request.method;
    const authority = wellFormed(url.substring(start, end));
    const isValid =
      setMethod(outgoing, method < 0 ? 9 : method, at(other), other.length) == 0 &&
      setScheme(outgoing, 1, isSecure ? 1 : 0, 0, 0) == 0 &&
      setAuthority(outgoing, 1, at(authority), authority.length) == 0 &&
      setPath(outgoing, 1, at(path), path.length) == 0;
    if (!isValid) return invalid("not a URL for HTTP: " + url);

    bodyOf(outgoing, this.at);
    const sent = load<i32>(this.at, 4);
    handle(outgoing, 0, 0, this.at);
    if (load<u8>(this.at) != 0) return this.fail(8);
    const future = load<i32>(this.at, 8);
    // A request that is refused closes its body; the answer has the reason.
    if (this.send(sent)) finish(sent, 0, 0, this.at);
    block(subscribe(future));
    responseOf(future, this.at);
    if (load<u8>(this.at, 8) != 0) return failed(url + ": the response was taken already");
    if (load<u8>(this.at, 16) != 0) return this.fail(24);
    return this.read(load<i32>(this.at, 24));
  }

  /** Appends a header. Returns `false` if it is none of a request. */
  private append(fields: i32, name: string, value: string): bool {
    const bytes = Uint8Array.wrap(String.UTF8.encode(value));
    append(fields, at(name), name.length, bytes.dataStart, bytes.length, this.at);
    return load<u8>(this.at) == 0;
  }

  /** Sends the body. Returns `false` if it was closed before its end. */
  private send(body: i32): bool {
    const bytes = this.request.body;
    if (bytes === null) return true;
    streamOf(body, this.at);
    const stream = load<i32>(this.at, 4);
    for (let sent = 0; sent < bytes.length; sent += WRITTEN) {
      writeAndFlush(stream, bytes.dataStart + sent, min(WRITTEN, bytes.length - sent), this.at);
      if (load<u8>(this.at) != 0) return false;
    }
    dropOutput(stream);
    return true;
  }

  private read(incoming: i32): Result | null {
    this.response.status = statusOf(incoming);
    entries(headersOf(incoming), this.at);
    for (let i = 0, list = load<usize>(this.at), count = load<i32>(this.at, 4); i < count; i++) {
      const entry = list + <usize>i * 16;
      const value = bytesAt(entry + 8);
      this.response.headers.set(liftAt(entry).toLowerCase(), String.UTF8.decodeUnsafe(value.dataStart, value.length));
    }
    consume(incoming, this.at);
    inputOf(load<i32>(this.at, 4), this.at);
    const stream = load<i32>(this.at, 4);
    const parts: Uint8Array[] = [];
    let size = 0;
    for (;;) {
      blockingRead(stream, READ, this.at);
      if (load<u8>(this.at) != 0) {
        if (load<u8>(this.at, 4) == 1) break;
        return unavailable(this.request.url + ": the response ended early");
      }
      const part = bytesAt(this.at + 4);
      parts.push(part);
      size += part.length;
      if (size > this.request.maxBody) {
        return failed(this.request.url + ": the response has more than " + this.request.maxBody.toString() + " bytes");
      }
    }
    this.response.bytes = new Uint8Array(size);
    for (let i = 0, at = 0; i < parts.length; at += parts[i++].length) this.response.bytes.set(parts[i], at);
    return null;
  }

  /** Returns the error that is stored at an offset. */
  private fail(offset: usize): Result {
    const code = load<u8>(this.at + offset);
    const name = ERRORS.split(" ").at(code);
    const message = this.request.url + ": " + name;
    return name == "HTTP-request-denied" ? denied(message) : unavailable(message);
  }
}

function at(text: string): usize {
  return changetype<usize>(text);
}
