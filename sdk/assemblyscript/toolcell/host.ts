// Messages and progress for the user. The model does not read them.

import { wellFormed } from "./abi";

@external("toolcell:tool/log@0.1.0", "write")
declare function write(level: i32, text: usize, size: i32): void;
@external("toolcell:tool/progress@0.1.0", "report")
declare function report(done: u64, hasTotal: i32, total: u64, hasMessage: i32, text: usize, size: i32): void;

/** Severity of a message. */
export enum Level {
  Trace,
  Debug,
  Info,
  Warn,
  Error,
}

/** Writes a message for the user. */
export function log(message: string, level: Level = Level.Info): void {
  const whole = wellFormed(message);
  write(level, changetype<usize>(whole), whole.length);
}

/** Reports to the user that `done` of `total` steps are completed; a total of 0 is unknown. */
export function progress(done: u64, total: u64 = 0, message: string = ""): void {
  const whole = wellFormed(message);
  report(done, total > 0 ? 1 : 0, total, message.length > 0 ? 1 : 0, changetype<usize>(whole), whole.length);
}
