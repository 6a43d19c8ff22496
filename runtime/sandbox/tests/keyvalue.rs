//! Components that import `wasi:keyvalue`: without a grant, without a store, and with an unresponsive store.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod support;

use std::sync::Arc;

use support::{Observed, Probe, call, call_of, load, observed_context, only_tool};
use tokio::sync::Notify;
use toolcell_core::policy::BucketGrant;
use toolcell_core::{
    BoxFuture, Bucket, CallResult, Content, KeyValueError, KeyValueStore, Limit, Policy, Secrets, ToolError,
};
use toolcell_sandbox::{Ability, Sandbox, SandboxOptions};

const SECRET: &str = "s3cret-value-of-the-user";

/// Opens the bucket `a` and returns two bytes: the result and the error code.
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

/// Encoding of `result.error` with `error.no-such-store`.
const NO_SUCH_STORE: &[u8] = &[1, 0];
const ACCESS_DENIED: &[u8] = &[1, 1];

/// A store that never responds.
struct Silent;

impl KeyValueStore for Silent {
    fn open<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Arc<dyn Bucket>, KeyValueError>> {
        Box::pin(std::future::pending())
    }
}

async fn run(policy: Policy) -> (Result<CallResult, ToolError>, Observed) {
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
fn bytes(result: Result<CallResult, ToolError>) -> Vec<u8> {
    match &result.unwrap().content[..] {
        [Content::Text { text }] => text.clone().into_bytes(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn bucket_without_grant_is_denied_and_recorded_for_components() {
    for policy in [Policy::default(), granting("b")] {
        let (result, observed) = run(policy).await;
        assert_eq!(bytes(result), ACCESS_DENIED);
        let receipt = observed.receipt();
        let [denial] = &receipt.denials[..] else {
            panic!("{receipt:?}")
        };
        assert_eq!((denial.what.as_str(), denial.target.as_str()), ("keyvalue", "a"));
        assert_eq!(denial.allow_with.as_deref(), Some("keyvalue=a"));
        assert_eq!(receipt.buckets, []);
    }
}

#[tokio::test]
async fn without_a_host_store_no_bucket_exists() {
    let component = load(&support::sandbox(), &opening()).await.unwrap();
    let (result, observed) = call(&*only_tool(&component, granting("a"))).await;
    assert_eq!(bytes(result), NO_SUCH_STORE);
    assert_eq!(observed.receipt().denials, []);
}

#[tokio::test]
async fn unresponsive_store_does_not_block_the_call() {
    let mut policy = granting("a");
    policy.limits.wall_ms = 50;
    let (result, observed) = run(policy).await;
    let limit = Limit::WallTimeMs(50);
    assert_eq!(result, Err(ToolError::Limit { limit }));
    assert!(observed.receipt().wall_us >= 50_000);
}

/// A store that never responds, and says so when it is asked.
struct Waiting(Arc<Notify>);

impl KeyValueStore for Waiting {
    fn open<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Arc<dyn Bucket>, KeyValueError>> {
        self.0.notify_one();
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn receipt_of_a_dropped_call_contains_no_secret() {
    let asked = Arc::new(Notify::new());
    let sandbox = Sandbox::new(SandboxOptions {
        slots: 4,
        optimize: false,
        buckets: Some(Arc::new(Waiting(asked.clone()))),
        ..SandboxOptions::default()
    });
    // A bucket that is denied, and then one that is waited for.
    let mut probe = opening();
    probe.module += &format!("(data (i32.const 1024) \"{SECRET}\")");
    probe.run = format!(
        "(call $open (i32.const 1024) (i32.const {}) (i32.const 512)) {}",
        SECRET.len(),
        probe.run
    );
    let component = load(&sandbox.unwrap(), &probe).await.unwrap();
    let mut policy = granting("a");
    policy.grants.secrets =
        serde_json::from_str(r#"[{"name": "token", "origins": ["https://a.example"], "header": "x-key"}]"#)
            .unwrap();
    let mut secrets = Secrets::default();
    secrets.insert("token", SECRET).unwrap();
    let tools = component.tools_with_secrets(policy.into(), &secrets).unwrap();
    let (context, observer) = observed_context();
    tokio::select! {
        result = tools[0].call(call_of(serde_json::json!({})), context) => panic!("{result:?}"),
        () = asked.notified() => {}
    }
    let observed = observer.observed();
    assert_eq!(observed.receipt().denials[0].target, "[redacted:token]");
}

#[tokio::test]
async fn long_result_is_searched_for_secrets_off_the_worker() {
    let sandbox = Sandbox::new(SandboxOptions::default()).unwrap();
    // It answers with its arguments.
    let component = load(&sandbox, &Probe::default()).await.unwrap();
    let mut policy = granting("a");
    policy.grants.secrets =
        serde_json::from_str(r#"[{"name": "token", "origins": ["https://a.example"], "header": "x-key"}]"#)
            .unwrap();
    let mut secrets = Secrets::default();
    secrets.insert("token", SECRET).unwrap();
    let tool = component
        .tools_with_secrets(policy.into(), &secrets)
        .unwrap()
        .remove(0);
    for length in [10, 300_000] {
        let text = format!("{SECRET}{}{SECRET}", "x".repeat(length));
        let call = call_of(serde_json::json!({ "text": text }));
        let result = tool.call(call, observed_context().0).await;
        let shown = serde_json::to_string(&result).unwrap();
        assert_eq!(shown.matches("[redacted:token]").count(), 2, "{length}");
        assert!(!shown.contains(SECRET) && shown.len() > length, "{length}");
    }
}

#[tokio::test]
async fn search_of_a_result_is_part_of_its_time() {
    let sandbox = Sandbox::new(SandboxOptions::default()).unwrap();
    let component = load(&sandbox, &Probe::default()).await.unwrap();
    let mut policy = granting("a");
    policy.limits.wall_ms = 1_000;
    policy.grants.secrets =
        serde_json::from_str(r#"[{"name": "token", "origins": ["https://a.example"], "header": "x-key"}]"#)
            .unwrap();
    let mut secrets = Secrets::default();
    // At each place of the text, the search reads all of it: minutes.
    secrets.insert("token", "a".repeat(8_192)).unwrap();
    let tools = component.tools_with_secrets(policy.into(), &secrets).unwrap();
    let call = call_of(serde_json::json!({ "text": "a".repeat(400_000) }));
    let result = tools[0].call(call, observed_context().0).await;
    let limit = Limit::WallTimeMs(1_000);
    assert_eq!(result.error, Some(ToolError::Limit { limit }));
    assert!(result.receipt.unwrap().wall_us > 0);
}
