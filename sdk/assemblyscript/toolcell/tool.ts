// Tools: classes whose fields are the arguments of a call.

import { JsonValue } from "./json";

/** One call of a tool. */
export class Call {
  /** Identifier, unique in the session. */
  id: string = "";
  /** Values of the session, by name. */
  values: Map<string, JsonValue> = new Map();
}

/** A tool. Its fields with `@parameter` or `@optional` have the arguments when it runs. */
export class Tool {
  run(call: Call): Result {
    return failed("the tool has no function `run`");
  }
  /** @internal */
  __read(name: string, value: JsonValue): void {}
}

/** Kind of an error: what may help. */
export enum ErrorKind {
  None = -1,
  InvalidArguments,
  Denied,
  Unavailable,
  Failed,
}

/** Part of a result. */
export class Part {
  constructor(
    /** 0 for a text, 1 for bytes, 2 for a link. */
    public tag: u8,
    /** Text, media type or URI. */
    public first: string,
    /** Name of a link. */
    public second: string = "",
    public bytes: Uint8Array | null = null,
  ) {}
}

/** Result of a call: several parts and possibly a structured value, or an error. */
export class Result {
  parts: Part[] = [];
  json: string | null = null;
  kind: ErrorKind = ErrorKind.None;
  message: string = "";

  text(text: string): Result {
    this.parts.push(new Part(0, text));
    return this;
  }
  blob(mediaType: string, bytes: Uint8Array): Result {
    this.parts.push(new Part(1, mediaType, "", bytes));
    return this;
  }
  link(uri: string, name: string): Result {
    this.parts.push(new Part(2, uri, name));
    return this;
  }
  /** Sets the structured value, an object in JSON. */
  structured(json: string): Result {
    this.json = json;
    return this;
  }
  isError(): bool {
    return this.kind != ErrorKind.None;
  }
}

/** A text as the result. */
export function text(value: string): Result {
  return new Result().text(value);
}
/** An object in JSON as the result, also as a text. */
export function structured(json: string): Result {
  return text(json).structured(json);
}

/** Maximum length of the message of an error. */
const MAX_MESSAGE: i32 = 4000;

function error(kind: ErrorKind, message: string): Result {
  const result = new Result();
  result.kind = kind;
  result.message = message.length > MAX_MESSAGE ? message.substring(0, MAX_MESSAGE) + "…" : message;
  return result;
}
/** The arguments make no sense: the model can call again with others. */
export function invalid(message: string): Result {
  return error(ErrorKind.InvalidArguments, message);
}
/** Something is not granted: calling again does not help. */
export function denied(message: string): Result {
  return error(ErrorKind.Denied, message);
}
/** An external system did not answer: the same call may succeed later. */
export function unavailable(message: string): Result {
  return error(ErrorKind.Unavailable, message);
}
/** The operation failed. */
export function failed(message: string): Result {
  return error(ErrorKind.Failed, message);
}

/** A tool with its definition. */
export class Registered {
  constructor(
    public name: string,
    public description: string,
    public input: string,
    public hints: u8,
    public title: string | null,
    public output: string | null,
    public make: () => Tool,
  ) {}
}

export const tools: Registered[] = [];

// @ts-ignore: decorator
@global
export function __toolcellRegister(
  name: string,
  description: string,
  input: string,
  hints: u8,
  title: string | null,
  output: string | null,
  make: () => Tool,
): void {
  tools.push(new Registered(name, description, input, hints, title, output, make));
}
