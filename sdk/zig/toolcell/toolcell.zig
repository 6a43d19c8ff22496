//! Tools of Toolcell in Zig: a function whose first parameter is a struct becomes a tool, and the fields become its schema.
//!
//! Each call runs in a new instance, so that no memory needs to be freed.

const std = @import("std");
const builtin = @import("builtin");

pub const files = @import("files.zig");
pub const http = @import("http.zig");

/// Memory of the call.
pub const allocator = if (builtin.cpu.arch.isWasm()) std.heap.wasm_allocator else std.heap.page_allocator;

/// One call of a tool.
pub const Call = struct {
    /// Identifier, unique in the session.
    id: []const u8 = "",
    context: []const Entry = &.{},

    /// Value of the session, with its value in JSON.
    pub const Entry = extern struct { name: Text, json: Text };
};

/// What empty texts and lists point to, aligned for every type.
const nothing: [8]u8 align(8) = @splat(0);

/// A text in the layout of the canonical ABI.
pub const Text = extern struct {
    data: [*]const u8,
    size: usize,

    pub fn of(value: []const u8) Text {
        // The address of an empty slice can be anything, and the host checks it.
        return if (value.len == 0) .none else .{ .data = value.ptr, .size = value.len };
    }
    const none: Text = .{ .data = &nothing, .size = 0 };
    pub fn slice(of_text: Text) []const u8 {
        return if (of_text.size == 0) "" else of_text.data[0..of_text.size];
    }
};

const Option = extern struct {
    is_some: u8 = 0,
    value: Text = .none,

    fn of(value: ?[]const u8) Option {
        return if (value) |some| .{ .is_some = 1, .value = .of(some) } else .{};
    }
};

/// Part of a result.
pub const Part = extern struct {
    tag: u8,
    first: Text,
    second: Text = .none,
    media_type: Option = .{},
};

pub fn text(value: []const u8) Part {
    return .{ .tag = 0, .first = .of(value) };
}
pub fn blob(media_type: []const u8, data: []const u8) Part {
    return .{ .tag = 1, .first = .of(media_type), .second = .of(data) };
}
pub fn link(uri: []const u8, name: []const u8) Part {
    return .{ .tag = 2, .first = .of(uri), .second = .of(name) };
}

/// Kind of an error: what may help.
pub const Kind = enum(u8) { invalid_arguments, denied, unavailable, failed };

/// Result of a call: parts and possibly a structured value in JSON, or an error with a message for the model.
pub const Result = union(enum) {
    output: struct { parts: []const Part, structured: ?[]const u8 = null },
    failure: struct { kind: Kind, message: []const u8 },
};

/// A formatted text as the result.
pub fn print(comptime format: []const u8, values: anytype) Result {
    return parts(&.{text(write(format, values))});
}
pub fn parts(list: []const Part) Result {
    return .{ .output = .{ .parts = allocator.dupe(Part, list) catch @trap() } };
}
/// A structured value: its JSON is the text as well.
pub fn structured(value: anytype) Result {
    const json = std.json.Stringify.valueAlloc(allocator, value, .{}) catch @trap();
    const list = allocator.dupe(Part, &.{text(json)}) catch @trap();
    return .{ .output = .{ .parts = list, .structured = json } };
}
/// The arguments make no sense: the model can call again with others.
pub fn invalid(comptime format: []const u8, values: anytype) Result {
    return fail(.invalid_arguments, format, values);
}
/// Something is not granted: calling again does not help.
pub fn denied(comptime format: []const u8, values: anytype) Result {
    return fail(.denied, format, values);
}
/// An external system did not answer: the same call may succeed later.
pub fn unavailable(comptime format: []const u8, values: anytype) Result {
    return fail(.unavailable, format, values);
}
/// The operation failed.
pub fn failed(comptime format: []const u8, values: anytype) Result {
    return fail(.failed, format, values);
}
fn fail(kind: Kind, comptime format: []const u8, values: anytype) Result {
    return .{ .failure = .{ .kind = kind, .message = write(format, values) } };
}
fn write(comptime format: []const u8, values: anytype) []const u8 {
    return std.fmt.allocPrint(allocator, format, values) catch @trap();
}

