const std = @import("std");
const toolcell = @import("toolcell");

const Arguments = struct {
    dividend: f64,
    divisor: f64,
    remainder: bool = false,

    pub const descriptions = .{
        .dividend = "The number to divide.",
        .divisor = "The number to divide by; not zero.",
        .remainder = "Divide whole, and tell the remainder.",
    };
};

fn run_{{function}}(given: Arguments, _: toolcell.Call) toolcell.Result {
    if (given.divisor == 0) return toolcell.invalid("`divisor` is zero", .{});
    if (!given.remainder) return toolcell.print("{d}", .{given.dividend / given.divisor});
    const whole = @trunc(given.dividend / given.divisor);
    return toolcell.print("{d} remainder {d}", .{ whole, given.dividend - whole * given.divisor });
}

comptime {
    toolcell.exportTools(.{
        .{
            .name = "{{function}}",
            .description = "Divides one number by another.",
            .run = run_{{function}},
            .read_only = true,
            .idempotent = true,
        },
    });
}
