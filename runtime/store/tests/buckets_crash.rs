//! `kill -9` while values are written: acknowledged values survive, and values that were written together are either
//! all present or all absent.
//!
//! The test starts itself as the child process, which prints each number once the store has acknowledged it.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use toolcell_core::KeyValueStore as _;
use toolcell_store::{BucketLimits, SqliteBuckets};

/// Variable with the path of the file for the child.
const FILE: &str = "TOOLCELL_BUCKETS_TEST_FILE";

const KILLS: u64 = 20;

/// Number of keys that are written together.
const BATCH: usize = 8;

fn keys() -> Vec<String> {
    (0..BATCH).map(|i| format!("k{i}")).collect()
}

/// Writes until killed.
#[tokio::main(flavor = "current_thread")]
async fn write(file: &str) {
    let store = SqliteBuckets::open(file, BucketLimits::default()).unwrap();
    let bucket = store.open("b").await.unwrap();
    loop {
        let number = bucket.increment("n".into(), 1).await.unwrap();
        let pairs = keys()
            .into_iter()
            .map(|key| (key, number.to_string().into_bytes()));
        bucket.set(pairs.collect()).await.unwrap();
        println!("written {number}");
    }
}

/// The stored numbers, one for each key, and the counter.
#[tokio::main(flavor = "current_thread")]
async fn read(file: &str) -> (Vec<u64>, u64) {
    let store = SqliteBuckets::open(file, BucketLimits::default()).unwrap();
    let bucket = store.open("b").await.unwrap();
    let mut wanted = keys();
    wanted.push("n".into());
    let values = bucket.get(wanted, 1 << 10).await.unwrap();
    let mut numbers: Vec<u64> = values
        .into_iter()
        .map(|value| value.map_or(0, |digits| String::from_utf8(digits).unwrap().parse().unwrap()))
        .collect();
    let counter = numbers.pop().unwrap();
    (numbers, counter)
}

#[test]
fn acknowledged_values_survive_a_kill_and_writes_are_atomic() {
    if let Ok(file) = std::env::var(FILE) {
        write(&file);
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("buckets.sqlite");
    let file = file.to_str().unwrap();
    let mut acknowledged = 0;
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--nocapture", "acknowledged_values_survive"])
            .env(FILE, file)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        // The kill comes at a different time after the first acknowledgement in each round.
        let mut number = |line: std::io::Result<String>| {
            if let Some(number) = line.unwrap().strip_prefix("written ") {
                acknowledged = number.parse().unwrap();
                return true;
            }
            false
        };
        while !number(output.next().unwrap()) {}
        std::thread::sleep(Duration::from_millis(kill * 7 % 40));
        child.kill().unwrap();
        child.wait().unwrap();
        for line in output {
            number(line);
        }
        let (numbers, counter) = read(file);
        assert!(
            numbers.iter().all(|n| *n == numbers[0]),
            "half written: {numbers:?}"
        );
        assert!(
            numbers[0] >= acknowledged,
            "{acknowledged} was acknowledged, {} is stored",
            numbers[0]
        );
        assert!(counter >= numbers[0], "{counter}");
    }
}
