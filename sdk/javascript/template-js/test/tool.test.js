import assert from "node:assert/strict";
import { test } from "node:test";
import tools from "../src/tool.js";

const [divide] = tools;

test("divides", () => {
  const whole = { dividend: 7, divisor: 2, remainder: true };
  assert.equal(divide.call({ dividend: 7, divisor: 2 }), "3.5");
  assert.equal(divide.call(whole), "3 remainder 1");
});

test("refuses to divide by zero", () => {
  assert.throws(() => divide.call({ dividend: 7, divisor: 0 }), {
    kind: "invalid-arguments",
  });
});
