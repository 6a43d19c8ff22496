//! WASI under an empty policy gives a component no access outside of its cell.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod support;

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use support::hoard::{waiting, with};
use support::{Observed, Probe, call_of, observed_context, run, sandbox};
use toolcell_core::tool::LogSource;
use toolcell_core::{CallResult, Limits, Policy, ToolError, ToolName};
use toolcell_sandbox::LoadError;

/// Returns the memory from 256 on, as text of one byte per value.
const ANSWER_4: &str = "(call $text (i32.const 256) (i32.const 4))";

async fn answer(probe: &Probe) -> (Vec<u8>, Observed) {
    let (result, observed) = run(probe, Policy::default()).await;
    let CallResult { content, .. } = result.unwrap();
    let toolcell_core::Content::Text { text } = &content[0] else {
        panic!("{content:?}")
    };
    (text.clone().into_bytes(), observed)
}

#[tokio::test]
async fn environment_and_arguments_are_empty() {
    let import = r#"(import "wasi:cli/environment@0.2.0" (instance $env
        (export "get-environment" (func (result (list (tuple string string)))))
        (export "get-arguments" (func (result (list string))))
        (export "initial-cwd" (func (result (option string))))))"#;
    let probe = with(
        import,
        &[
            ("env", "$env \"get-environment\"", "(param i32)"),
            ("args", "$env \"get-arguments\"", "(param i32)"),
            ("cwd", "$env \"initial-cwd\"", "(param i32)"),
        ],
        &format!(
            "(call $env (i32.const 512)) (i32.store8 (i32.const 256) (i32.load (i32.const 516)))
             (call $args (i32.const 512)) (i32.store8 (i32.const 257) (i32.load (i32.const 516)))
             (call $cwd (i32.const 512)) (i32.store8 (i32.const 258) (i32.load8_u (i32.const 512)))
             {ANSWER_4}"
        ),
    );
    assert_eq!(answer(&probe).await.0, [0, 0, 0, 0]);

    // With a grant the variable is present, and nothing else.
    let policy = Policy {
        grants: toolcell_core::Grants {
            env: vec![("LANG".into(), "C".into())],
            ..Default::default()
        },
        ..Policy::default()
    };
    let (result, _) = run(&probe, policy).await;
    assert_eq!(result, Ok(CallResult::text("\u{1}\0\0\0")));
}

#[tokio::test]
async fn configuration_has_the_granted_variables_alone() {
    for version in ["0.2.0-draft", "0.2.0-rc.1"] {
        let import = format!(
            r#"(import "wasi:config/store@{version}" (instance $config
                (type $e (variant (case "upstream" string) (case "io" string)))
                (export "error" (type $error (eq $e)))
                (export "get" (func (param "key" string) (result (result (option string) (error $error)))))
                (export "get-all" (func (result (result (list (tuple string string)) (error $error)))))))"#
        );
        // `LANG` and `HOME`, as they stand in memory.
        let probe = with(
            &import,
            &[
                ("get", "$config \"get\"", "(param i32 i32 i32)"),
                ("all", "$config \"get-all\"", "(param i32)"),
            ],
            &format!(
                "(i32.store (i32.const 300) (i32.const 0x474e414c))
                 (call $get (i32.const 300) (i32.const 4) (i32.const 512))
                 (i32.store8 (i32.const 256) (i32.load8_u (i32.const 516)))
                 (i32.store (i32.const 300) (i32.const 0x454d4f48))
                 (call $get (i32.const 300) (i32.const 4) (i32.const 512))
                 (i32.store8 (i32.const 257) (i32.load8_u (i32.const 516)))
                 (call $all (i32.const 512))
                 (i32.store8 (i32.const 258) (i32.load (i32.const 520)))
                 (i32.store8 (i32.const 259) (i32.load8_u (i32.const 512)))
                 {ANSWER_4}"
            ),
        );
        assert_eq!(answer(&probe).await.0, [0, 0, 0, 0], "{version}");
        let policy = Policy {
            grants: toolcell_core::Grants {
                env: vec![("LANG".into(), "C".into())],
                ..Default::default()
            },
            ..Policy::default()
        };
        let (result, _) = run(&probe, policy).await;
        assert_eq!(result, Ok(CallResult::text("\u{1}\0\u{1}\0")), "{version}");
    }
}

