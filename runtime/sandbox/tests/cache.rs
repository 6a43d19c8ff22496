//! The cache of compiled code: a second start compiles nothing, and entries not written by this user are never trusted.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use support::{Own, Probe, call, load, only_tool};
use toolcell_core::CallResult;
use toolcell_sandbox::{CacheError, ComponentKind, Sandbox, SandboxOptions, Statistics};

fn with_cache(dir: &Path, optimize: bool) -> Sandbox {
    Sandbox::new(SandboxOptions {
        cache_dir: Some(dir.to_owned()),
        slots: 2,
        optimize,
        ..SandboxOptions::default()
    })
    .unwrap()
}

/// Simulates one start of a process: loads the probe, calls it, and returns the statistics.
async fn start(dir: &Path) -> Statistics {
    let sandbox = with_cache(dir, false);
    assert!(sandbox.cache_error().is_none(), "{:?}", sandbox.cache_error());
    let component = load(&sandbox, &Probe::default()).await.unwrap();
    let (answer, _) = call(&*only_tool(&component, Default::default())).await;
    assert_eq!(answer, Ok(CallResult::text("{}")));
    sandbox.statistics()
}

const COMPILED: Statistics = Statistics {
    compiled: 1,
    from_cache: 0,
    definitions_read: 1,
};
const CACHED: Statistics = Statistics {
    compiled: 0,
    from_cache: 1,
    definitions_read: 0,
};

fn entry(dir: &Path, extension: &str) -> PathBuf {
    let entries = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let mut found: Vec<PathBuf> = entries
        .filter(|p| p.extension().is_some_and(|e| e == extension))
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.pop().unwrap()
}

#[tokio::test]
async fn second_start_compiles_and_reads_nothing() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("deep/cache");
    assert_eq!(start(&dir).await, COMPILED);
    assert_eq!(start(&dir).await, CACHED);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    assert_eq!(mode(&dir.join("key")), 0o600);
    assert_eq!(mode(&entry(&dir, "code")), 0o600);
}

#[tokio::test]
async fn code_of_a_known_trusted_component_is_read_for_its_first_call() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("cache");
    let own = Own::leaked(Probe::default().build());
    let first = with_cache(&dir, false);
    let component = first.load_trusted("own", own).await.unwrap();
    assert_eq!(first.statistics(), COMPILED);
    let definitions = component.definitions().to_vec();

    let second = with_cache(&dir, false);
    let component = second.load_trusted("own", own).await.unwrap();
    assert_eq!(second.statistics(), Statistics::default());
    assert_eq!(component.definitions(), definitions);
    assert_eq!(component.kind(), ComponentKind::Tools);
    for _ in 0..2 {
        let (answer, _) = call(&*only_tool(&component, Default::default())).await;
        assert_eq!(answer, Ok(CallResult::text("{}")));
        assert_eq!(second.statistics(), CACHED);
    }

    // An entry that is gone or spoiled by then is compiled again.
    for is_there in [true, false] {
        let third = with_cache(&dir, false);
        let component = third.load_trusted("own", own).await.unwrap();
        assert_eq!(third.statistics(), Statistics::default());
        match is_there {
            true => fs::write(entry(&dir, "code"), b"spoiled").unwrap(),
            false => fs::remove_file(entry(&dir, "code")).unwrap(),
        }
        let (answer, _) = call(&*only_tool(&component, Default::default())).await;
        assert_eq!(answer, Ok(CallResult::text("{}")));
        assert_eq!(
            (third.statistics().compiled, third.statistics().from_cache),
            (1, 0)
        );
    }
    // Without code it is compiled when it is loaded.
    fs::remove_file(entry(&dir, "code")).unwrap();
    let fourth = with_cache(&dir, false);
    fourth.load_trusted("own", own).await.unwrap();
    assert_eq!(fourth.statistics().compiled, 1);
}

#[tokio::test]
async fn other_compiler_settings_are_other_entries() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("cache");
    assert_eq!(start(&dir).await, COMPILED);
    let optimized = with_cache(&dir, true);
    load(&optimized, &Probe::default()).await.unwrap();
    assert_eq!(optimized.statistics(), COMPILED);
}

#[tokio::test]
async fn entry_with_any_changed_bit_is_compiled_again() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("cache");
    start(&dir).await;
    let code = entry(&dir, "code");
    let good = fs::read(&code).unwrap();
    let mut bits: Vec<usize> = (0..good.len() * 8).step_by(good.len() * 8 / 12).collect();
    bits.push(good.len() * 8 - 1);
    for bit in bits {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        fs::remove_file(&code).unwrap();
        fs::write(&code, &bad).unwrap();
        fs::set_permissions(&code, fs::Permissions::from_mode(0o600)).unwrap();
        let statistics = start(&dir).await;
        assert_eq!(
            (statistics.compiled, statistics.definitions_read),
            (1, 0),
            "bit {bit}"
        );
        assert_eq!(fs::read(&code).unwrap(), good, "it is written anew");
    }
}