/// A tool. `run` is `fn (Arguments, Call) Result` or returns `!Result`; an error of Zig fails the call with its name.
pub fn Tool(comptime Function: type) type {
    return struct {
        name: []const u8,
        description: []const u8,
        title: ?[]const u8 = null,
        run: Function,
        read_only: bool = false,
        destructive: bool = false,
        idempotent: bool = false,
        open_world: bool = false,
    };
}

/// Calls a function with JSON, as the host does.
pub fn callWithJson(comptime run: anytype, json: []const u8, call: Call) Result {
    const Arguments = @typeInfo(@TypeOf(run)).@"fn".param_types[0].?;
    const given = std.json.parseFromSliceLeaky(Arguments, allocator, json, .{ .ignore_unknown_fields = true }) catch |e|
        return invalid("the arguments cannot be read: {s}", .{@errorName(e)});
    const value = run(given, call);
    if (@TypeOf(value) == Result) return value;
    return value catch |e| failed("{s}", .{@errorName(e)});
}

/// Returns the JSON Schema of a struct. A declaration `descriptions` of it has texts by the names of fields.
pub fn schema(comptime T: type) []const u8 {
    comptime {
        @setEvalBranchQuota(100_000);
        return object(T);
    }
}

fn object(comptime T: type) []const u8 {
    var properties: []const u8 = "";
    var required: []const u8 = "";
    const info = @typeInfo(T).@"struct";
    for (info.field_names, info.field_types, info.field_attrs) |name, Field, attributes| {
        const comma = if (properties.len == 0) "" else ",";
        var property = typeOf(Field);
        if (@hasDecl(T, "descriptions") and @hasField(@TypeOf(T.descriptions), name)) {
            const description = quoted(@field(T.descriptions, name));
            property = property[0 .. property.len - 1] ++ ",\"description\":" ++ description ++ "}";
        }
        properties = properties ++ comma ++ quoted(name) ++ ":" ++ property;
        if (attributes.default_value_ptr == null)
            required = required ++ (if (required.len == 0) "" else ",") ++ quoted(name);
    }
    return "{\"type\":\"object\",\"properties\":{" ++ properties ++ "},\"required\":[" ++ required ++
        "],\"additionalProperties\":false}";
}

fn typeOf(comptime T: type) []const u8 {
    return switch (@typeInfo(T)) {
        .bool => "{\"type\":\"boolean\"}",
        .float => "{\"type\":\"number\"}",
        .int => |int| if (int.bits > 53)
            "{\"type\":\"integer\"}"
        else
            std.fmt.comptimePrint("{{\"type\":\"integer\",\"minimum\":{d},\"maximum\":{d}}}", .{ std.math.minInt(T), std.math.maxInt(T) }),
        .optional => |of| typeOf(of.child),
        .pointer => |of| if (of.child == u8) "{\"type\":\"string\"}" else "{\"type\":\"array\",\"items\":" ++ typeOf(of.child) ++ "}",
        .@"struct" => object(T),
        .@"enum" => |of| blk: {
            var cases: []const u8 = "";
            for (of.field_names) |name| cases = cases ++ (if (cases.len == 0) "" else ",") ++ quoted(name);
            break :blk "{\"enum\":[" ++ cases ++ "]}";
        },
        else => @compileError("toolcell: a parameter cannot have the type " ++ @typeName(T)),
    };
}

fn quoted(comptime value: []const u8) []const u8 {
    var json: []const u8 = "\"";
    for (value) |c| json = json ++ switch (c) {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\n' => "\\n",
        else => &[_]u8{c},
    };
    return json ++ "\"";
}

pub const Level = enum(u32) { trace, debug, info, warn, err };

const host = struct {
    extern "toolcell:tool/log@0.1.0" fn write(level: u32, data: [*]const u8, size: usize) void;
    extern "toolcell:tool/progress@0.1.0" fn report(done: u64, has_total: u32, total: u64, has_message: u32, data: [*]const u8, size: usize) void;
};

/// Writes a message for the user. The model does not read it.
pub fn log(level: Level, comptime format: []const u8, values: anytype) void {
    const message = write(format, values);
    if (builtin.cpu.arch.isWasm()) host.write(@backingInt(level), message.ptr, message.len);
}

/// Reports to the user that `done` of `total` steps are completed.
pub fn progress(done: u64, total: ?u64, message: ?[]const u8) void {
    const said = message orelse "";
    if (builtin.cpu.arch.isWasm())
        host.report(done, @intFromBool(total != null), total orelse 0, @intFromBool(message != null), said.ptr, said.len);
}