/// Returns a component that asks for its directories.
fn asks_for_directories() -> Probe {
    let import = r#"(import "wasi:filesystem/types@0.2.0" (instance $fs (export "descriptor" (type (sub resource)))))
        (alias export $fs "descriptor" (type $descriptor))
        (import "wasi:filesystem/preopens@0.2.0" (instance $pre
            (export "descriptor" (type $d (eq $descriptor)))
            (export "get-directories" (func (result (list (tuple (own $d) string)))))))"#;
    with(
        import,
        &[("dirs", "$pre \"get-directories\"", "(param i32)")],
        &format!(
            "(call $dirs (i32.const 512)) (i32.store8 (i32.const 256) (i32.load (i32.const 516))) {ANSWER_4}"
        ),
    )
}

#[tokio::test]
async fn without_a_grant_there_are_no_directories() {
    assert_eq!(answer(&asks_for_directories()).await.0, [0, 0, 0, 0]);
}

#[tokio::test]
async fn missing_directory_fails_calls_that_ask_for_it() {
    let policy = || Policy {
        grants: toolcell_core::Grants {
            dirs: vec![toolcell_core::policy::DirGrant {
                host: "/no/such/directory".into(),
                guest: "/work".into(),
                access: Default::default(),
                overlay: None,
            }],
            ..Default::default()
        },
        ..Policy::default()
    };
    let (result, _) = run(&asks_for_directories(), policy()).await;
    let Err(ToolError::Unavailable { message }) = result else {
        panic!("{result:?}")
    };
    assert!(
        message.starts_with("could not open the directory `/work`: ") && !message.contains("/no/such"),
        "{message}"
    );
    // Other calls open nothing, however many directories are granted.
    assert!(run(&Probe::default(), policy()).await.0.is_ok());
}

/// Types of `wasi:sockets/network` required by related interfaces.
const NETWORK: &str = r#"(import "wasi:sockets/network@0.2.0" (instance $net
        (export "network" (type (sub resource)))
        (type $e (enum "unknown" "access-denied" "not-supported" "invalid-argument" "out-of-memory" "timeout"
            "concurrency-conflict" "not-in-progress" "would-block" "invalid-state" "new-socket-limit"
            "address-not-bindable" "address-in-use" "remote-unreachable" "connection-refused" "connection-reset"
            "connection-aborted" "datagram-too-large" "name-unresolvable" "temporary-resolver-failure"
            "permanent-resolver-failure"))
        (export "error-code" (type (eq $e)))
        (type $f (enum "ipv4" "ipv6"))
        (export "ip-address-family" (type (eq $f)))))
    (alias export $net "network" (type $network))
    (alias export $net "error-code" (type $error-code))
    (alias export $net "ip-address-family" (type $family))"#;

/// Value of `error-code.access-denied`.
const ACCESS_DENIED: u8 = 1;

#[tokio::test]
async fn every_socket_is_denied_and_recorded() {
    for protocol in ["tcp", "udp"] {
        let import = format!(
            r#"{NETWORK}
            (import "wasi:sockets/{protocol}@0.2.0" (instance $proto (export "{protocol}-socket" (type (sub resource)))))
            (alias export $proto "{protocol}-socket" (type $socket))
            (import "wasi:sockets/{protocol}-create-socket@0.2.0" (instance $create
                (export "error-code" (type $e (eq $error-code)))
                (export "ip-address-family" (type $f (eq $family)))
                (export "{protocol}-socket" (type $s (eq $socket)))
                (export "create-{protocol}-socket" (func (param "address-family" $f) (result (result (own $s) (error $e)))))))"#
        );
        let of = format!("$create \"create-{protocol}-socket\"");
        let body = format!(
            "(call $create (i32.const 0) (i32.const 512))
             (i32.store8 (i32.const 256) (i32.load8_u (i32.const 512)))
             (i32.store8 (i32.const 257) (i32.load8_u (i32.const 516))) {ANSWER_4}"
        );
        let probe = with(&import, &[("create", &of, "(param i32 i32)")], &body);
        let (answer, observed) = answer(&probe).await;
        assert_eq!(answer, [1, ACCESS_DENIED, 0, 0], "{protocol}");
        let denial = &observed.receipt().denials[0];
        assert_eq!(
            (denial.what.as_str(), denial.target.as_str()),
            ("socket", format!("{protocol} over ipv4").as_str())
        );
    }
}

