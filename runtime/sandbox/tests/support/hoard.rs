//! Probes that make the host allocate as much memory for them as possible.

use super::Probe;

/// Result of a probe that succeeded completely.
const DONE: &str = "(call $text (i32.const 0) (i32.const 0))";

/// Builds a probe with some interfaces: their imports, and each function lowered into the core module under its own
/// name.
pub(crate) fn with(import: &str, functions: &[(&str, &str, &str)], body: &str) -> Probe {
    let mut items = import.to_owned();
    let mut exports = String::new();
    let mut module = String::new();
    for (i, (name, of, signature)) in functions.iter().enumerate() {
        items.push_str(&format!(
            "(core func $wasi-{i} (canon lower (func {of}) (memory $memory) (realloc (core func $realloc))))"
        ));
        exports.push_str(&format!("(export \"{name}\" (func $wasi-{i}))"));
        module.push_str(&format!(
            "(import \"wasi\" \"{name}\" (func ${name} {signature}))"
        ));
    }
    items.push_str(&format!("(core instance $wasi {exports})"));
    Probe {
        items,
        with: "(with \"wasi\" (instance $wasi))".into(),
        module,
        run: body.into(),
        ..Probe::default()
    }
}

/// Repeats an operation `count` times, and returns.
fn times(count: u32, what: &str) -> String {
    format!(
        "(local.set $i (i32.const {count}))
         (loop $next {what} (br_if $next (local.tee $i (i32.sub (local.get $i) (i32.const 1))))) {DONE}"
    )
}

/// Creates empty headers objects.
pub(crate) fn headers(count: u32) -> Probe {
    with(
        r#"(import "wasi:http/types@0.2.0" (instance $http
            (export "fields" (type $f (sub resource)))
            (export "[constructor]fields" (func (result (own $f))))))"#,
        &[("new", "$http \"[constructor]fields\"", "(result i32)")],
        &times(count, "(drop (call $new))"),
    )
}

/// Creates requests whose method has a name of half a mebibyte.
pub(crate) fn methods(count: u32) -> Probe {
    let body = times(
        count,
        "(call $method (call $request (call $fields)) (i32.const 9) (i32.const 65536) (i32.const 524288))
         (drop)",
    );
    with(
        r#"(import "wasi:http/types@0.2.0" (instance $http
            (export "fields" (type $f (sub resource)))
            (export "outgoing-request" (type $r (sub resource)))
            (type $m (variant (case "get") (case "head") (case "post") (case "put") (case "delete") (case "connect")
                (case "options") (case "trace") (case "patch") (case "other" string)))
            (export "method" (type $method (eq $m)))
            (export "[constructor]fields" (func (result (own $f))))
            (export "[constructor]outgoing-request" (func (param "headers" (own $f)) (result (own $r))))
            (export "[method]outgoing-request.set-method"
                (func (param "self" (borrow $r)) (param "method" $method) (result (result))))))"#,
        &[
            ("fields", "$http \"[constructor]fields\"", "(result i32)"),
            (
                "request",
                "$http \"[constructor]outgoing-request\"",
                "(param i32) (result i32)",
            ),
            (
                "method",
                "$http \"[method]outgoing-request.set-method\"",
                "(param i32 i32 i32 i32) (result i32)",
            ),
        ],
        &format!(
            "(drop (memory.grow (i32.const 16)))
             (memory.fill (i32.const 65536) (i32.const 0x41) (i32.const 524288)) {body}"
        ),
    )
}

/// Writes request bodies that are never sent, twice 64 KiB each.
pub(crate) fn bodies(count: u32) -> Probe {
    let body = times(
        count,
        "(local.set $j (call $request (call $fields)))
         (call $body (local.get $j) (i32.const 256))
         (call $stream (i32.load (i32.const 260)) (i32.const 264))
         (local.set $j (i32.load (i32.const 268)))
         (call $write (local.get $j) (i32.const 65536) (i32.const 65536) (i32.const 272))
         (call $write (local.get $j) (i32.const 65536) (i32.const 65536) (i32.const 272))",
    );
    with(
        r#"(import "wasi:io/error@0.2.0" (instance $errors (export "error" (type (sub resource)))))
        (alias export $errors "error" (type $error))
        (import "wasi:io/streams@0.2.0" (instance $streams
            (export "output-stream" (type $o (sub resource)))
            (export "error" (type $e (eq $error)))
            (type $se (variant (case "last-operation-failed" (own $e)) (case "closed")))
            (export "stream-error" (type $stream-error (eq $se)))
            (export "[method]output-stream.write" (func (param "self" (borrow $o)) (param "contents" (list u8))
                (result (result (error $stream-error)))))))
        (alias export $streams "output-stream" (type $output-stream))
        (import "wasi:http/types@0.2.0" (instance $http
            (export "fields" (type $f (sub resource)))
            (export "outgoing-request" (type $r (sub resource)))
            (export "outgoing-body" (type $b (sub resource)))
            (export "output-stream" (type $o (eq $output-stream)))
            (export "[constructor]fields" (func (result (own $f))))
            (export "[constructor]outgoing-request" (func (param "headers" (own $f)) (result (own $r))))
            (export "[method]outgoing-request.body" (func (param "self" (borrow $r)) (result (result (own $b)))))
            (export "[method]outgoing-body.write" (func (param "self" (borrow $b)) (result (result (own $o)))))))"#,
        &[
            ("fields", "$http \"[constructor]fields\"", "(result i32)"),
            (
                "request",
                "$http \"[constructor]outgoing-request\"",
                "(param i32) (result i32)",
            ),
            (
                "body",
                "$http \"[method]outgoing-request.body\"",
                "(param i32 i32)",
            ),
            (
                "stream",
                "$http \"[method]outgoing-body.write\"",
                "(param i32 i32)",
            ),
            (
                "write",
                "$streams \"[method]output-stream.write\"",
                "(param i32 i32 i32 i32)",
            ),
        ],
        &format!("(drop (memory.grow (i32.const 2))) {body}"),
    )
}

