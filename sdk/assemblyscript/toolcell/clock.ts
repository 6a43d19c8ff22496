// The time, with "clock" in `wasi` of tool.toml.

import { area } from "./abi";

@external("wasi:clocks/wall-clock@0.2.12", "now")
declare function wallClock(returned: usize): void;

/** Returns the time in milliseconds since 1970. `new Date(now())` has its parts. */
export function now(): i64 {
  const returned = area(16);
  wallClock(returned);
  return load<i64>(returned) * 1000 + load<u32>(returned, 8) / 1_000_000;
}