#[tokio::test]
async fn every_name_look_up_is_denied_and_recorded() {
    let import = format!(
        r#"{NETWORK}
        (import "wasi:sockets/instance-network@0.2.0" (instance $inst
            (export "network" (type $n (eq $network)))
            (export "instance-network" (func (result (own $n))))))
        (import "wasi:sockets/ip-name-lookup@0.2.0" (instance $lookup
            (export "network" (type $n (eq $network)))
            (export "error-code" (type $e (eq $error-code)))
            (export "resolve-address-stream" (type $r (sub resource)))
            (export "resolve-addresses" (func (param "network" (borrow $n)) (param "name" string)
                (result (result (own $r) (error $e)))))))"#
    );
    let probe = with(
        &import,
        &[
            ("network", "$inst \"instance-network\"", "(result i32)"),
            (
                "resolve",
                "$lookup \"resolve-addresses\"",
                "(param i32 i32 i32 i32)",
            ),
        ],
        &format!(
            "(i32.store (i32.const 1024) (i32.const 0x2e786d65)) ;; `emx.`
             (call $resolve (call $network) (i32.const 1024) (i32.const 3) (i32.const 512))
             (i32.store8 (i32.const 256) (i32.load8_u (i32.const 512)))
             (i32.store8 (i32.const 257) (i32.load8_u (i32.const 516))) {ANSWER_4}"
        ),
    );
    let (answer, observed) = answer(&probe).await;
    assert_eq!(answer, [1, ACCESS_DENIED, 0, 0]);
    let denial = &observed.receipt().denials[0];
    assert_eq!((denial.what.as_str(), denial.target.as_str()), ("dns", "emx"));
}

/// `wasi:io/streams` with one function, and `wasi:cli` with the corresponding stream.
fn stream(kind: &str, source: &str, function: &str) -> String {
    format!(
        r#"(import "wasi:io/error@0.2.0" (instance $err (export "error" (type (sub resource)))))
        (alias export $err "error" (type $error))
        (import "wasi:io/streams@0.2.0" (instance $io
            (export "error" (type $e (eq $error)))
            (type $s (variant (case "last-operation-failed" (own $e)) (case "closed")))
            (export "stream-error" (type $se (eq $s)))
            (export "{kind}" (type $stream (sub resource)))
            {function}))
        (alias export $io "{kind}" (type $stream))
        (import "wasi:cli/{source}@0.2.0" (instance $cli
            (export "{kind}" (type $o (eq $stream)))
            (export "get-{source}" (func (result (own $o))))))"#
    )
}

const WRITE: &str = r#"(export "[method]output-stream.blocking-write-and-flush"
    (func (param "self" (borrow $stream)) (param "contents" (list u8)) (result (result (error $se)))))"#;

#[tokio::test]
async fn standard_input_is_at_its_end() {
    let read = r#"(export "[method]input-stream.blocking-read"
        (func (param "self" (borrow $stream)) (param "len" u64) (result (result (list u8) (error $se)))))"#;
    let probe = with(
        &stream("input-stream", "stdin", read),
        &[
            ("get", "$cli \"get-stdin\"", "(result i32)"),
            (
                "read",
                "$io \"[method]input-stream.blocking-read\"",
                "(param i32 i64 i32)",
            ),
        ],
        &format!(
            "(call $read (call $get) (i64.const 1) (i32.const 512))
             (i32.store8 (i32.const 256) (i32.load8_u (i32.const 512)))
             (i32.store8 (i32.const 257) (i32.load8_u (i32.const 516))) {ANSWER_4}"
        ),
    );
    // The result is an error, and the error is `closed`.
    assert_eq!(answer(&probe).await.0, [1, 1, 0, 0]);
}

