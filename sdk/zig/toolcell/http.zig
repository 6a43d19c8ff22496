//! Requests to hosts that are granted, with "http" in `wasi` of tool.toml.

const std = @import("std");
const toolcell = @import("toolcell.zig");

const allocator = toolcell.allocator;
const Text = toolcell.Text;

/// Bytes that are written at once: the most that a stream of WASI takes.
const written_at_once = 4096;
/// Bytes that are read at once.
const read_at_once = 65536;

/// A header. Of a response, the name is in lower case.
pub const Header = struct { name: []const u8, value: []const u8 };

/// A request.
pub const Request = struct {
    url: []const u8,
    method: []const u8 = "GET",
    headers: []const Header = &.{},
    body: []const u8 = "",
    /// Maximum size of the body of the response, in bytes.
    max_body: usize = 8 << 20,
};

/// A response.
pub const Response = struct { status: u16, headers: []const Header, body: []const u8 };

/// A response, or the error for the tool to return.
pub const Answer = union(enum) { response: Response, failure: toolcell.Result };

/// A value or an error, each in four bytes.
const Result = extern struct { is_error: u8, of: extern union { handle: i32, bytes: Text, error_tag: u8 } };
/// An error of HTTP in its layout. Only its kind is used.
const Code = extern struct { kind: u8, of: extern struct { words: [3]u64 } };
const Handled = extern struct { is_error: u8, of: extern union { future: i32, code: Code } };
const Taken = extern struct { is_some: u8, was_taken: u8 align(8), handled: Handled };
const Entry = extern struct { name: Text, value: Text };
const Entries = extern struct { items: [*]const Entry, count: usize };

const host = struct {
    extern "wasi:http/types@0.2.12" fn @"[constructor]fields"() i32;
    extern "wasi:http/types@0.2.12" fn @"[method]fields.append"(fields: i32, name: [*]const u8, size: usize, value: [*]const u8, value_size: usize, returned: *[2]u8) void;
    extern "wasi:http/types@0.2.12" fn @"[method]fields.entries"(fields: i32, returned: *Entries) void;
    extern "wasi:http/types@0.2.12" fn @"[constructor]outgoing-request"(headers: i32) i32;
    extern "wasi:http/types@0.2.12" fn @"[method]outgoing-request.set-method"(request: i32, method: u32, name: [*]const u8, size: usize) u32;
    extern "wasi:http/types@0.2.12" fn @"[method]outgoing-request.set-scheme"(request: i32, is_some: u32, scheme: u32, name: [*]const u8, size: usize) u32;
    extern "wasi:http/types@0.2.12" fn @"[method]outgoing-request.set-authority"(request: i32, is_some: u32, name: [*]const u8, size: usize) u32;
    extern "wasi:http/types@0.2.12" fn @"[method]outgoing-request.set-path-with-query"(request: i32, is_some: u32, name: [*]const u8, size: usize) u32;
    extern "wasi:http/types@0.2.12" fn @"[method]outgoing-request.body"(request: i32, returned: *Result) void;
    extern "wasi:http/types@0.2.12" fn @"[method]outgoing-body.write"(body: i32, returned: *Result) void;
    extern "wasi:http/types@0.2.12" fn @"[static]outgoing-body.finish"(body: i32, has_trailers: u32, trailers: i32, returned: *Handled) void;
    extern "wasi:io/streams@0.2.12" fn @"[method]output-stream.blocking-write-and-flush"(stream: i32, bytes: [*]const u8, size: usize, returned: *Result) void;
    extern "wasi:io/streams@0.2.12" fn @"[resource-drop]output-stream"(stream: i32) void;
    extern "wasi:http/outgoing-handler@0.2.12" fn handle(request: i32, has_options: u32, options: i32, returned: *Handled) void;
    extern "wasi:http/types@0.2.12" fn @"[method]future-incoming-response.subscribe"(future: i32) i32;
    extern "wasi:io/poll@0.2.12" fn @"[method]pollable.block"(pollable: i32) void;
    extern "wasi:http/types@0.2.12" fn @"[method]future-incoming-response.get"(future: i32, returned: *Taken) void;
    extern "wasi:http/types@0.2.12" fn @"[method]incoming-response.status"(response: i32) u32;
    extern "wasi:http/types@0.2.12" fn @"[method]incoming-response.headers"(response: i32) i32;
    extern "wasi:http/types@0.2.12" fn @"[method]incoming-response.consume"(response: i32, returned: *Result) void;
    extern "wasi:http/types@0.2.12" fn @"[method]incoming-body.stream"(body: i32, returned: *Result) void;
    extern "wasi:io/streams@0.2.12" fn @"[method]input-stream.blocking-read"(stream: i32, size: u64, returned: *Result) void;
};

