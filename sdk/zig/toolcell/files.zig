//! Files that are granted, with "files" in `wasi` of tool.toml.

const std = @import("std");
const toolcell = @import("toolcell.zig");

const allocator = toolcell.allocator;
const Text = toolcell.Text;

/// Errors of WASI.
pub const Error = error{
    Access,
    WouldBlock,
    Already,
    BadDescriptor,
    Busy,
    Deadlock,
    Quota,
    Exists,
    FileTooLarge,
    IllegalByteSequence,
    InProgress,
    Interrupted,
    Invalid,
    InputOutput,
    IsDirectory,
    Loop,
    TooManyLinks,
    MessageSize,
    NameTooLong,
    NoDevice,
    NoEntry,
    NoLock,
    InsufficientMemory,
    InsufficientSpace,
    NotDirectory,
    NotEmpty,
    NotRecoverable,
    Unsupported,
    NoTerminal,
    NoSuchDevice,
    Overflow,
    NotPermitted,
    Pipe,
    ReadOnly,
    InvalidSeek,
    TextFileBusy,
    CrossDevice,
    /// The path is in no granted directory.
    NotGranted,
};

/// The errors in the order of WASI.
const errors = [_]Error{
    error.Access,       error.WouldBlock,          error.Already,            error.BadDescriptor,
    error.Busy,         error.Deadlock,            error.Quota,              error.Exists,
    error.FileTooLarge, error.IllegalByteSequence, error.InProgress,         error.Interrupted,
    error.Invalid,      error.InputOutput,         error.IsDirectory,        error.Loop,
    error.TooManyLinks, error.MessageSize,         error.NameTooLong,        error.NoDevice,
    error.NoEntry,      error.NoLock,              error.InsufficientMemory, error.InsufficientSpace,
    error.NotDirectory, error.NotEmpty,            error.NotRecoverable,     error.Unsupported,
    error.NoTerminal,   error.NoSuchDevice,        error.Overflow,           error.NotPermitted,
    error.Pipe,         error.ReadOnly,            error.InvalidSeek,        error.TextFileBusy,
    error.CrossDevice,
};

/// Bytes that are read or written at once.
const chunk = 1 << 20;

const Directory = extern struct { descriptor: i32, name: Text };
const Directories = extern struct { items: [*]const Directory, count: usize };
const Opened = extern struct { is_error: u8, of: extern union { descriptor: i32, code: u8 } };
const Read = extern struct { is_error: u8, of: extern union { read: extern struct { bytes: Text, is_end: u8 }, code: u8 } };
const Written = extern struct { is_error: u8, of: extern union { size: u64, code: u8 } };
const Entry = extern struct { is_some: u8, kind: u8 align(4), name: Text };
const Next = extern struct { is_error: u8, of: extern union { entry: Entry, code: u8 } };

const host = struct {
    extern "wasi:filesystem/preopens@0.2.12" fn @"get-directories"(returned: *Directories) void;
    extern "wasi:filesystem/types@0.2.12" fn @"[method]descriptor.open-at"(dir: i32, path_flags: u32, path: [*]const u8, size: usize, open_flags: u32, flags: u32, returned: *Opened) void;
    extern "wasi:filesystem/types@0.2.12" fn @"[method]descriptor.read"(file: i32, length: u64, offset: u64, returned: *Read) void;
    extern "wasi:filesystem/types@0.2.12" fn @"[method]descriptor.write"(file: i32, bytes: [*]const u8, size: usize, offset: u64, returned: *Written) void;
    extern "wasi:filesystem/types@0.2.12" fn @"[method]descriptor.read-directory"(dir: i32, returned: *Opened) void;
    extern "wasi:filesystem/types@0.2.12" fn @"[method]directory-entry-stream.read-directory-entry"(stream: i32, returned: *Next) void;
    extern "wasi:filesystem/types@0.2.12" fn @"[resource-drop]descriptor"(file: i32) void;
};

/// Flags of WASI.
const follow = 1;
const open_create = 1;
const open_directory = 2;
const open_truncate = 8;
const flag_read = 1;
const flag_write = 2;