#[tokio::test]
async fn standard_output_and_standard_error_go_to_the_log() {
    for (source, expected) in [("stdout", LogSource::Stdout), ("stderr", LogSource::Stderr)] {
        let probe = writing(source, 1, 3);
        let (_, observed) = answer(&probe).await;
        assert_eq!(observed.messages(expected), ["emx"]);
        assert_eq!(observed.receipt().log_bytes, 3);
    }
}

/// Writes `len` bytes to a stream, `times` times.
fn writing(source: &str, times: u32, len: u32) -> Probe {
    with(
        &stream("output-stream", source, WRITE),
        &[
            ("get", &format!("$cli \"get-{source}\""), "(result i32)"),
            (
                "write",
                "$io \"[method]output-stream.blocking-write-and-flush\"",
                "(param i32 i32 i32 i32)",
            ),
        ],
        &format!(
            "(i32.store (i32.const 1024) (i32.const 0x0a786d65)) ;; `emx` and a line end
             (local.set $j (call $get)) (local.set $i (i32.const {times}))
             (loop (call $write (local.get $j) (i32.const 1024) (i32.const {len}) (i32.const 512))
               (br_if 0 (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
             {ANSWER_4}"
        ),
    )
}

#[tokio::test]
async fn flood_of_standard_output_is_cut_and_the_call_continues() {
    let (_, observed) = answer(&writing("stdout", 50_000, 4)).await;
    assert_eq!(observed.messages(LogSource::Stdout).len(), 1_000);
    let host = observed.messages(LogSource::Host);
    assert!(
        host.len() == 1 && host[0].starts_with("49000 lines dropped"),
        "{host:?}"
    );
    assert_eq!(observed.receipt().log_bytes, 200_000);
}

#[tokio::test]
async fn exit_ends_only_the_call() {
    let probe = with(
        r#"(import "wasi:cli/exit@0.2.0" (instance $exit (export "exit" (func (param "status" (result))))))"#,
        &[("exit", "$exit \"exit\"", "(param i32)")],
        "(call $exit (i32.const 1)) unreachable",
    );
    let (result, observed) = run(&probe, Policy::default()).await;
    assert_eq!(result, Err(ToolError::crashed("exited with status 1")));
    observed.receipt();
}

#[tokio::test]
async fn crash_reports_the_last_message_on_standard_error() {
    for (source, message) in [("stderr", Some("emx")), ("stdout", None)] {
        let mut probe = writing(source, 2, 4);
        probe.run = probe.run.replace(ANSWER_4, "unreachable");
        let (result, observed) = run(&probe, Policy::default()).await;
        let Err(error @ ToolError::Crashed { output, .. }) = &result else {
            panic!("{result:?}")
        };
        assert_eq!(output.as_deref(), message);
        let advises = error.for_model().contains("will crash it again");
        assert_eq!(advises, message.is_none(), "{}", error.for_model());
        observed.receipt();
    }
}

#[tokio::test]
async fn output_of_failing_definitions_is_in_the_error() {
    let mut probe = writing("stderr", 1, 4);
    let text = "(i32.store (i32.const 1024) (i32.const 0x0a786d65))";
    let write = "(call $write (call $get) (i32.const 1024) (i32.const 4) (i32.const 512))";
    probe.definitions = format!("{text} {write} unreachable");
    let error = support::load(&support::sandbox(), &probe).await.unwrap_err();
    let LoadError::Definitions { source, log } = error else {
        panic!("{error:?}")
    };
    assert!(
        matches!(source, ToolError::Crashed { output: Some(_), .. }),
        "{source:?}"
    );
    assert_eq!(log, "emx\n");
}

#[tokio::test]
async fn random_bytes_beyond_a_megabyte_at_once_are_refused() {
    let probe = |len: u64| {
        with(
            r#"(import "wasi:random/random@0.2.0" (instance $random
                (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))"#,
            &[("random", "$random \"get-random-bytes\"", "(param i64 i32)")],
            &format!(
                "(call $random (i64.const {len}) (i32.const 512)) (call $text (i32.const 256) (i32.const 0))"
            ),
        )
    };
    assert!(run(&probe(1 << 20), Policy::default()).await.0.is_ok());
    let (result, _) = run(&probe((1 << 20) + 1), Policy::default()).await;
    assert!(matches!(result, Err(ToolError::Crashed { .. })), "{result:?}");
}

#[tokio::test]
async fn guest_that_sleeps_for_an_hour_ends_at_the_deadline() {
    let probe = with(
        r#"(import "wasi:io/poll@0.2.0" (instance $poll
            (export "pollable" (type $p (sub resource)))
            (export "[method]pollable.block" (func (param "self" (borrow $p))))))
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
            ("block", "$poll \"[method]pollable.block\"", "(param i32)"),
        ],
        "(call $block (call $sleep (i64.const 3600000000000))) unreachable",
    );
    let policy = Policy {
        limits: Limits {
            wall_ms: 50,
            ..Limits::default()
        },
        ..Policy::default()
    };
    let (result, observed) = run(&probe, policy).await;
    let limit = toolcell_core::Limit::WallTimeMs(50);
    assert_eq!(result, Err(ToolError::Limit { limit }));
    // It waited without using the CPU.
    assert!(observed.receipt().cpu_us < 50_000, "{:?}", observed.receipt());
    // It waits in a host call, where its fuel is known.
    assert!(observed.receipt().fuel < 10_000, "{:?}", observed.receipt());
}

