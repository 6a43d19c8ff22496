//! `kill -9` at random points of a session with slow tools, repeated until the session has ended: no event that was
//! shown is lost, no finished call runs again, and the answer is the same.
//!
//! The test starts itself as the child process. The child writes one log, in order: each event that it shows (after the
//! journal has acknowledged it) and each effect of a tool.

#![expect(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolcell_agent::LoopState;
use toolcell_agent::TurnStart;
use toolcell_agent::{Agent, FnTool, LoopPolicy};
use toolcell_core::message::CallRequest;
use toolcell_core::provider::{Completion, Delta, ProviderError, ProviderInfo, Request, StopReason};
use toolcell_core::tool::Hints;
use toolcell_core::{BoxStream, Event, Message, Part, Provider, SessionStore as _, Tool};
use toolcell_store::SqliteSessions;

/// Total number of kills.
const KILLS: usize = 100;

/// Steps with calls before the answer.
const STEPS: usize = 6;

const ANSWER: &str = "All six rounds are done.";

/// Variable with the directory for the child.
const DIR: &str = "TOOLCELL_CRASH_TEST_DIR";

/// Stateless model: its answer depends only on the conversation, so that it is the same after a crash.
struct Deterministic(ProviderInfo);

impl Provider for Deterministic {
    fn info(&self) -> &ProviderInfo {
        &self.0
    }

    fn stream(&self, request: Request) -> BoxStream<'_, Result<Delta, ProviderError>> {
        assert_paired(&request.messages);
        let answers = request.messages.iter();
        let round = answers
            .filter(|m| matches!(m.as_ref(), Message::Assistant { .. }))
            .count();
        let call = |name: &str, n: usize| {
            Part::Call(CallRequest {
                id: format!("{name}-{round}-{n}"),
                name: name.into(),
                arguments: json!({"round": round}).to_string(),
                opaque: Value::Null,
            })
        };
        let parts = if round < STEPS {
            vec![call("read", 0), call("write", 0), call("write", 1)]
        } else {
            vec![Part::text(ANSWER)]
        };
        let completion = Completion {
            parts,
            stop: StopReason::Complete,
            usage: None,
        };
        let deltas = stream::iter([Ok(Delta::Finished(completion))]);
        stream::once(tokio::time::sleep(Duration::from_millis(1)))
            .flat_map(move |()| deltas.clone())
            .boxed()
    }
}

fn assert_paired(messages: &[Arc<Message>]) {
    let mut awaited = std::collections::VecDeque::new();
    for message in messages {
        if let Message::Tool { call_id, .. } = message.as_ref() {
            assert_eq!(awaited.pop_front().as_ref(), Some(call_id));
        } else {
            assert!(awaited.is_empty(), "no result for {awaited:?}");
            awaited.extend(message.calls().map(|call| call.id.clone()));
        }
    }
    assert!(awaited.is_empty(), "no result for {awaited:?}");
}

#[derive(Clone)]
struct Log(Arc<Mutex<File>>);

impl Log {
    fn line(&self, value: &Value) {
        self.0
            .lock()
            .unwrap()
            .write_all(format!("{value}\n").as_bytes())
            .unwrap();
    }
}

fn slow_tool(name: &'static str, idempotent: bool, log: &Log) -> Arc<dyn Tool> {
    let log = log.clone();
    let tool = FnTool::new(
        name,
        "Takes its time",
        json!({"type": "object"}),
        move |arguments, _| {
            let log = log.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(2)).await;
                log.line(&json!({"effect": name, "round": arguments["round"]}));
                tokio::time::sleep(Duration::from_millis(2)).await;
                Ok(format!("{name} done"))
            }
        },
    );
    Arc::new(tool.unwrap().hints(Hints {
        idempotent,
        ..Hints::default()
    }))
}

/// The child process: starts the session, or resumes it.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(dir.join("log"))
            .unwrap();
        let log = Log(Arc::new(Mutex::new(file)));
        let store = Arc::new(SqliteSessions::open(dir.join("sessions.db")).unwrap());
        let provider = Deterministic(ProviderInfo {
            provider: "test".into(),
            model: "test".into(),
        });
        let agent = Agent::builder(Arc::new(provider))
            .tools([slow_tool("read", true, &log), slow_tool("write", false, &log)])
            .policy(LoopPolicy {
                error_breaker: 0,
                ..LoopPolicy::default()
            })
            .store(store)
            .build()
            .unwrap();
        let sink = move |event: &Event| {
            if !event.is_transient() {
                log.line(&json!({"shown": event}));
            }
        };
        let cancel = CancellationToken::new();
        let report = match agent.load("s").await {
            Ok(mut session) if session.is_open() => session.run(TurnStart::Resume, &sink, cancel).await,
            Ok(_) => return,
            Err(_) => {
                agent
                    .session_from(LoopState::new("s"))
                    .run(Message::user("Go"), &sink, cancel)
                    .await
            }
        };
        assert_eq!(report.unwrap().text, ANSWER);
    });
}

