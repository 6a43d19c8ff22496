// Files of the host, through wasi:filesystem.

import { getDirectories } from "host:filesystem/preopens@0.2.12";
import { ToolError, connect } from "../toolcell.js";

/** Bytes that are read or written at once. */
const CHUNK = 1 << 20;

const codeOf = (error) => String(error?.payload ?? error?.val ?? error);

function fail(path, error) {
  if (error instanceof ToolError) throw error;
  const code = codeOf(error);
  const message = `\`${path}\`: ${code}`;
  throw code === "access" || code === "not-permitted" ? ToolError.denied(message) : ToolError.failed(message);
}

/** Finds the granted directory that contains a path. Relative paths start at the working directory, which is `.` or `/`. */
function locate(path) {
  const clean = (text) => text.split("/").filter((part) => part !== "" && part !== ".");
  const wanted = clean(path);
  let best;
  for (const [directory, name] of getDirectories()) {
    const prefix = clean(name);
    const fits = prefix.every((part, i) => part === wanted[i]);
    if (fits && (!best || prefix.length > best.length)) best = { directory, length: prefix.length };
  }
  if (!best) throw ToolError.denied(`\`${path}\` is in no granted directory`);
  return { directory: best.directory, rest: wanted.slice(best.length).join("/") || "." };
}

function open(path, openFlags, flags) {
  const { directory, rest } = locate(path);
  return directory.openAt({ symlinkFollow: true }, rest, openFlags, flags);
}

function read(path) {
  try {
    const file = open(path, {}, { read: true });
    const parts = [];
    let size = 0;
    for (;;) {
      const [bytes, isEnd] = file.read(CHUNK, size);
      parts.push(bytes);
      size += bytes.length;
      if (isEnd || bytes.length === 0) break;
    }
    const all = new Uint8Array(size);
    let at = 0;
    for (const part of parts) {
      all.set(part, at);
      at += part.length;
    }
    return all;
  } catch (error) {
    fail(path, error);
  }
}

function write(path, content) {
  const bytes = typeof content === "string" ? encode(content) : content;
  try {
    const file = open(path, { create: true, truncate: true }, { write: true });
    let at = 0;
    while (at < bytes.length) {
      at += Number(file.write(bytes.subarray(at, at + CHUNK), at));
    }
  } catch (error) {
    fail(path, error);
  }
}

function list(path) {
  try {
    const stream = open(path, { directory: true }, { read: true }).readDirectory();
    const names = [];
    for (let entry = stream.readDirectoryEntry(); entry; entry = stream.readDirectoryEntry()) names.push(entry.name);
    return names.sort();
  } catch (error) {
    fail(path, error);
  }
}

const encode = (text) => new TextEncoder().encode(text);
const readText = (path) => new TextDecoder().decode(read(path));

connect({ files: { read, readText, write, list } });
