//! Any bytes at all as a component: an error or a tool, never a panic.
//!
//! The suite tries some thousand; `TOOLCELL_MUTANTS=1000000 cargo test --test any_bytes -- --nocapture` tries as many as
//! one likes and says what became of them.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use support::{Probe, call, only_tool, sandbox};
use toolcell_core::{Limits, Policy};

/// Few calls of mutants may take long: some loop.
fn policy() -> Policy {
    Policy {
        limits: Limits {
            fuel: 1_000_000,
            wall_ms: 1_000,
            memory: 4 << 20,
            ..Limits::default()
        },
        ..Policy::default()
    }
}

/// A small generator of pseudo-random numbers (xorshift64*): the same mutants each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % sides
    }
}

/// Components to start from: a tool, and every attack that is small.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![Probe::default().build()];
    let corpus = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/corpora/attacks"
    ));
    for entry in std::fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "wat") {
            let bytes = wat::parse_str(std::fs::read_to_string(path).unwrap()).unwrap();
            if bytes.len() < 10_000 {
                seeds.push(bytes);
            }
        }
    }
    seeds
}

/// Changes from one to eight things: a byte, a bit, a piece taken out, doubled, or put in from another component.
fn mutate(bytes: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    for _ in 0..=dice.roll(8) {
        if bytes.is_empty() {
            return;
        }
        let at = dice.roll(bytes.len());
        let len = dice.roll(16).min(bytes.len() - at);
        match dice.roll(6) {
            0 => bytes[at] = dice.roll(256) as u8,
            1 => bytes[at] ^= 1 << dice.roll(8),
            2 => drop(bytes.drain(at..at + len)),
            3 => {
                let piece = bytes[at..at + len].to_vec();
                bytes.splice(at..at, piece);
            }
            4 => {
                let from = dice.roll(other.len());
                let to = (from + len).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
            _ => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][dice.roll(5)],
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_bytes_at_all_make_the_host_panic() {
    // Panics inside of the compiler are caught there, and would go unseen here.
    let panics = Arc::new(AtomicU64::new(0));
    let counter = panics.clone();
    std::panic::set_hook(Box::new(move |panic| {
        counter.fetch_add(1, Ordering::Relaxed);
        eprintln!("{panic}");
    }));
    let wanted = std::env::var("TOOLCELL_MUTANTS").map_or(1_500, |n| n.parse().unwrap());
    let sandbox = sandbox();
    let seeds = seeds();
    let mut dice = Dice(0x00c0_ffee);
    let mut ends: BTreeMap<String, u64> = BTreeMap::new();
    let mut try_out = async |bytes: &[u8]| {
        let end = match sandbox.load("mutant", bytes).await {
            Ok(component) => match call(&*only_tool_or_first(&component)).await.0 {
                Ok(_) => "answers".into(),
                Err(error) => format!("loads, then {}", error.kind()),
            },
            Err(error) => {
                assert!(!error.to_string().is_empty());
                let debug = format!("{error:?}");
                debug.split([' ', '{', '(']).next().unwrap_or_default().to_owned()
            }
        };
        *ends.entry(end).or_default() += 1;
    };
    let tool = &seeds[0];
    for end in (0..tool.len()).step_by((tool.len() * 3 / wanted).max(1)) {
        try_out(&tool[..end]).await;
    }
    for i in 0..wanted {
        // Every second mutant is one of a tool: those come furthest.
        let mut bytes = seeds[if i % 2 == 0 { 0 } else { dice.roll(seeds.len()) }].clone();
        let other = seeds[dice.roll(seeds.len())].clone();
        mutate(&mut bytes, &other, &mut dice);
        try_out(&bytes).await;
    }
    println!("{ends:#?}");
    assert_eq!(panics.load(Ordering::Relaxed), 0, "a panic, see above");
    // The mutants are neither all refused at the door nor all harmless.
    assert!(ends.len() >= 6, "{ends:#?}");
    assert!(ends.keys().any(|end| end == "answers"), "{ends:#?}");
    assert!(!ends.keys().any(|end| end == "loads, then host"), "{ends:#?}");
}

/// A mutant may have more tools than one.
fn only_tool_or_first(component: &toolcell_sandbox::Component) -> Arc<dyn toolcell_core::Tool> {
    match component.definitions().len() {
        1 => only_tool(component, policy()),
        _ => component.tools(policy()).remove(0),
    }
}
