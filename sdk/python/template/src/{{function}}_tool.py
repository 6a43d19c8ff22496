import math
from typing import Annotated

from toolcell import ToolError, tool


@tool(read_only=True, idempotent=True)
def {{function}}(
    dividend: Annotated[float, "The number to divide."],
    divisor: Annotated[float, "The number to divide by; not zero."],
    remainder: Annotated[bool, "Divide whole, and tell the remainder."] = False,
) -> str:
    """Divides one number by another."""
    if divisor == 0:
        raise ToolError.invalid("`divisor` is zero")
    quotient = dividend / divisor
    if not remainder or math.isinf(quotient):
        return f"{quotient:.15g}"
    whole = math.trunc(quotient)
    return f"{whole} remainder {dividend - whole * divisor:.15g}"
