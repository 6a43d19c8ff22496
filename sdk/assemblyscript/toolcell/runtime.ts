// Functions that the standard library of AssemblyScript expects of its host.

import { Level, log } from "./host";

/** Ends the call: an uncaught error, or a failed check of the language. */
export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  const reason = message === null ? "aborted" : message;
  log(reason + " (" + (file === null ? "" : file) + ":" + line.toString() + ")", Level.Error);
  unreachable();
}

export function trace(message: string, n: i32, a0: f64, a1: f64, a2: f64, a3: f64, a4: f64): void {
  const values: f64[] = [a0, a1, a2, a3, a4];
  for (let i = 0; i < n; i++) message += (i == 0 ? " " : ", ") + values[i].toString();
  log(message, Level.Debug);
}

/** Start of `Math.random` in a tool that does not use random numbers of the host: the same in each call. */
export function seed(): f64 {
  return 1;
}
