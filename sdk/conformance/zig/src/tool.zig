//! The conformance fixture in Zig.

const std = @import("std");
const toolcell = @import("toolcell");

var calls: u32 = 0;

const Text = struct {
    text: []const u8,
    pub const descriptions = .{ .text = "The text." };
};
fn echo(given: Text, _: toolcell.Call) !toolcell.Result {
    toolcell.log(.info, "echoing {d}", .{try std.unicode.utf8CountCodepoints(given.text)});
    toolcell.progress(1, 2, "half");
    return toolcell.parts(&.{toolcell.text(given.text)});
}

const Sum = struct {
    left: i32,
    right: i32,
    negate: bool = false,
    pub const descriptions = .{ .left = "The first.", .right = "The second.", .negate = "Negate the sum." };
};
fn add(given: Sum, _: toolcell.Call) toolcell.Result {
    const sum = given.left +% given.right;
    return toolcell.structured(.{ .sum = if (given.negate) -sum else sum });
}

const Failure = struct {
    kind: toolcell.Kind,
    pub const descriptions = .{ .kind = "The kind." };
};
fn fail(given: Failure, _: toolcell.Call) toolcell.Result {
    const name = .{@tagName(given.kind)};
    return switch (given.kind) {
        .invalid_arguments => toolcell.invalid("as asked: {s} é", name),
        .denied => toolcell.denied("as asked: {s} é", name),
        .unavailable => toolcell.unavailable("as asked: {s} é", name),
        .failed => toolcell.failed("as asked: {s} é", name),
    };
}

const Nothing = struct {};
fn parts(_: Nothing, _: toolcell.Call) toolcell.Result {
    return toolcell.parts(&.{
        toolcell.text("text"),
        toolcell.blob("image/png", "\x00\xff\x80"),
        toolcell.link("https://example.org/x", "an example"),
    });
}

fn count(_: Nothing, _: toolcell.Call) toolcell.Result {
    calls += 1;
    return toolcell.print("{d}", .{calls});
}

fn crash(_: Nothing, _: toolcell.Call) toolcell.Result {
    @panic("out of cheese 42");
}

const Path = struct {
    path: []const u8,
    pub const descriptions = .{ .path = "The file." };
};
fn readFile(given: Path, _: toolcell.Call) toolcell.Result {
    const content = toolcell.files.read(given.path) catch |e| return toolcell.files.failure(given.path, e);
    return toolcell.parts(&.{toolcell.text(content)});
}

const Url = struct {
    url: []const u8,
    body: ?[]const u8 = null,
    pub const descriptions = .{ .url = "The address.", .body = "What is sent; without it nothing is." };
};
fn getUrl(given: Url, _: toolcell.Call) toolcell.Result {
    const answer = if (given.body) |body|
        toolcell.http.send(.{ .url = given.url, .method = "POST", .body = body })
    else
        toolcell.http.get(given.url);
    return switch (answer) {
        .response => |response| toolcell.print("{d} {s}", .{ response.status, response.body }),
        .failure => |failure| failure,
    };
}

comptime {
    toolcell.exportTools(.{
        .{ .name = "echo", .description = "Returns a text.", .run = echo },
        .{ .name = "add", .description = "Adds two numbers.", .run = add, .read_only = true },
        .{ .name = "fail", .description = "Fails.", .run = fail },
        .{ .name = "parts", .description = "Returns several parts.", .run = parts },
        .{ .name = "count", .description = "Counts its calls.", .run = count },
        .{ .name = "crash", .description = "Crashes.", .run = crash },
        .{ .name = "read_file", .description = "Reads a file.", .run = readFile },
        .{ .name = "get_url", .description = "Sends a request.", .run = getUrl },
    });
}
