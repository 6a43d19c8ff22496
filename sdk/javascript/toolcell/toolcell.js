// Tools of Toolcell in JavaScript: a definition with its function becomes a tool. This file needs no host, so that tools can
// be called from tests.

/**
 * @typedef {import("./toolcell.d.ts").Host} Host
 */

/** @type {Host} */
let host = {
  log() {},
  progress() {},
};

/** True while the modules of a component are loaded, which its build does: there is no host then. */
let isLoading = false;

/** Connects the SDK to the host. The entry of a component does this. */
export function connect(functions) {
  isLoading = true;
  host = { ...host, ...functions };
}

/** Functions of WASI that `tool.toml` names in `wasi`; calling another one says so. */
export function needs(name) {
  const found = host[name];
  if (!found) throw ToolError.failed(`this tool was built without \`${name}\`: add it to \`wasi\` in tool.toml`);
  inCall(`\`${name}\``);
  return found;
}

/** Refuses what the host does in a call, while there is none. */
export function inCall(name) {
  if (isLoading) throw ToolError.failed(`${name} can be used in a call, and not while the module of a tool is loaded`);
}

/** Error of a tool, with a message for the model. Its kind says what may help. */
export class ToolError extends Error {
  constructor(kind, message) {
    super(message);
    this.name = "ToolError";
    this.kind = kind;
  }
  /** The arguments make no sense: the model can call again with others. */
  static invalid(message) {
    return new ToolError("invalid-arguments", message);
  }
  /** Something is not granted: calling again does not help. */
  static denied(message) {
    return new ToolError("denied", message);
  }
  /** An external system did not answer: the same call may succeed later. */
  static unavailable(message) {
    return new ToolError("unavailable", message);
  }
  /** The operation failed. */
  static failed(message) {
    return new ToolError("failed", message);
  }
}

const isOptional = Symbol("optional");

const schema = (type, description, rules) => ({ type, ...(description ? { description } : {}), ...rules });

/** A text. */
export const string = (description, rules) => schema("string", description, rules);
/** A number. */
export const number = (description, rules) => schema("number", description, rules);
/** A whole number. */
export const integer = (description, rules) => schema("integer", description, rules);
/** `true` or `false`. */
export const boolean = (description, rules) => schema("boolean", description, rules);
/** One of several texts. */
export const oneOf = (values, description) => ({ enum: values, ...(description ? { description } : {}) });
/** A list of values of one kind. */
export const array = (items, description, rules) => schema("array", description, { items, ...rules });
/** An object with these members. */
export const object = (properties, description) => ({
  type: "object",
  ...(description ? { description } : {}),
  properties,
  required: Object.keys(properties).filter((name) => !properties[name][isOptional]),
  additionalProperties: false,
});
/** A value that may be left out; then it is the default. */
export const optional = (of, value) => ({
  ...of,
  ...(value === undefined ? {} : { default: value }),
  [isOptional]: true,
});

/** Makes a tool of a definition and its function. */
export function tool(definition) {
  const { name, description, title, input = {}, output, run, aliases } = definition;
  if (typeof run !== "function") throw new TypeError(`tool \`${name}\`: \`run\` is not a function`);
  const inputSchema = object(input);
  const hints = ["readOnly", "destructive", "idempotent", "openWorld"];
  return {
    name,
    definition: {
      name,
      title,
      description,
      inputSchema: JSON.stringify(inputSchema),
      outputSchema: output && JSON.stringify(output),
      hints: Object.fromEntries(hints.map((hint) => [hint, definition[hint] === true])),
      annotations: aliases ? [["aliases", JSON.stringify(aliases)]] : [],
    },
    /** Calls the tool as the host does, with its defaults. */
    call(values, call = context()) {
      const given = { ...values };
      for (const [key, of] of Object.entries(input)) {
        if (given[key] === undefined && of.default !== undefined) given[key] = of.default;
      }
      return run(given, call);
    },
  };
}

/** A part of a result: bytes with a media type. */
export const blob = (mediaType, data) => ({ tag: "blob", val: { mediaType, data } });
/** A part of a result: a reference to a resource. */
export const link = (uri, name, mediaType) => ({ tag: "link", val: { uri, name, mediaType } });
/** A part of a result: a text. */
export const text = (value) => ({ tag: "text", val: String(value) });
/** A result of several parts, and possibly a structured value. */
export function result(parts, structured) {
  return { [isResult]: true, content: parts.map((part) => (typeof part === "string" ? text(part) : part)), structured };
}
const isResult = Symbol("result");

const write = (level, message) => {
  if (!isLoading) host.log(level, String(message));
};

/** Messages for the user. The model does not read them. Those from outside of calls are dropped. */
export const log = Object.fromEntries(
  ["trace", "debug", "info", "warn", "error"].map((level) => [level, (message) => write(level, message)]),
);

/** Reports to the user that `done` of `total` steps are completed. */
export function progress(done, total, message) {
  if (!isLoading) host.progress(done, total, message);
}

function context(call) {
  const values = (call?.context ?? []).map(([name, json]) => [name, JSON.parse(json)]);
  return { id: call?.id ?? "", values: Object.fromEntries(values) };
}

function output(value) {
  if (value?.[isResult]) {
    const { content, structured } = value;
    return { content, structured: structured === undefined ? undefined : JSON.stringify(structured) };
  }
  if (value === undefined || value === null) return { content: [], structured: undefined };
  if (typeof value === "string") return { content: [text(value)], structured: undefined };
  const json = JSON.stringify(value);
  const isObject = typeof value === "object" && !Array.isArray(value);
  return { content: [text(json)], structured: isObject ? json : undefined };
}

/** Maximum length of the message of an error. */
const MAX_MESSAGE = 4000;

function failure(error) {
  const kind = error instanceof ToolError ? error.kind : "failed";
  let message = error instanceof ToolError ? error.message : String(error);
  if (message.length > MAX_MESSAGE) message = `${message.slice(0, MAX_MESSAGE)}…`;
  return { tag: kind, val: message };
}

/** The exports of a component with these tools. */
export function component(tools) {
  const list = Array.isArray(tools) ? tools : [tools];
  return {
    definitions() {
      isLoading = false;
      return list.map((tool) => tool.definition);
    },
    run(call) {
      isLoading = false;
      try {
        const tool = list.find((tool) => tool.name === call.name);
        if (!tool) throw ToolError.invalid(`this component has no tool ${JSON.stringify(call.name)}`);
        const value = tool.call(JSON.parse(call.arguments), context(call));
        if (typeof value?.then === "function") {
          throw ToolError.failed(`tool \`${call.name}\` is async; return the value itself`);
        }
        return output(value);
      } catch (error) {
        throw failure(error);
      }
    },
  };
}
