import {
  ToolError,
  boolean,
  number,
  optional,
  tool,
} from "../toolcell/toolcell.js";

export const {{function}} = tool({
  name: "{{function}}",
  description: "Divides one number by another.",
  readOnly: true,
  idempotent: true,
  input: {
    dividend: number("The number to divide."),
    divisor: number("The number to divide by; not zero."),
    remainder: optional(
      boolean("Divide whole, and tell the remainder."),
      false,
    ),
  },
  run({ dividend, divisor, remainder }) {
    if (divisor === 0) throw ToolError.invalid("`divisor` is zero");
    if (!remainder) return String(dividend / divisor);
    const whole = Math.trunc(dividend / divisor);
    return `${whole} remainder ${dividend - whole * divisor}`;
  },
});

// The tools of this component.
export default [{{function}}];