#[tokio::test]
async fn wasi_resources_beyond_the_handle_limit_are_denied() {
    let probe = |n: u32| {
        with(
            r#"(import "wasi:io/poll@0.2.0" (instance $poll (export "pollable" (type (sub resource)))))
            (alias export $poll "pollable" (type $pollable))
            (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
                (export "pollable" (type $p (eq $pollable)))
                (export "subscribe-duration" (func (param "when" u64) (result (own $p))))))"#,
            &[(
                "sleep",
                "$clock \"subscribe-duration\"",
                "(param i64) (result i32)",
            )],
            &format!(
                "(local.set $i (i32.const {n}))
                 (loop (drop (call $sleep (i64.const 1)))
                   (br_if 0 (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
                 {ANSWER_4}"
            ),
        )
    };
    let policy = || Policy {
        limits: Limits {
            handles: 40,
            ..Limits::default()
        },
        ..Policy::default()
    };
    // Each pollable has a table entry in addition to its clock.
    assert!(run(&probe(20), policy()).await.0.is_ok());
    let (result, _) = run(&probe(41), policy()).await;
    let limit = toolcell_core::Limit::Handles(40);
    assert_eq!(result, Err(ToolError::Limit { limit }));
}

/// Sleeps for an hour if its arguments are not empty.
fn sleeper() -> Probe {
    with(
        r#"(import "wasi:io/poll@0.2.0" (instance $poll
            (export "pollable" (type $p (sub resource)))
            (export "[method]pollable.block" (func (param "self" (borrow $p))))))
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
            ("block", "$poll \"[method]pollable.block\"", "(param i32)"),
        ],
        &format!(
            "(if (i32.gt_u (local.get $args_len) (i32.const 2))
               (then (call $block (call $sleep (i64.const 3600000000000)))))
             {ANSWER_4}"
        ),
    )
}

#[tokio::test]
async fn call_cancelled_during_a_host_function_leaves_nothing_behind() {
    let component = support::load(&sandbox(), &sleeper()).await.unwrap();
    let tool = support::only_tool(&component, Policy::default());
    // More often than there are slots: each cancelled call released its slot.
    for _ in 0..100 {
        let (context, observer) = observed_context();
        let sleeping = tool.call(call_of(json!({"sleep": true})), context);
        let over = tokio::time::timeout(Duration::from_millis(1), sleeping).await;
        assert!(over.is_err(), "{over:?}");
        observer.observed().receipt();
        let (context, _) = observed_context();
        assert!(tool.call(call_of(json!({})), context).await.error.is_none());
    }
}

