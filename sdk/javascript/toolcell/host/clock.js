// The clock of the host.

import { now } from "host:clocks/wall-clock@0.2.12";
import { inCall } from "../toolcell.js";

const Dates = globalThis.Date;
const milliseconds = () => {
  inCall("the clock");
  const { seconds, nanoseconds } = now();
  return Number(seconds) * 1000 + Math.floor(nanoseconds / 1e6);
};
globalThis.Date = new Proxy(Dates, {
  apply: () => new Dates(milliseconds()).toString(),
  construct: (of, given, target) => Reflect.construct(of, given.length ? given : [milliseconds()], target),
  get: (of, name) => (name === "now" ? milliseconds : Reflect.get(of, name)),
});