/// Methods and errors of WASI in their order.
const methods = [_][]const u8{ "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH" };
const errors = [_][]const u8{
    "DNS-timeout",                       "DNS-error",
    "destination-not-found",             "destination-unavailable",
    "destination-IP-prohibited",         "destination-IP-unroutable",
    "connection-refused",                "connection-terminated",
    "connection-timeout",                "connection-read-timeout",
    "connection-write-timeout",          "connection-limit-reached",
    "TLS-protocol-error",                "TLS-certificate-error",
    "TLS-alert-received",                "HTTP-request-denied",
    "HTTP-request-length-required",      "HTTP-request-body-size",
    "HTTP-request-method-invalid",       "HTTP-request-URI-invalid",
    "HTTP-request-URI-too-long",         "HTTP-request-header-section-size",
    "HTTP-request-header-size",          "HTTP-request-trailer-section-size",
    "HTTP-request-trailer-size",         "HTTP-response-incomplete",
    "HTTP-response-header-section-size", "HTTP-response-header-size",
    "HTTP-response-body-size",           "HTTP-response-trailer-section-size",
    "HTTP-response-trailer-size",        "HTTP-response-transfer-coding",
    "HTTP-response-content-coding",      "HTTP-response-timeout",
    "HTTP-upgrade-failed",               "HTTP-protocol-error",
    "loop-detected",                     "configuration-error",
    "internal-error",
};
const denied_code = 15;

/// Sends a request with GET.
pub fn get(url: []const u8) Answer {
    return send(.{ .url = url });
}

/// Sends a request and waits for the whole response.
pub fn send(request: Request) Answer {
    const url = request.url;
    const is_secure = std.mem.startsWith(u8, url, "https://");
    if (!is_secure and !std.mem.startsWith(u8, url, "http://")) return invalid("not a URL for HTTP: {s}", url);
    const rest = url[if (is_secure) 8 else 7..];
    const end = std.mem.indexOfAny(u8, rest, "/?#") orelse rest.len;
    const authority = rest[0..end];
    const target = rest[end .. std.mem.indexOfScalarPos(u8, rest, end, '#') orelse rest.len];
    const has_slash = std.mem.startsWith(u8, target, "/");
    const path = if (has_slash) target else std.mem.concat(allocator, u8, &.{ "/", target }) catch @trap();

    const fields = host.@"[constructor]fields"();
    var has_length = false;
    for (request.headers) |header| {
        if (!append(fields, header)) return invalid("not a header of a request: {s}", header.name);
        has_length = has_length or std.ascii.eqlIgnoreCase(header.name, "content-length");
    }
    const is_read = std.mem.eql(u8, request.method, "GET") or std.mem.eql(u8, request.method, "HEAD");
    // Many servers take no body without its length.
    if (!has_length and (request.body.len != 0 or !is_read)) {
        const length = std.fmt.allocPrint(allocator, "{d}", .{request.body.len}) catch @trap();
        _ = append(fields, .{ .name = "content-length", .value = length });
    }
    var method: u32 = 0;
    while (method < methods.len and !std.mem.eql(u8, methods[method], request.method)) method += 1;
    const outgoing = host.@"[constructor]outgoing-request"(fields);
    if (host.@"[method]outgoing-request.set-method"(outgoing, method, request.method.ptr, request.method.len) != 0 or
        host.@"[method]outgoing-request.set-scheme"(outgoing, 1, @intFromBool(is_secure), "", 0) != 0 or
        host.@"[method]outgoing-request.set-authority"(outgoing, 1, authority.ptr, authority.len) != 0 or
        host.@"[method]outgoing-request.set-path-with-query"(outgoing, 1, path.ptr, path.len) != 0)
        return invalid("not a URL for HTTP: {s}", url);

    var body: Result = undefined;
    host.@"[method]outgoing-request.body"(outgoing, &body);
    var handled: Handled = undefined;
    host.handle(outgoing, 0, 0, &handled);
    if (handled.is_error != 0) return errorOf(url, handled.of.code);
    const future = handled.of.future;
    // A request that is refused closes its body; the answer has the reason.
    if (sendBody(body.of.handle, request.body)) {
        var ignored: Handled = undefined;
        host.@"[static]outgoing-body.finish"(body.of.handle, 0, 0, &ignored);
    }
    host.@"[method]pollable.block"(host.@"[method]future-incoming-response.subscribe"(future));
    var taken: Taken = undefined;
    host.@"[method]future-incoming-response.get"(future, &taken);
    if (taken.was_taken != 0) return .{ .failure = toolcell.failed("{s}: the response was taken already", .{url}) };
    if (taken.handled.is_error != 0) return errorOf(url, taken.handled.of.code);
    return receive(taken.handled.of.future, url, request.max_body);
}