/// Starts listings of its first directory, and traps on failure.
pub(crate) fn listings(count: u32) -> Probe {
    let body = times(
        count,
        "(call $list (local.get $j) (i32.const 256))
         (if (i32.load8_u (i32.const 256)) (then unreachable))",
    );
    with(
        r#"(import "wasi:filesystem/types@0.2.0" (instance $files
            (export "descriptor" (type $d (sub resource)))
            (export "directory-entry-stream" (type $s (sub resource)))
            (type $e (enum "access" "would-block" "already" "bad-descriptor" "busy" "deadlock" "quota" "exist"
                "file-too-large" "illegal-byte-sequence" "in-progress" "interrupted" "invalid" "io" "is-directory"
                "loop" "too-many-links" "message-size" "name-too-long" "no-device" "no-entry" "no-lock"
                "insufficient-memory" "insufficient-space" "not-directory" "not-empty" "not-recoverable" "unsupported"
                "no-tty" "no-such-device" "overflow" "not-permitted" "pipe" "read-only" "invalid-seek"
                "text-file-busy" "cross-device"))
            (export "error-code" (type $error (eq $e)))
            (export "[method]descriptor.read-directory" (func (param "self" (borrow $d))
                (result (result (own $s) (error $error)))))))
        (alias export $files "descriptor" (type $descriptor))
        (import "wasi:filesystem/preopens@0.2.0" (instance $preopens
            (export "descriptor" (type $d (eq $descriptor)))
            (export "get-directories" (func (result (list (tuple (own $d) string)))))))"#,
        &[
            ("directories", "$preopens \"get-directories\"", "(param i32)"),
            (
                "list",
                "$files \"[method]descriptor.read-directory\"",
                "(param i32 i32)",
            ),
        ],
        &format!(
            "(call $directories (i32.const 512)) (local.set $j (i32.load (i32.load (i32.const 512)))) {body}"
        ),
    )
}

/// Polls the same pollable this many times in one list.
pub(crate) fn waiting(count: u32) -> Probe {
    with(
        r#"(import "wasi:io/poll@0.2.0" (instance $poll
            (export "pollable" (type $p (sub resource)))
            (export "poll" (func (param "in" (list (borrow $p))) (result (list u32))))))
        (alias export $poll "pollable" (type $pollable))
        (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
            (export "pollable" (type $p (eq $pollable)))
            (export "subscribe-duration" (func (param "when" u64) (result (own $p))))))"#,
        &[
            (
                "sleep",
                "$clock \"subscribe-duration\"",
                "(param i64) (result i32)",
            ),
            ("poll", "$poll \"poll\"", "(param i32 i32 i32)"),
        ],
        &format!(
            "(drop (memory.grow (i32.const 100)))
             (local.set $j (call $sleep (i64.const 1)))
             (local.set $i (i32.const 0))
             (loop $next
               (i32.store (i32.add (i32.const 65536) (i32.shl (local.get $i) (i32.const 2))) (local.get $j))
               (local.set $i (i32.add (local.get $i) (i32.const 1)))
               (br_if $next (i32.lt_u (local.get $i) (i32.const {count}))))
             (call $poll (i32.const 65536) (i32.const {count}) (i32.const 512)) {DONE}"
        ),
    )
}

/// Requests a mebibyte of random bytes repeatedly.
pub(crate) fn random(count: u32) -> Probe {
    with(
        r#"(import "wasi:random/random@0.2.0" (instance $random
            (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))"#,
        &[("random", "$random \"get-random-bytes\"", "(param i64 i32)")],
        &times(count, "(call $random (i64.const 1048576) (i32.const 256))"),
    )
}

/// Returns a structured result with this many objects of one member, of seven bytes each.
pub(crate) fn objects(count: u32) -> Probe {
    // `{"a":[`, `{"":0},` and `]}`.
    Probe::running(&format!(
        "(drop (memory.grow (i32.const 70)))
         (i64.store (i32.const 131072) (i64.const 0x5b3a2261227b))
         (local.set $j (i32.const 131078))
         (local.set $i (i32.const {count}))
         (loop $next
           (i64.store (local.get $j) (i64.const 0x2c7d303a22227b))
           (local.set $j (i32.add (local.get $j) (i32.const 7)))
           (br_if $next (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
         (i32.store16 (i32.sub (local.get $j) (i32.const 1)) (i32.const 0x7d5d))
         (call $answer (i32.const 0) (i32.const 0) (i32.const 131072)
           (i32.sub (i32.add (local.get $j) (i32.const 1)) (i32.const 131072)))"
    ))
}
