import { Call, Result, Tool, invalid, text } from "../toolcell";

@tool(
  "{{function}}",
  "Divides one number by another, exactly or whole.",
  "read-only idempotent",
)
class Divide extends Tool {
  @parameter("The number to divide.")
  dividend: f64 = 0;
  @parameter("The number to divide by; not zero.")
  divisor: f64 = 0;
  @optional("Divide whole, and tell the remainder.")
  remainder: bool = false;

  run(_: Call): Result {
    if (this.divisor == 0) return invalid("`divisor` is zero");
    if (!this.remainder) return text(shown(this.dividend / this.divisor));
    const whole = Math.trunc(this.dividend / this.divisor);
    const rest = this.dividend - whole * this.divisor;
    return text(`${shown(whole)} remainder ${shown(rest)}`);
  }
}

/** Without `.0`, which numbers with fractions have here. */
function shown(value: f64): string {
  const written = value.toString();
  return written.endsWith(".0") ? written.slice(0, -2) : written;
}
