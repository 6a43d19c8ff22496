//! Programs for WASI 0.3.

use std::time::{Duration, Instant};

use serde_json::json;
use toolcell_core::{Content, Limit, Limits, Policy, ToolError};

use super::{call, sandbox};
use crate::{Ability, Component, ComponentKind, LoadError};

/// A program of the asynchronous ABI whose `run` has this body. It returns 0 or 1 with `$return`, and the function whether it
/// waits. Memory from 1024 to 65,536 is free for its data.
fn program(data: &str, body: &str) -> String {
    format!(
        r#"(component
(import "wasi:cli/types@0.3.0" (instance $types
  (type $e (enum "io" "illegal-byte-sequence" "pipe")) (export "error-code" (type (eq $e)))))
(alias export $types "error-code" (type $code))
(import "wasi:cli/stdin@0.3.0" (instance $stdin
  (alias outer 1 $code (type $code)) (export "error-code" (type $c (eq $code)))
  (type $s (stream u8)) (type $f (future (result (error $c))))
  (export "read-via-stream" (func (result (tuple $s $f))))))
(import "wasi:cli/stdout@0.3.0" (instance $stdout
  (alias outer 1 $code (type $code)) (export "error-code" (type $c (eq $code)))
  (type $s (stream u8)) (type $f (future (result (error $c))))
  (export "write-via-stream" (func (param "data" $s) (result $f)))))
(import "wasi:cli/exit@0.3.0" (instance $exit
  (export "exit" (func (param "status" (result))))
  (export "exit-with-code" (func (param "status-code" u8)))))
(import "wasi:cli/environment@0.3.0" (instance $environment
  (export "get-environment" (func (result (list (tuple string string)))))
  (export "get-arguments" (func (result (list string))))))
(import "wasi:clocks/monotonic-clock@0.3.0" (instance $clock
  (export "wait-for" (func async (param "how-long" u64)))))
(import "wasi:random/random@0.3.0" (instance $random
  (export "get-random-bytes" (func (param "max-len" u64) (result (list u8))))))
(core module $libc
  (memory (export "memory") 2)
  (data (i32.const 1024) "{data}")
  (global $next (mut i32) (i32.const 65536))
  (func (export "realloc") (param i32 i32 i32) (param $len i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
    (global.set $next (i32.add (local.get $at) (local.get $len)))
    (loop $more
      (if (i32.gt_u (global.get $next) (i32.mul (memory.size) (i32.const 65536)))
        (then (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable)) (br $more))))
    (local.get $at)))
(core instance $libc (instantiate $libc))
(type $bytes (stream u8))
(type $end (future (result (error $code))))
(core func $return (canon task.return (result (result))))
(core func $new (canon stream.new $bytes))
(core func $stream-write (canon stream.write $bytes async (memory $libc "memory")))
(core func $stream-read (canon stream.read $bytes async (memory $libc "memory")))
(core func $close (canon stream.drop-writable $bytes))
(core func $set (canon waitable-set.new))
(core func $join (canon waitable.join))
(core func $await (canon waitable-set.wait (memory $libc "memory")))
(core func $end-read (canon future.read $end async (memory $libc "memory")))
(core func $read-via-stream (canon lower (func $stdin "read-via-stream") (memory $libc "memory")))
(core func $write-via-stream (canon lower (func $stdout "write-via-stream")))
(core func $exit (canon lower (func $exit "exit-with-code")))
(core func $arguments (canon lower (func $environment "get-arguments") (memory $libc "memory") (realloc (func $libc "realloc"))))
(core func $variables (canon lower (func $environment "get-environment") (memory $libc "memory") (realloc (func $libc "realloc"))))
(core func $random (canon lower (func $random "get-random-bytes") (memory $libc "memory") (realloc (func $libc "realloc"))))
(core func $wait (canon lower (func $clock "wait-for")))
(core module $m
  (import "" "memory" (memory 2))
  (import "" "return" (func $return (param i32)))
  (import "" "new" (func $new (result i64)))
  (import "" "stream-write" (func $stream-write (param i32 i32 i32) (result i32)))
  (import "" "stream-read" (func $stream-read (param i32 i32 i32) (result i32)))
  (import "" "close" (func $close (param i32)))
  (import "" "set" (func $set (result i32)))
  (import "" "join" (func $join (param i32 i32)))
  (import "" "await" (func $await (param i32 i32) (result i32)))
  (import "" "end-read" (func $end-read (param i32 i32) (result i32)))
  (import "" "read-via-stream" (func $read-via-stream (param i32)))
  (import "" "write-via-stream" (func $write-via-stream (param i32) (result i32)))
  (import "" "exit" (func $exit (param i32)))
  (import "" "arguments" (func $arguments (param i32)))
  (import "" "variables" (func $variables (param i32)))
  (import "" "random" (func $random (param i64 i32)))
  (import "" "wait" (func $wait (param i64)))
  ;; Waits for an operation that is blocked, and returns its result.
  (func $finish (param $handle i32) (param $result i32) (result i32)
    (local $set i32)
    (if (i32.ne (local.get $result) (i32.const -1)) (then (return (local.get $result))))
    (local.set $set (call $set))
    (call $join (local.get $handle) (local.get $set))
    (drop (call $await (local.get $set) (i32.const 80)))
    (call $join (local.get $handle) (i32.const 0))
    (i32.load (i32.const 84)))
  ;; Writes a text to standard output and waits until it is written.
  (func $write (param $at i32) (param $len i32)
    (local $ends i64) (local $writer i32) (local $end i32) (local $count i32)
    (local.set $ends (call $new))
    (local.set $writer (i32.wrap_i64 (i64.shr_u (local.get $ends) (i64.const 32))))
    (local.set $end (call $write-via-stream (i32.wrap_i64 (local.get $ends))))
    (block $done (loop $more
      (br_if $done (i32.eqz (local.get $len)))
      (local.set $count
        (i32.shr_u
          (call $finish (local.get $writer) (call $stream-write (local.get $writer) (local.get $at) (local.get $len)))
          (i32.const 4)))
      (local.set $at (i32.add (local.get $at) (local.get $count)))
      (local.set $len (i32.sub (local.get $len) (local.get $count)))
      (br $more)))
    (call $close (local.get $writer))
    (drop (call $finish (local.get $end) (call $end-read (local.get $end) (i32.const 64)))))
  ;; Opens a stream to standard output, joined to a set at 88, and returns its writable end.
  (func $open (result i32) (local $ends i64) (local $writer i32)
    (local.set $ends (call $new))
    (drop (call $write-via-stream (i32.wrap_i64 (local.get $ends))))
    (local.set $writer (i32.wrap_i64 (i64.shr_u (local.get $ends) (i64.const 32))))
    (i32.store (i32.const 88) (call $set))
    (call $join (local.get $writer) (i32.load (i32.const 88)))
    (local.get $writer))
  ;; Reads standard input once.
  (func $read (param $at i32) (param $len i32) (result i32)
    (call $read-via-stream (i32.const 32))
    (i32.shr_u
      (call $finish (i32.load (i32.const 32)) (call $stream-read (i32.load (i32.const 32)) (local.get $at) (local.get $len)))
      (i32.const 4)))
  (func (export "callback") (param i32 i32 i32) (result i32) unreachable)
  (func (export "run") (result i32) (local $i i32) {body} (i32.const 0)))
(core instance $i (instantiate $m (with "" (instance
  (export "memory" (memory $libc "memory")) (export "return" (func $return)) (export "new" (func $new))
  (export "stream-write" (func $stream-write)) (export "stream-read" (func $stream-read)) (export "close" (func $close))
  (export "set" (func $set)) (export "join" (func $join)) (export "await" (func $await)) (export "end-read" (func $end-read))
  (export "read-via-stream" (func $read-via-stream)) (export "write-via-stream" (func $write-via-stream))
  (export "exit" (func $exit)) (export "arguments" (func $arguments)) (export "variables" (func $variables))
  (export "random" (func $random)) (export "wait" (func $wait))))))
(type $run (func async (result (result))))
(func $run (type $run) (canon lift (core func $i "run") async (callback (func $i "callback"))))
(instance $cli (export "run" (func $run)))
(export "wasi:cli/run@0.3.0" (instance $cli)))"#
    )
}

