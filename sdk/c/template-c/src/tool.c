#include "toolcell.h"

static const tc_parameter PARAMETERS[] = {
    {.name = "dividend", .kind = TC_NUMBER, .description = "The number to divide."},
    {.name = "divisor", .kind = TC_NUMBER, .description = "The number to divide by; not zero."},
    {.name = "remainder", .kind = TC_BOOLEAN, .description = "Divide whole, and tell the remainder.", .optional = true},
};

static tc_result *run_{{function}}(const tc_call *call) {
    double dividend = tc_number(call, "dividend", 0);
    double divisor = tc_number(call, "divisor", 0);
    if (divisor == 0) return tc_invalid("`divisor` is zero");
    if (!tc_boolean(call, "remainder", false)) return tc_text("%.15g", dividend / divisor);
    double whole = __builtin_trunc(dividend / divisor);
    return tc_text("%.15g remainder %.15g", whole, dividend - whole * divisor);
}

static const tc_tool TOOLS[] = {
    {
        .name = "{{function}}",
        .description = "Divides one number by another.",
        TC_PARAMETERS(PARAMETERS),
        .run = run_{{function}},
        .read_only = true,
        .idempotent = true,
    },
};
TC_TOOLS(TOOLS)
