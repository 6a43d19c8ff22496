#include "toolcell.hpp"

#include <cmath>
#include <cstdio>

static std::string shown(double number) {
    char text[32];
    std::snprintf(text, sizeof text, "%.15g", number);
    return text;
}

static toolcell::result run_{{function}}(const toolcell::call &call) {
    double dividend = call.number("dividend"), divisor = call.number("divisor");
    if (divisor == 0) return toolcell::invalid("`divisor` is zero");
    if (!call.boolean("remainder")) return shown(dividend / divisor);
    double whole = std::trunc(dividend / divisor);
    return shown(whole) + " remainder " + shown(dividend - whole * divisor);
}

static const tc_parameter PARAMETERS[] = {
    {.name = "dividend", .kind = TC_NUMBER, .description = "The number to divide."},
    {.name = "divisor", .kind = TC_NUMBER, .description = "The number to divide by; not zero."},
    {.name = "remainder", .kind = TC_BOOLEAN, .description = "Divide whole, and tell the remainder.", .optional = true},
};

static const tc_tool TOOLS[] = {
    {
        .name = "{{function}}",
        .description = "Divides one number by another.",
        TC_PARAMETERS(PARAMETERS),
        .run = toolcell::run<run_{{function}}>,
        .read_only = true,
        .idempotent = true,
    },
};
TC_TOOLS(TOOLS)
