// Random numbers of the host, with "random" in `wasi` of tool.toml. `Math.random` starts with one of them.

import { area, bytesAt } from "./abi";

@external("wasi:random/random@0.2.12", "get-random-bytes")
declare function getRandomBytes(size: i64, returned: usize): void;

/** Returns bytes that nobody can guess. */
export function randomBytes(size: i32): Uint8Array {
  const returned = area(8);
  getRandomBytes(size, returned);
  return bytesAt(returned);
}

/** Start of `Math.random`. */
export function seed(): f64 {
  return reinterpret<f64>(load<i64>(randomBytes(8).dataStart));
}