fn start(dir: &Path) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(DIR, dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn lines(dir: &Path) -> Vec<Value> {
    let mut text = String::new();
    if let Ok(mut file) = File::open(dir.join("log")) {
        file.read_to_string(&mut text).unwrap();
    }
    // The last line may be incomplete because the child was killed.
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// A small generator (SplitMix64); its seed is printed when the test fails.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// Kills the child a short time after it has written more lines; `false` if it ended before.
fn kill_somewhere(child: &mut std::process::Child, dir: &Path, random: &mut Random) -> bool {
    let enough = lines(dir).len() + random.below(8) as usize;
    let moment = Duration::from_micros(random.below(4_000));
    let patience = Instant::now() + Duration::from_secs(60);
    while lines(dir).len() < enough {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        assert!(Instant::now() < patience, "the child does nothing");
        std::thread::sleep(Duration::from_micros(300));
    }
    std::thread::sleep(moment);
    let killed = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    killed
}

fn check(dir: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let store = SqliteSessions::open(dir.join("sessions.db")).unwrap();
    let journal = runtime.block_on(store.load("s")).unwrap();

    // Every event that was shown is in the journal, in the order in which it was shown.
    let mut journal_left = journal.iter();
    let mut finished: Vec<String> = Vec::new();
    let mut effects: BTreeMap<(String, u64), usize> = BTreeMap::new();
    for line in lines(dir) {
        if let Some(shown) = line.get("shown") {
            let shown: Event = serde_json::from_value(shown.clone()).unwrap();
            assert!(
                journal_left.any(|event| *event == shown),
                "shown and lost: {shown:?}"
            );
            if let Event::CallFinished { id, result, .. } = &shown
                && result.error.is_none()
            {
                finished.push(id.clone());
            }
        } else {
            let (tool, round) = (line["effect"].as_str().unwrap(), line["round"].as_u64().unwrap());
            *effects.entry((tool.to_owned(), round)).or_default() += 1;
            let again = finished
                .iter()
                .filter(|id| id.starts_with(&format!("{tool}-{round}-")))
                .count();
            let calls = if tool == "write" { 2 } else { 1 };
            assert!(again < calls, "{tool} of round {round} ran again after its end");
        }
    }
    for ((tool, round), times) in effects {
        assert!(
            tool == "read" || times <= 2,
            "{tool} of round {round} took effect {times} times"
        );
    }

    // Each call has exactly one valid start and one end.
    let mut ends: BTreeMap<&str, usize> = BTreeMap::new();
    for event in &journal {
        if let Event::CallFinished { id, .. } = event {
            *ends.entry(id).or_default() += 1;
        }
    }
    assert_eq!(ends.len(), STEPS * 3);
    assert!(ends.values().all(|n| *n == 1), "{ends:?}");
    let Some(Event::TurnFinished { text, .. }) = journal.last() else {
        panic!("the turn has no end: {:?}", journal.last());
    };
    assert_eq!(text, ANSWER);
}

#[test]
fn session_survives_a_hundred_random_kills() {
    let seed = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_nanos() as u64;
    println!("seed {seed}");
    let mut random = Random(seed);
    let (mut kills, mut sessions) = (0, 0);
    while kills < KILLS {
        let dir = tempfile::tempdir().unwrap();
        let done = |dir: &Path| {
            lines(dir)
                .iter()
                .any(|line| line["shown"]["type"] == "turn_finished")
        };
        while !done(dir.path()) && kills < KILLS {
            let mut child = start(dir.path());
            if kill_somewhere(&mut child, dir.path(), &mut random) {
                kills += 1;
            }
        }
        // The last child is not killed.
        let status = start(dir.path()).wait().unwrap();
        assert!(status.success(), "the child that was not killed failed");
        check(dir.path());
        sessions += 1;
    }
    println!("{kills} kills, {sessions} sessions");
}