const Definition = extern struct {
    name: Text,
    title: Option,
    description: Text,
    input_schema: Text,
    output_schema: Option = .{},
    hints: u8,
    annotations: Text = .none,
};
const Definitions = extern struct { items: [*]const Definition, count: usize };

const Output = extern struct { parts: [*]const Part, count: usize, structured: Option };
const Failure = extern struct { kind: u8, message: Text };
const Returned = extern struct { is_error: u8, of: extern union { output: Output, failure: Failure } };

/// Exports the tools of the component: `comptime { toolcell.exportTools(.{ … }); }` once, each entry with `name`, `description`,
/// `run` and the optional fields of `Tool`.
pub fn exportTools(comptime tools: anytype) void {
    const Exports = struct {
        const items = blk: {
            var list: [tools.len]Definition = undefined;
            for (tools, 0..) |entry, i| {
                const tool = complete(entry);
                const Arguments = @typeInfo(@TypeOf(tool.run)).@"fn".param_types[0].?;
                const hints = [_]bool{ tool.read_only, tool.destructive, tool.idempotent, tool.open_world };
                var flags: u8 = 0;
                for (hints, 0..) |is_set, bit| flags |= @as(u8, @intFromBool(is_set)) << bit;
                list[i] = .{
                    .name = .of(tool.name),
                    .title = .of(tool.title),
                    .description = .of(tool.description),
                    .input_schema = .of(schema(Arguments)),
                    .hints = flags,
                };
            }
            break :blk list;
        };
        const definitions_list: Definitions = .{ .items = &items, .count = items.len };

        fn definitions() callconv(.c) *const Definitions {
            return &definitions_list;
        }

        fn run(
            id: [*]const u8,
            id_size: usize,
            name: [*]const u8,
            name_size: usize,
            arguments: [*]const u8,
            arguments_size: usize,
            context: [*]const Call.Entry,
            context_size: usize,
        ) callconv(.c) *const Returned {
            const called = name[0..name_size];
            const call: Call = .{ .id = id[0..id_size], .context = context[0..context_size] };
            inline for (tools) |tool| {
                if (std.mem.eql(u8, called, tool.name)) return lower(callWithJson(tool.run, arguments[0..arguments_size], call));
            }
            return lower(invalid("this component has no tool `{s}`", .{called[0..@min(called.len, 64)]}));
        }

        fn realloc(old: ?[*]u8, old_size: usize, alignment: usize, size: usize) callconv(.c) ?*anyopaque {
            if (size == 0) return @ptrFromInt(alignment);
            const new = allocator.alignedAlloc(u8, .@"8", size) catch @trap();
            if (old) |from| @memcpy(new[0..@min(old_size, size)], from[0..@min(old_size, size)]);
            return new.ptr;
        }
    };
    if (!builtin.cpu.arch.isWasm()) return;
    @export(&Exports.definitions, .{ .name = "toolcell:tool/tools@0.1.0#definitions" });
    @export(&Exports.run, .{ .name = "toolcell:tool/tools@0.1.0#run" });
    @export(&Exports.realloc, .{ .name = "cabi_realloc" });
}

fn complete(comptime entry: anytype) Tool(@TypeOf(entry.run)) {
    var tool: Tool(@TypeOf(entry.run)) = .{ .name = entry.name, .description = entry.description, .run = entry.run };
    for (.{ "title", "read_only", "destructive", "idempotent", "open_world" }) |field| {
        if (@hasField(@TypeOf(entry), field)) @field(tool, field) = @field(entry, field);
    }
    return tool;
}

fn lower(result: Result) *const Returned {
    const returned = allocator.create(Returned) catch @trap();
    returned.* = switch (result) {
        .output => |output| .{ .is_error = 0, .of = .{ .output = .{
            .parts = if (output.parts.len == 0) @ptrCast(&nothing) else output.parts.ptr,
            .count = output.parts.len,
            .structured = .of(output.structured),
        } } },
        .failure => |failure| .{ .is_error = 1, .of = .{ .failure = .{
            .kind = @backingInt(failure.kind),
            .message = .of(failure.message),
        } } },
    };
    return returned;
}