/// Appends a header. Returns `false` if it is none of a request.
fn append(fields: i32, header: Header) bool {
    var appended: [2]u8 = undefined;
    host.@"[method]fields.append"(fields, header.name.ptr, header.name.len, header.value.ptr, header.value.len, &appended);
    return appended[0] == 0;
}

/// Sends a body. Returns `false` if it was closed before its end.
fn sendBody(body: i32, bytes: []const u8) bool {
    if (bytes.len == 0) return true;
    var stream: Result = undefined;
    host.@"[method]outgoing-body.write"(body, &stream);
    var parts = std.mem.window(u8, bytes, written_at_once, written_at_once);
    while (parts.next()) |part| {
        var sent: Result = undefined;
        host.@"[method]output-stream.blocking-write-and-flush"(stream.of.handle, part.ptr, part.len, &sent);
        if (sent.is_error != 0) return false;
    }
    host.@"[resource-drop]output-stream"(stream.of.handle);
    return true;
}

fn receive(incoming: i32, url: []const u8, max_body: usize) Answer {
    var entries: Entries = undefined;
    host.@"[method]fields.entries"(host.@"[method]incoming-response.headers"(incoming), &entries);
    const headers = allocator.alloc(Header, entries.count) catch @trap();
    for (headers, entries.items[0..entries.count]) |*header, entry| {
        const name = std.ascii.allocLowerString(allocator, entry.name.slice()) catch @trap();
        header.* = .{ .name = name, .value = entry.value.slice() };
    }
    var opened: Result = undefined;
    host.@"[method]incoming-response.consume"(incoming, &opened);
    host.@"[method]incoming-body.stream"(opened.of.handle, &opened);
    const stream = opened.of.handle;
    var body: std.ArrayList(u8) = .empty;
    while (true) {
        var part: Result = undefined;
        host.@"[method]input-stream.blocking-read"(stream, read_at_once, &part);
        if (part.is_error != 0) {
            // 1: the stream has ended.
            if (part.of.error_tag == 1) break;
            return .{ .failure = toolcell.unavailable("{s}: the response ended early", .{url}) };
        }
        body.appendSlice(allocator, part.of.bytes.slice()) catch @trap();
        if (body.items.len > max_body)
            return .{ .failure = toolcell.failed("{s}: the response has more than {d} bytes", .{ url, max_body }) };
    }
    const status: u16 = @intCast(host.@"[method]incoming-response.status"(incoming));
    return .{ .response = .{ .status = status, .headers = headers, .body = body.items } };
}

fn invalid(comptime format: []const u8, value: []const u8) Answer {
    return .{ .failure = toolcell.invalid(format, .{value}) };
}

fn errorOf(url: []const u8, code: Code) Answer {
    const name = if (code.kind < errors.len) errors[code.kind] else "error";
    const values = .{ url, name };
    return .{ .failure = if (code.kind == denied_code) toolcell.denied("{s}: {s}", values) else toolcell.unavailable("{s}: {s}", values) };
}
