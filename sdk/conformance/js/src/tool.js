import { next } from "bundled";
import { readText } from "../toolcell/files.js";
import { request } from "../toolcell/http.js";
import { ToolError, blob, boolean, integer, link, log, oneOf, optional, progress, result, string, tool } from "../toolcell/toolcell.js";

// There is no host yet: this is dropped, and the component is built nevertheless.
log.info("loaded");
console.warn("loaded");

let calls = 0;

const echo = tool({
  name: "echo",
  description: "Returns a text.",
  input: { text: string("The text.") },
  run({ text }) {
    log.info(`echoing ${[...text].length}`);
    progress(1, 2, "half");
    return text;
  },
});

const add = tool({
  name: "add",
  description: "Adds two numbers.",
  readOnly: true,
  input: {
    left: integer("The first."),
    right: integer("The second."),
    negate: optional(boolean("Negate the sum."), false),
  },
  run: ({ left, right, negate }) => ({ sum: negate ? -(left + right) : left + right }),
});

const fail = tool({
  name: "fail",
  description: "Fails.",
  input: { kind: oneOf(["invalid_arguments", "denied", "unavailable", "failed"], "The kind.") },
  run({ kind }) {
    const message = `as asked: ${kind} é`;
    if (kind === "invalid_arguments") throw ToolError.invalid(message);
    throw ToolError[kind](message);
  },
});

const parts = tool({
  name: "parts",
  description: "Returns several parts.",
  run: () => result(["text", blob("image/png", new Uint8Array([0, 255, 128])), link("https://example.org/x", "an example")]),
});

const count = tool({ name: "count", description: "Counts its calls.", run: () => String((calls = next(calls))) });

const crash = tool({
  name: "crash",
  description: "Crashes.",
  run() {
    throw new RangeError("out of cheese 42");
  },
});

const read_file = tool({
  name: "read_file",
  description: "Reads a file.",
  input: { path: string("The file.") },
  run: ({ path }) => readText(path),
});

const get_url = tool({
  name: "get_url",
  description: "Sends a request.",
  input: { url: string("The address."), body: optional(string("What is sent; without it nothing is.")) },
  run({ url, body }) {
    const response = body === undefined ? request(url) : request(url, { method: "POST", body });
    return `${response.status} ${response.text()}`;
  },
});

export default [echo, add, fail, parts, count, crash, read_file, get_url];