#[tokio::test]
async fn invalid_entry_is_written_anew() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("cache");
    start(&dir).await;
    let (code, tools) = (entry(&dir, "code"), entry(&dir, "tools"));
    let good = fs::read(&code).unwrap();
    let elsewhere = home.path().join("elsewhere");
    fs::write(&elsewhere, &good).unwrap();
    let spoil: [(&str, &dyn Fn()); 6] = [
        ("empty", &|| fs::write(&code, b"").unwrap()),
        ("cut short", &|| {
            fs::write(&code, &good[..good.len() / 2]).unwrap();
        }),
        ("another entry", &|| {
            fs::copy(&tools, &code).unwrap();
        }),
        ("a link", &|| symlink(&elsewhere, &code).unwrap()),
        ("a directory", &|| fs::create_dir(&code).unwrap()),
        ("writable for others", &|| {
            fs::write(&code, &good).unwrap();
            fs::set_permissions(&code, fs::Permissions::from_mode(0o666)).unwrap();
        }),
    ];
    for (what, spoil) in spoil {
        fs::remove_file(&code).unwrap();
        spoil();
        assert_eq!(start(&dir).await.compiled, 1, "{what}");
        if what == "a directory" {
            fs::remove_dir(&code).unwrap();
            start(&dir).await;
        }
        assert_eq!(start(&dir).await, CACHED, "after {what}");
    }
}

#[tokio::test]
async fn entries_of_another_key_are_not_used() {
    let home = tempfile::tempdir().unwrap();
    let (ours, theirs) = (home.path().join("ours"), home.path().join("theirs"));
    start(&theirs).await;
    start(&ours).await;
    for extension in ["code", "shape", "tools"] {
        let name = entry(&theirs, extension);
        fs::copy(&name, ours.join(name.file_name().unwrap())).unwrap();
    }
    let statistics = start(&ours).await;
    assert_eq!((statistics.compiled, statistics.definitions_read), (1, 1));
}

#[tokio::test]
async fn described_component_is_neither_loaded_nor_asked_again() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("cache");
    let bytes = Probe::default().build();
    let first = with_cache(&dir, false);
    let described = first.describe("probe", &bytes).await.unwrap();
    assert_eq!(first.statistics(), COMPILED, "it was never loaded before");
    let loaded = load(&first, &Probe::default()).await.unwrap();
    assert_eq!(described.definitions(), loaded.definitions());
    assert_eq!(described.identity().digest(), loaded.digest());

    let second = with_cache(&dir, false);
    let again = second.describe("probe", &bytes).await.unwrap();
    assert_eq!(again.definitions(), described.definitions());
    assert_eq!(again.identity().imports(), described.identity().imports());
    assert_eq!(second.statistics(), Statistics::default());
    // Definitions from the cache still check arguments.
    let component = load(&second, &Probe::default()).await.unwrap();
    let schema = &component.definitions()[0].input;
    assert!(schema.check_arguments(&serde_json::json!({})).is_ok());
    assert!(schema.check_arguments(&serde_json::json!([])).is_err());
}

#[tokio::test]
async fn facts_that_are_not_authentic_are_established_anew() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("cache");
    let bytes = Probe::default().build();
    start(&dir).await;
    for (extension, statistics) in [
        ("shape", CACHED),
        (
            "tools",
            Statistics {
                definitions_read: 1,
                ..CACHED
            },
        ),
    ] {
        let path = entry(&dir, extension);
        let good = fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[good.len() / 2] ^= 1;
        fs::remove_file(&path).unwrap();
        fs::write(&path, &bad).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let sandbox = with_cache(&dir, false);
        sandbox.describe("probe", &bytes).await.unwrap();
        assert_eq!(sandbox.statistics(), statistics, "{extension}");
        assert_eq!(fs::read(&path).unwrap(), good, "it is written anew");
    }
}

#[tokio::test]
async fn changed_component_has_no_facts_in_the_cache() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("cache");
    start(&dir).await;
    let sandbox = with_cache(&dir, false);
    let mut changed = Probe::default().build();
    // A custom section, which changes nothing but the bytes.
    changed.extend_from_slice(&[0, 2, 1, b'x']);
    sandbox.describe("probe", &changed).await.unwrap();
    assert_eq!(sandbox.statistics(), COMPILED);
}

#[tokio::test]
async fn directory_writable_by_others_is_not_used() {
    let home = tempfile::tempdir().unwrap();
    let open = home.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let link = home.path().join("link");
    let private = home.path().join("private");
    fs::create_dir(&private).unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
    symlink(&private, &link).unwrap();
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    let readable_key = home.path().join("readable-key");
    start(&readable_key).await;
    fs::set_permissions(readable_key.join("key"), fs::Permissions::from_mode(0o644)).unwrap();
    for dir in [&open, &link, &file, &readable_key] {
        let sandbox = with_cache(dir, false);
        assert!(
            matches!(sandbox.cache_error(), Some(CacheError::Untrusted { .. })),
            "{dir:?}: {:?}",
            sandbox.cache_error()
        );
        // The sandbox still works, and writes nothing there.
        load(&sandbox, &Probe::default()).await.unwrap();
        assert_eq!(sandbox.statistics(), COMPILED);
    }
    assert_eq!(fs::read_dir(&open).unwrap().count(), 0);
    assert_eq!(fs::read_dir(&private).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_starts_agree_on_one_key_and_one_entry() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("cache");
    let mut starts = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let dir = dir.clone();
        starts.spawn(async move { start(&dir).await });
    }
    while let Some(statistics) = starts.join_next().await {
        statistics.unwrap();
    }
    assert_eq!(start(&dir).await, CACHED);
}
