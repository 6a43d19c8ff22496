// Without `wasi = ["clock"]` there is no time. A date of known numbers works.

import { ToolError } from "../toolcell.js";

const Dates = globalThis.Date;
const missing = () => {
  throw ToolError.failed('this tool was built without a clock: add "clock" to `wasi` in tool.toml');
};
globalThis.Date = new Proxy(Dates, {
  apply: missing,
  construct: (of, given, target) => (given.length ? Reflect.construct(of, given, target) : missing()),
  get: (of, name) => (name === "now" ? missing : Reflect.get(of, name)),
});