#[tokio::test]
async fn poll_list_of_a_million_entries_is_refused() {
    assert!(run(&waiting(100), Policy::default()).await.0.is_ok());
    let (result, observed) = run(&waiting(1_000_000), Policy::default()).await;
    let limit = toolcell_core::Limit::Output(Limits::default().output);
    assert_eq!(result, Err(ToolError::Limit { limit }));
    observed.receipt();
}

/// Adds `count` values of 1,000 bytes to the headers of a request, and returns the result of the last one.
fn headers(count: u32) -> Probe {
    with(
        r#"(import "wasi:http/types@0.2.0" (instance $http
            (export "fields" (type $f (sub resource)))
            (type $e (variant (case "invalid-syntax") (case "forbidden") (case "immutable")))
            (export "header-error" (type $error (eq $e)))
            (export "[constructor]fields" (func (result (own $f))))
            (export "[method]fields.append" (func (param "self" (borrow $f)) (param "name" string) (param "value" (list u8))
                (result (result (error $error)))))))"#,
        &[
            ("new", "$http \"[constructor]fields\"", "(result i32)"),
            (
                "append",
                "$http \"[method]fields.append\"",
                "(param i32 i32 i32 i32 i32 i32)",
            ),
        ],
        &format!(
            "(i32.store8 (i32.const 1024) (i32.const 0x78)) ;; `x`
             (memory.fill (i32.const 2048) (i32.const 0x61) (i32.const 1000))
             (local.set $j (call $new)) (local.set $i (i32.const {count}))
             (loop $next
               (call $append (local.get $j) (i32.const 1024) (i32.const 1) (i32.const 2048) (i32.const 1000) (i32.const 256))
               (br_if $next (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
             {ANSWER_4}"
        ),
    )
}

#[tokio::test]
async fn headers_held_for_a_guest_are_limited_in_size() {
    assert_eq!(answer(&headers(30)).await.0[0], 0);
    for too_many in [35, 100_000] {
        let (result, _) = run(&headers(too_many), Policy::default()).await;
        assert!(
            matches!(result, Err(ToolError::Crashed { .. })),
            "{too_many}: {result:?}"
        );
    }
}

#[tokio::test]
async fn standard_output_beyond_the_limit_is_counted_and_dropped() {
    // One write has at most 4 KiB.
    let (_, observed) = answer(&writing("stdout", 16_384, 4_096)).await;
    assert_eq!(observed.receipt().log_bytes, 64 << 20);
    let kept: usize = observed
        .messages(LogSource::Stdout)
        .iter()
        .map(|line| line.len())
        .sum();
    let mark = " [12345 bytes cut]".len();
    assert!(kept as u64 <= Limits::default().log + mark as u64, "{kept}");
    assert_eq!(observed.messages(LogSource::Host).len(), 1);
}

/// Calls a bundled tool once, under an empty policy.
async fn shipped(
    file: &str,
    tool: &str,
    arguments: serde_json::Value,
) -> (Result<CallResult, ToolError>, Observed) {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/prebuilt")).join(file);
    let component = sandbox().load(file, &std::fs::read(path).unwrap()).await.unwrap();
    let tools = component.tools(Policy::default());
    let name = ToolName::new(tool).unwrap();
    let tool = tools.iter().find(|t| t.spec().name == name).unwrap();
    let (context, observer) = observed_context();
    let mut call = call_of(arguments);
    call.name = name;
    support::ended(tool.call(call, context).await, &observer)
}

#[tokio::test]
async fn bundled_tool_reaches_no_host_without_a_grant() {
    let (result, observed) = shipped("fetch.wasm", "fetch", json!({"url": "https://example.com/"})).await;
    assert!(result.is_err(), "{result:?}");
    let receipt = observed.receipt();
    assert!(receipt.hosts.is_empty(), "{receipt:?}");
    assert_eq!(receipt.denials[0].what, "http");
}
