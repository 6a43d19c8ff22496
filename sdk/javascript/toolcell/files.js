// Files that are granted. `wasi = ["files"]` in tool.toml.

import { needs } from "./toolcell.js";

/** Reads a file as text in UTF-8. */
export const readText = (path) => needs("files").readText(path);
/** Reads a file as bytes. */
export const read = (path) => needs("files").read(path);
/** Writes a text or bytes to a file, in place of what it contains. */
export const write = (path, content) => needs("files").write(path, content);
/** Returns the names in a directory, sorted. */
export const list = (path) => needs("files").list(path);
