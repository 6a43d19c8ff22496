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
    if not remainder:
        return f"{dividend / divisor:g}"
    whole = int(dividend / divisor)
    return f"{whole} remainder {dividend - whole * divisor:g}"
