// Tools of Toolcell in AssemblyScript: a class with `@tool` becomes a tool.

export { Level, log, progress } from "./host";
export { JsonKind, JsonValue, quote } from "./json";
export { Call, ErrorKind, Result, Tool, denied, failed, invalid, structured, text, unavailable } from "./tool";
