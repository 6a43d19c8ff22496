//! Components that import `wasi:keyvalue`: without a grant, without a store, and with a store that does not answer.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod support;

use std::sync::Arc;

use support::{Heard, Probe, call, load, only_tool};
use toolcell_core::policy::BucketGrant;
use toolcell_core::{
    BoxFuture, Bucket, Content, KeyValueError, KeyValueStore, Limit, Policy, ToolError, ToolOutput,
};
use toolcell_sandbox::{Ability, Sandbox, SandboxOptions};

/// Opens the bucket `a` and answers with two bytes: whether that failed, and with which error.
fn opening() -> Probe {
    Probe {
        items: r#"(import "wasi:keyvalue/store@0.2.0-draft" (instance $kv
                (export "bucket" (type $bucket (sub resource)))
                (type $variant (variant (case "no-such-store") (case "access-denied") (case "other" string)))
                (export "error" (type $error (eq $variant)))
                (export "open" (func (param "identifier" string) (result (result (own $bucket) (error $error)))))))
            (core func $open (canon lower (func $kv "open") (memory $memory) (realloc (core func $realloc))))
            (core instance $wasi (export "open" (func $open)))"#
            .into(),
        with: "(with \"wasi\" (instance $wasi))".into(),
        module: "(import \"wasi\" \"open\" (func $open (param i32 i32 i32)))".into(),
        run: "(i32.store8 (i32.const 128) (i32.const 97))
            (call $open (i32.const 128) (i32.const 1) (i32.const 512))
            (i32.store8 (i32.const 256) (i32.load8_u (i32.const 512)))
            (i32.store8 (i32.const 257) (i32.load8_u (i32.const 516)))
            (call $text (i32.const 256) (i32.const 2))"
            .into(),
        ..Probe::default()
    }
}

/// `result.error` and `error.no-such-store`, `error.access-denied`.
const NO_SUCH_STORE: &[u8] = &[1, 0];
const ACCESS_DENIED: &[u8] = &[1, 1];

/// A store that never answers.
struct Silent;

impl KeyValueStore for Silent {
    fn open<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Arc<dyn Bucket>, KeyValueError>> {
        Box::pin(std::future::pending())
    }
}

async fn run(policy: Policy) -> (Result<ToolOutput, ToolError>, Heard) {
    let sandbox = Sandbox::new(SandboxOptions {
        slots: 4,
        optimize: false,
        buckets: Some(Arc::new(Silent)),
        ..SandboxOptions::default()
    });
    let component = load(&sandbox.unwrap(), &opening()).await.unwrap();
    assert!(component.abilities().contains(&Ability::KeyValue));
    call(&*only_tool(&component, policy)).await
}

fn granting(bucket: &str) -> Policy {
    let mut policy = Policy::default();
    policy.grants.buckets.push(BucketGrant {
        bucket: bucket.into(),
        guest: bucket.into(),
        write: true,
    });
    policy
}

#[track_caller]
fn bytes(result: Result<ToolOutput, ToolError>) -> Vec<u8> {
    match &result.unwrap().content[..] {
        [Content::Text { text }] => text.clone().into_bytes(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_bucket_is_denied_and_noted_without_a_grant() {
    for policy in [Policy::default(), granting("b")] {
        let (result, heard) = run(policy).await;
        assert_eq!(bytes(result), ACCESS_DENIED);
        let receipt = heard.receipt();
        let [denial] = &receipt.denials[..] else {
            panic!("{receipt:?}")
        };
        assert_eq!((denial.what.as_str(), denial.target.as_str()), ("keyvalue", "a"));
        assert_eq!(denial.allow_with.as_deref(), Some("keyvalue=a"));
        assert_eq!(receipt.buckets, []);
    }
}

#[tokio::test]
async fn a_host_without_a_store_has_no_bucket_whatever_is_granted() {
    let component = load(&support::sandbox(), &opening()).await.unwrap();
    let (result, heard) = call(&*only_tool(&component, granting("a"))).await;
    assert_eq!(bytes(result), NO_SUCH_STORE);
    assert_eq!(heard.receipt().denials, []);
}

#[tokio::test]
async fn a_store_that_does_not_answer_does_not_hold_the_call() {
    let mut policy = granting("a");
    policy.limits.wall_ms = 50;
    let (result, heard) = run(policy).await;
    let limit = Limit::WallTimeMs(50);
    assert_eq!(result, Err(ToolError::Limit { limit }));
    assert!(heard.receipt().wall_us >= 50_000);
}
