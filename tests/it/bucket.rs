//! `toolcell bucket`: listing, showing, exporting and clearing what tools keep between calls.

use serde_json::json;
use toolcell_core::KeyValueStore as _;
use toolcell_store::{BucketLimits, SqliteBuckets};

use crate::support::cli_user::User;

/// Fills the bucket `notes` of a user, as tools do.
async fn fill(user: &User) {
    // A tool creates the file.
    user.configure("[tools.memory]\nenabled = true\ngrants = [\"keyvalue=memory\"]\n");
    user.run(&["call", "memory_store", r#"{"content": "x"}"#])
        .ended(0);
    let file = user.home().join(".local/share/toolcell/buckets.sqlite");
    let store = SqliteBuckets::open(file, BucketLimits::default()).unwrap();
    let pairs = [
        ("greeting", b"hello\nworld".to_vec()),
        ("bytes", vec![0xff, 0]),
        ("\u{1b}[2Jkey", b"x".to_vec()),
    ];
    let pairs = pairs.map(|(key, value)| (key.to_owned(), value)).to_vec();
    store.open("notes").await.unwrap().set(pairs).await.unwrap();
}

#[tokio::test]
async fn bucket_is_listed_shown_exported_and_cleared() {
    let user = User::new();
    let none = user.run(&["bucket", "list"]).ended(0);
    assert!(none.stderr.contains("there are no buckets"), "{}", none.stderr);
    fill(&user).await;

    let listed = user.run(&["bucket", "list", "--json"]).ended(0).json();
    assert_eq!(listed[1], json!({ "bucket": "notes", "keys": 3, "bytes": 34 }));
    let listed = user.run(&["bucket", "list"]).ended(0).stdout;
    assert!(
        listed.contains("notes") && listed.contains("  3 keys  34 B"),
        "{listed}"
    );

    let shown = user.run(&["bucket", "show", "notes"]).ended(0).stdout;
    assert!(
        shown.contains("greeting") && shown.contains("11 B") && shown.contains("hello"),
        "{shown}"
    );
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    let value = user.run(&["bucket", "show", "notes", "greeting"]).ended(0);
    assert_eq!(value.stdout.trim_end(), "hello\nworld");

    let exported = user.run(&["bucket", "export", "notes"]).ended(0).json_lines();
    assert_eq!(exported[0], json!({ "key": "greeting", "text": "hello\nworld" }));
    assert_eq!(exported[1], json!({ "key": "bytes", "data": "/wA=" }));
    assert_eq!(exported.len(), 3);

    let cleared = user.run(&["bucket", "clear", "notes"]).ended(0).stderr;
    assert!(cleared.contains("cleared `notes`: 3 keys deleted\n"), "{cleared}");
    let listed = user.run(&["bucket", "list", "--json"]).ended(0).json();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
}

#[tokio::test]
async fn unknown_bucket_or_key_is_a_usage_error() {
    let user = User::new();
    user.run(&["bucket", "clear", "notes"]).ended(2);
    fill(&user).await;
    let near = user.run(&["bucket", "show", "note"]).ended(2).stderr;
    assert!(near.contains("did you mean `notes`?"), "{near}");
    let key = user.run(&["bucket", "show", "notes", "none"]).ended(2).stderr;
    assert!(key.contains("the bucket `notes` has no key `none`"), "{key}");
}

#[test]
fn user_limits_a_bucket() {
    let user = User::new();
    let memory = "[tools.memory]\nenabled = true\ngrants = [\"keyvalue=memory\"]\n";
    let store = |text: &str| {
        let arguments = format!("{{\"content\": \"{text}\"}}");
        user.run(&["call", "memory_store", &arguments])
    };
    for (limits, refused) in [
        (
            "[buckets.memory]\nbytes = \"1 KiB\"\n",
            ["1024 bytes", "[buckets.memory] bytes = \"128 MiB\""],
        ),
        (
            "[buckets.memory]\nkeys = 0\n",
            ["0 keys", "[buckets.memory] keys = \"250 k\""],
        ),
    ] {
        user.configure(&format!("{memory}{limits}"));
        let seen = store(&"x".repeat(2000)).ended(5);
        for part in refused {
            assert!(seen.stderr.contains(part), "{part}: {}", seen.stderr);
        }
    }
    user.configure(&format!("{memory}[buckets.memory]\nbytes = \"1 KiB\"\n"));
    store("short").ended(0);
    let shown = user.run(&["config", "check"]).ended(0).stdout;
    assert!(shown.contains("buckets.memory.bytes"), "{shown}");
    user.configure(&format!("{memory}[buckets.\"no name\"]\nkeys = 1\n"));
    let seen = user.run(&["config", "check"]).ended(3);
    assert!(
        seen.stderr.contains("not the name of a bucket"),
        "{}",
        seen.stderr
    );
}

#[test]
fn damaged_file_of_buckets_is_told_and_set_aside() {
    let user = User::new();
    user.configure("[tools.memory]\nenabled = true\ngrants = [\"keyvalue=memory\"]\n");
    let store = || user.run(&["call", "memory_store", r#"{"content": "x"}"#]);
    let doctor = |code: i32| {
        let all = user.run(&["doctor", "--json"]).ended(code).json();
        let mut all = all.as_array().unwrap().iter();
        all.find(|check| check["check"] == "buckets").unwrap().clone()
    };
    assert_eq!(doctor(0)["text"], "none");
    store().ended(0);
    assert!(doctor(0)["text"].as_str().unwrap().starts_with("1 bucket, "));

    let file = user.home().join(".local/share/toolcell/buckets.sqlite");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[..16].fill(b'x');
    std::fs::write(&file, &bytes).unwrap();
    let hint = "toolcell bucket set-aside";
    for seen in [store().ended(74), user.run(&["bucket", "list"]).ended(74)] {
        for part in [
            "the buckets in `~/.local/share/toolcell/buckets.sqlite` cannot be used",
            "the file is damaged",
            hint,
        ] {
            assert!(seen.stderr.contains(part), "{part}: {}", seen.stderr);
        }
    }
    let bad = doctor(74);
    assert_eq!(bad["state"], "bad");
    assert!(bad["hints"].to_string().contains(hint), "{bad}");

    let seen = user.run(&["bucket", "set-aside"]).ended(0).stderr;
    assert!(
        seen.contains("the buckets are now in `~/.local/share/toolcell/buckets-"),
        "{seen}"
    );
    let dir = file.parent().unwrap();
    let kept = std::fs::read_dir(dir).unwrap().flatten().any(|entry| {
        let name = entry.file_name().into_string().unwrap();
        name.starts_with("buckets-") && std::fs::read(entry.path()).unwrap() == bytes
    });
    assert!(kept);
    store().ended(0);
    user.run(&["bucket", "set-aside"]).ended(0);
    let seen = user.run(&["bucket", "set-aside"]).ended(0).stderr;
    assert!(seen.contains("does not exist"), "{seen}");
}
