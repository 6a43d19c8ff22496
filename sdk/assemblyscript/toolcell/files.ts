// Files that are granted, with "files" in `wasi` of tool.toml. A failure is a `Result`, to be returned by the tool.

import { area, bytesAt, liftAt, wellFormed } from "./abi";
import { Result, denied, failed } from "./tool";

@external("wasi:filesystem/preopens@0.2.12", "get-directories")
declare function getDirectories(returned: usize): void;
@external("wasi:filesystem/types@0.2.12", "[method]descriptor.open-at")
declare function openAt(dir: i32, pathFlags: i32, path: usize, size: i32, openFlags: i32, flags: i32, returned: usize): void;
@external("wasi:filesystem/types@0.2.12", "[method]descriptor.read")
declare function readFrom(file: i32, length: i64, offset: i64, returned: usize): void;
@external("wasi:filesystem/types@0.2.12", "[method]descriptor.write")
declare function writeTo(file: i32, bytes: usize, size: i32, offset: i64, returned: usize): void;
@external("wasi:filesystem/types@0.2.12", "[method]descriptor.read-directory")
declare function readDirectory(dir: i32, returned: usize): void;
@external("wasi:filesystem/types@0.2.12", "[method]directory-entry-stream.read-directory-entry")
declare function nextEntry(stream: i32, returned: usize): void;
@external("wasi:filesystem/types@0.2.12", "[resource-drop]descriptor")
declare function close(file: i32): void;

/** Bytes that are read or written at once. */
const CHUNK: i32 = 1 << 20;

/** Flags of WASI. */
const FOLLOW: i32 = 1;
const CREATE: i32 = 1;
const DIRECTORY: i32 = 2;
const TRUNCATE: i32 = 8;
const READ: i32 = 1;
const WRITE: i32 = 2;

/** Errors of WASI in their order. */
const ERRORS =
  "access would-block already bad-descriptor busy deadlock quota exist file-too-large illegal-byte-sequence in-progress " +
  "interrupted invalid io is-directory loop too-many-links message-size name-too-long no-device no-entry no-lock " +
  "insufficient-memory insufficient-space not-directory not-empty not-recoverable unsupported no-tty no-such-device " +
  "overflow not-permitted pipe read-only invalid-seek text-file-busy cross-device";

/** What an operation gave, or its error. */
export class FileResult {
  error: Result | null = null;
  bytes: Uint8Array = new Uint8Array(0);
  names: string[] = [];

  /** The content as a text in UTF-8. */
  text(): string {
    return String.UTF8.decodeUnsafe(this.bytes.dataStart, this.bytes.byteLength);
  }
}

/** Reads a file. */
export function readFile(path: string): FileResult {
  const result = new FileResult();
  const file = open(path, 0, READ, result);
  if (file < 0) return result;
  const returned = area(16);
  const parts: Uint8Array[] = [];
  let size = 0;
  for (let isEnd = false; !isEnd; ) {
    readFrom(file, CHUNK, size, returned);
    if (load<u8>(returned) != 0) return fail(result, path, load<u8>(returned, 4));
    const part = bytesAt(returned + 4);
    parts.push(part);
    size += part.length;
    isEnd = load<u8>(returned, 12) != 0 || part.length == 0;
  }
  close(file);
  result.bytes = new Uint8Array(size);
  for (let i = 0, at = 0; i < parts.length; at += parts[i++].length) result.bytes.set(parts[i], at);
  return result;
}

/** Writes a file, in place of what it had. */
export function writeFile(path: string, bytes: Uint8Array): FileResult {
  const result = new FileResult();
  const file = open(path, CREATE | TRUNCATE, WRITE, result);
  if (file < 0) return result;
  const returned = area(16);
  for (let at = 0; at < bytes.length; at += <i32>load<u64>(returned, 8)) {
    writeTo(file, bytes.dataStart + at, min(CHUNK, bytes.length - at), at, returned);
    if (load<u8>(returned) != 0) return fail(result, path, load<u8>(returned, 8));
  }
  close(file);
  return result;
}

/** Lists the names in a directory, sorted. */
export function listDirectory(path: string): FileResult {
  const result = new FileResult();
  const dir = open(path, DIRECTORY, READ, result);
  if (dir < 0) return result;
  const returned = area(24);
  readDirectory(dir, returned);
  if (load<u8>(returned) != 0) return fail(result, path, load<u8>(returned, 4));
  const stream = load<i32>(returned, 4);
  for (;;) {
    nextEntry(stream, returned);
    if (load<u8>(returned) != 0) return fail(result, path, load<u8>(returned, 4));
    if (load<u8>(returned, 4) == 0) break;
    result.names.push(liftAt(returned + 12));
  }
  result.names.sort();
  return result;
}

function fail(result: FileResult, path: string, code: i32): FileResult {
  const name = ERRORS.split(" ").at(code);
  const message = "`" + path + "`: " + name;
  result.error = name == "access" || name == "not-permitted" ? denied(message) : failed(message);
  return result;
}

function split(path: string): string[] {
  return path.split("/").filter((part) => part != "" && part != ".");
}

function isBelow(path: string[], dir: string[]): bool {
  for (let i = 0; i < dir.length; i++) if (i >= path.length || path[i] != dir[i]) return false;
  return true;
}

/** Opens a file in the granted directory with the longest name that contains it, or returns -1 with an error. */
function open(path: string, openFlags: i32, flags: i32, result: FileResult): i32 {
  const returned = area(8);
  getDirectories(returned);
  const wanted = split(path);
  let best = -1;
  let length = -1;
  for (let i = 0; i < load<i32>(returned, 4); i++) {
    const entry = load<usize>(returned) + <usize>i * 12;
    const name = split(liftAt(entry + 4));
    if (name.length <= length || !isBelow(wanted, name)) continue;
    best = load<i32>(entry);
    length = name.length;
  }
  if (best < 0) {
    result.error = denied("`" + path + "` is in no granted directory");
    return -1;
  }
  const rest = wanted.slice(length).join("/");
  const within = wellFormed(rest == "" ? "." : rest);
  openAt(best, FOLLOW, changetype<usize>(within), within.length, openFlags, flags, returned);
  if (load<u8>(returned) == 0) return load<i32>(returned, 4);
  fail(result, path, load<u8>(returned, 4));
  return -1;
}