/// Reads a file.
pub fn read(path: []const u8) (Error || error{OutOfMemory})![]u8 {
    const file = try open(path, 0, flag_read);
    var content: std.ArrayList(u8) = .empty;
    while (true) {
        var part: Read = undefined;
        host.@"[method]descriptor.read"(file, chunk, content.items.len, &part);
        if (part.is_error != 0) return errorOf(part.of.code);
        try content.appendSlice(allocator, part.of.read.bytes.slice());
        if (part.of.read.is_end != 0 or part.of.read.bytes.size == 0) break;
    }
    host.@"[resource-drop]descriptor"(file);
    return content.items;
}

/// Writes a file, in place of what it had.
pub fn write(path: []const u8, content: []const u8) Error!void {
    const file = try open(path, open_create | open_truncate, flag_write);
    var at: usize = 0;
    while (at < content.len) {
        const part = content[at..@min(at + chunk, content.len)];
        var written: Written = undefined;
        host.@"[method]descriptor.write"(file, part.ptr, part.len, at, &written);
        if (written.is_error != 0) return errorOf(written.of.code);
        at += @intCast(written.of.size);
    }
    host.@"[resource-drop]descriptor"(file);
}

/// Lists the names in a directory, in the order of the host.
pub fn list(path: []const u8) (Error || error{OutOfMemory})![]const []const u8 {
    const dir = try open(path, open_directory, flag_read);
    var stream: Opened = undefined;
    host.@"[method]descriptor.read-directory"(dir, &stream);
    if (stream.is_error != 0) return errorOf(stream.of.code);
    var names: std.ArrayList([]const u8) = .empty;
    while (true) {
        var next: Next = undefined;
        host.@"[method]directory-entry-stream.read-directory-entry"(stream.of.descriptor, &next);
        if (next.is_error != 0) return errorOf(next.of.code);
        if (next.of.entry.is_some == 0) return names.items;
        try names.append(allocator, next.of.entry.name.slice());
    }
}

/// The error of a tool for an error of this module, with the path.
pub fn failure(path: []const u8, reason: anyerror) toolcell.Result {
    const values = .{ path, @errorName(reason) };
    return switch (reason) {
        error.Access, error.NotPermitted, error.NotGranted => toolcell.denied("`{s}`: {s}", values),
        else => toolcell.failed("`{s}`: {s}", values),
    };
}

fn errorOf(code: u8) Error {
    return if (code < errors.len) errors[code] else error.InputOutput;
}

/// Opens a file in the granted directory with the longest name that contains it.
fn open(path: []const u8, open_flags: u32, flags: u32) Error!i32 {
    var directories: Directories = undefined;
    host.@"get-directories"(&directories);
    var best: ?Directory = null;
    var rest: []const u8 = "";
    for (directories.items[0..directories.count]) |directory| {
        const within = below(path, directory.name.slice()) orelse continue;
        if (best != null and within.len >= rest.len) continue;
        best = directory;
        rest = within;
    }
    const directory = best orelse return error.NotGranted;
    const name = if (rest.len == 0) "." else rest;
    var opened: Opened = undefined;
    host.@"[method]descriptor.open-at"(directory.descriptor, follow, name.ptr, name.len, open_flags, flags, &opened);
    return if (opened.is_error == 0) opened.of.descriptor else errorOf(opened.of.code);
}

/// Returns the part of a path below a directory, or `null` if it is elsewhere.
fn below(path: []const u8, dir: []const u8) ?[]const u8 {
    var rest = path;
    var parts = std.mem.tokenizeScalar(u8, dir, '/');
    while (parts.next()) |part| {
        if (std.mem.eql(u8, part, ".")) continue;
        rest = start(rest);
        if (!std.mem.startsWith(u8, rest, part)) return null;
        rest = rest[part.len..];
        if (rest.len != 0 and rest[0] != '/') return null;
    }
    return start(rest);
}

/// Returns a path without `/` and `./` at its start.
fn start(path: []const u8) []const u8 {
    var rest = path;
    while (true) {
        if (std.mem.startsWith(u8, rest, "/")) {
            rest = rest[1..];
        } else if (std.mem.startsWith(u8, rest, "./")) {
            rest = rest[2..];
        } else {
            return if (std.mem.eql(u8, rest, ".")) "" else rest;
        }
    }
}
