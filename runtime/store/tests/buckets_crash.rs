//! `kill -9` while values are written: what was acknowledged is there, and of what was written together either all is
//! there or nothing.
//!
//! The test starts itself as the child process, which says each number once the store has acknowledged it.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use toolcell_core::KeyValueStore as _;
use toolcell_store::{BucketLimits, SqliteBuckets};

/// Where the child finds the file.
const FILE: &str = "TOOLCELL_BUCKETS_TEST_FILE";

const KILLS: u64 = 20;

/// Keys that are written together.
const TOGETHER: usize = 8;

fn keys() -> Vec<String> {
    (0..TOGETHER).map(|i| format!("k{i}")).collect()
}

/// Writes until it is killed.
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

/// The numbers that are kept, one for each key, and the counter.
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
fn values_that_were_acknowledged_survive_a_kill_and_none_is_half_written() {
    if let Ok(file) = std::env::var(FILE) {
        write(&file);
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("buckets.sqlite");
    let file = file.to_str().unwrap();
    let mut acknowledged = 0;
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--nocapture", "values_that_were_acknowledged"])
            .env(FILE, file)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        // The kill comes at another moment after the first acknowledgement each time.
        let mut number = |line: std::io::Result<String>| {
            if let Some(number) = line.unwrap().strip_prefix("written ") {
                acknowledged = number.parse().unwrap();
                return true;
            }
            false
        };
        while !number(said.next().unwrap()) {}
        std::thread::sleep(Duration::from_millis(kill * 7 % 40));
        child.kill().unwrap();
        child.wait().unwrap();
        for line in said {
            number(line);
        }
        let (numbers, counter) = read(file);
        assert!(
            numbers.iter().all(|n| *n == numbers[0]),
            "half written: {numbers:?}"
        );
        assert!(
            numbers[0] >= acknowledged,
            "{acknowledged} was acknowledged, {} is there",
            numbers[0]
        );
        assert!(counter >= numbers[0], "{counter}");
    }
}
