// Environment variables that are granted, with "environment" in `wasi` of tool.toml.

import { area, liftAt } from "./abi";

@external("wasi:cli/environment@0.2.12", "get-environment")
declare function getEnvironment(returned: usize): void;

/** Returns the variables by their names. */
export function environment(): Map<string, string> {
  const returned = area(8);
  getEnvironment(returned);
  const variables = new Map<string, string>();
  for (let i = 0; i < load<i32>(returned, 4); i++) {
    const entry = load<usize>(returned) + <usize>i * 16;
    variables.set(liftAt(entry), liftAt(entry + 8));
  }
  return variables;
}