async fn load(data: &str, body: &str) -> Component {
    let text = program(data, body);
    let bytes = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    sandbox().load("prog.wasm", &bytes).await.unwrap()
}

fn limited(limits: Limits) -> Policy {
    Policy {
        limits,
        ..Policy::default()
    }
}

const DONE: &str = "(call $return (i32.const 0))";

#[tokio::test]
async fn program_for_wasi_0_3_reads_and_writes() {
    let body =
        format!("(call $write (i32.const 1024) (call $read (i32.const 1024) (i32.const 60000))) {DONE}");
    let component = load("", &body).await;
    assert_eq!(component.kind(), ComponentKind::Program);
    assert!(component.abilities().contains(&Ability::MonotonicClock));
    let result = call(&component, Policy::default(), json!({ "stdin": "one\ntwo" })).await;
    assert_eq!(result.content, [Content::text("one\ntwo")], "{:?}", result.error);
    let structured = json!({ "exit_code": 0, "stdout": "one\ntwo", "stderr": "" });
    assert_eq!(result.structured, Some(structured));
    // What exceeds the output limit is dropped, and the program continues.
    let limits = Limits {
        output: 3,
        ..Limits::default()
    };
    let result = call(&component, limited(limits), json!({ "stdin": "one\ntwo" })).await;
    assert_eq!(result.content, [Content::text("one [4 bytes cut]")]);
}

