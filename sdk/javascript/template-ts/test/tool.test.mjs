import assert from "node:assert/strict";
import { test } from "node:test";
import { {{function}} } from "../build/test/src/tool.js";

test("divides", () => {
  assert.equal({{function}}.call({ dividend: 7, divisor: 2 }), "3.5");
  assert.equal({{function}}.call({ dividend: 7, divisor: 2, remainder: true }), "3 remainder 1");
});

test("refuses to divide by zero", () => {
  assert.throws(() => {{function}}.call({ dividend: 7, divisor: 0 }), { kind: "invalid-arguments" });
});