#[tokio::test]
async fn exit_code_of_wasi_0_3_is_the_result() {
    for (body, code) in [
        ("(call $exit (i32.const 7))", 7),
        ("(call $exit (i32.const 255))", 255),
        ("(call $return (i32.const 1))", 1),
    ] {
        let result = call(&load("", body).await, Policy::default(), json!({})).await;
        let message = format!("the program ended with exit code {code}");
        assert_eq!(result.error, Some(ToolError::Failed { message }));
    }
    let ended = call(
        &load("", "(call $exit (i32.const 0))").await,
        Policy::default(),
        json!({}),
    )
    .await;
    assert_eq!(ended.error, None);
}

/// Toolchains leave a `run` of WASI 0.2 in programs that are started by the one of WASI 0.3.
#[tokio::test]
async fn program_for_both_versions_runs_that_of_wasi_0_3() {
    let stub = r#"(core module $stub (func (export "run") (result i32) unreachable))
(core instance $stub (instantiate $stub))
(func $stub (result (result)) (canon lift (core func $stub "run")))
(instance $other (export "run" (func $stub)))
(export "wasi:cli/run@0.2.6" (instance $other))"#;
    let text = program("", DONE).replace(
        "(instance $cli (export",
        &format!("{stub}\n(instance $cli (export"),
    );
    let bytes = wat::parse_str(&text).unwrap();
    let component = sandbox().load("prog.wasm", &bytes).await.unwrap();
    assert_eq!(call(&component, Policy::default(), json!({})).await.error, None);
}

#[tokio::test]
async fn program_for_wasi_0_3_has_its_arguments_and_granted_variables() {
    // The second argument, then the number of variables as a digit.
    let body = format!(
        "(call $arguments (i32.const 16))
        (local.set $i (i32.load (i32.const 16)))
        (call $write (i32.load offset=8 (local.get $i)) (i32.load offset=12 (local.get $i)))
        (call $variables (i32.const 24))
        (i32.store8 (i32.const 1024) (i32.add (i32.const 48) (i32.load (i32.const 28))))
        (call $write (i32.const 1024) (i32.const 1)) {DONE}"
    );
    let component = load("", &body).await;
    let result = call(&component, Policy::default(), json!({ "args": ["--all"] })).await;
    assert_eq!(result.content, [Content::text("--all0")], "{:?}", result.error);
    let mut policy = Policy::default();
    policy.grants.env.push(("A".into(), "1".into()));
    let result = call(&component, policy, json!({ "args": ["--all"] })).await;
    assert_eq!(result.content, [Content::text("--all1")]);
}

#[tokio::test]
async fn waiting_in_wasi_0_3_ends_at_the_deadline() {
    let wait = |nanoseconds: u64| format!("(call $wait (i64.const {nanoseconds})) {DONE}");
    let short = call(&load("", &wait(1_000)).await, Policy::default(), json!({})).await;
    assert_eq!(short.error, None);
    let limits = Limits {
        wall_ms: 30,
        ..Limits::default()
    };
    for nanoseconds in [3_600_000_000_000, i64::MAX as u64, u64::MAX] {
        let late = call(
            &load("", &wait(nanoseconds)).await,
            limited(limits.clone()),
            json!({}),
        )
        .await;
        let limit = Limit::WallTimeMs(30);
        assert_eq!(late.error, Some(ToolError::Limit { limit }));
    }
}

#[tokio::test]
async fn random_bytes_of_wasi_0_3_are_limited_and_charged() {
    // The number of bytes in mebibytes as a digit.
    let body = format!(
        "(call $random (i64.const -1) (i32.const 16))
        (i32.store8 (i32.const 1024) (i32.add (i32.const 48) (i32.shr_u (i32.load (i32.const 20)) (i32.const 20))))
        (call $write (i32.const 1024) (i32.const 1)) {DONE}"
    );
    let component = load("", &body).await;
    let result = call(&component, Policy::default(), json!({})).await;
    assert_eq!(result.content, [Content::text("1")], "{:?}", result.error);
    // The guest has 1 MiB and some for them, the host 1 MiB until they are copied, and 1,000 handles another.
    let memory = |memory| Limits {
        memory,
        handles: 1_000,
        ..Limits::default()
    };
    let rich = call(&component, limited(memory(5 << 20)), json!({})).await;
    assert_eq!(rich.error, None);
    let poor = call(&component, limited(memory(3 << 19)), json!({})).await;
    let limit = Limit::Memory(3 << 19);
    assert_eq!(poor.error, Some(ToolError::Limit { limit }));
}

#[tokio::test]
async fn files_and_network_of_wasi_0_3_are_refused_with_a_remedy() {
    for (name, remedy) in [
        ("wasi:filesystem/preopens@0.3.0", "files are provided in WASI 0.2"),
        ("wasi:http/client@0.3.0", "HTTP is provided in WASI 0.2"),
        ("wasi:sockets/types@0.3.0", "sockets are never provided"),
        ("wasi:sockets/ip-name-lookup@0.3.0", "sockets are never provided"),
    ] {
        let text = program("", DONE).replacen(
            "(component",
            &format!("(component (import \"{name}\" (instance))"),
            1,
        );
        let refused = sandbox()
            .load("prog.wasm", &wat::parse_str(&text).unwrap())
            .await
            .unwrap_err();
        assert!(matches!(refused, LoadError::UnknownImport { .. }), "{refused}");
        assert!(refused.hint().unwrap().contains(remedy), "{:?}", refused.hint());
    }
}

/// Each write is a few instructions of the guest, and work of the host.
#[tokio::test]
async fn streams_without_end_use_fuel_and_end_at_the_deadline() {
    let flood = "(local.set $i (call $open))
        (loop $more
          (if (i32.eq (i32.const -1) (call $stream-write (local.get $i) (i32.const 1024) (i32.const LENGTH)))
            (then (drop (call $await (i32.load (i32.const 88)) (i32.const 80)))))
          (br $more))";
    for length in ["60000", "1", "0"] {
        let component = load("", &flood.replace("LENGTH", length)).await;
        let ended = async |limits| {
            let begun = Instant::now();
            let ended = call(&component, limited(limits), json!({})).await;
            assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
            let receipt = ended.receipt.unwrap();
            assert!(receipt.peak_memory < 16 << 20, "{receipt:?}");
            ended.error
        };
        let poor = Limits {
            fuel: 100_000,
            output: 1_000,
            ..Limits::default()
        };
        let limit = Limit::Fuel(100_000);
        assert_eq!(ended(poor).await, Some(ToolError::Limit { limit }), "{length}");
        let late = Limits {
            fuel: u64::MAX / 2,
            wall_ms: 50,
            ..Limits::default()
        };
        let limit = Limit::WallTimeMs(50);
        assert_eq!(ended(late).await, Some(ToolError::Limit { limit }), "{length}");
    }
}

#[tokio::test]
async fn streams_that_are_never_closed_count_as_handles() {
    let component = load("", "(loop $more (drop (call $open)) (br $more))").await;
    let limits = Limits {
        handles: 1_000,
        ..Limits::default()
    };
    let ended = call(&component, limited(limits), json!({})).await;
    let limit = Limit::Handles(1_000);
    assert_eq!(ended.error, Some(ToolError::Limit { limit }));
}

/// The result is there with `task.return`, and the rest of the task takes from the same limits.
#[tokio::test]
async fn program_that_goes_on_after_its_result_is_bounded() {
    let run = async |rest: &str| {
        let component = load("", &format!("{DONE} {rest}")).await;
        let limits = Limits {
            fuel: 1_000_000,
            wall_ms: 5_000,
            ..Limits::default()
        };
        let begun = Instant::now();
        let ended = call(&component, limited(limits), json!({})).await;
        assert!(begun.elapsed() < Duration::from_secs(4));
        ended.error
    };
    let limit = Limit::Fuel(1_000_000);
    assert_eq!(
        run("(loop $more (br $more))").await,
        Some(ToolError::Limit { limit })
    );
    // What waits is ended with the call.
    assert_eq!(run("(call $wait (i64.const -1))").await, None);
}
