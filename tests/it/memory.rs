//! Memory tools: disabled by default, persistent between processes, subject to `only` and grants.

use serde_json::{Value, json};
use toolcell_core::KeyValueStore as _;
use toolcell_store::{BucketLimits, SqliteBuckets};

use crate::support::cli_user::{Seen, User};

const ENABLED: &str = "[tools.memory]\nenabled = true\ngrants = [\"keyvalue=memory\"]\n";

fn call(user: &User, tool: &str, arguments: Value) -> Seen {
    user.run(&["call", tool, &arguments.to_string()])
}

const ALL: [&str; 6] = [
    "memory_store",
    "memory_recall",
    "memory_discover",
    "memory_link",
    "memory_task",
    "memory_tasks",
];

/// Returns the memory tools that a model is offered: those that are not reported as unknown when called.
fn offered(user: &User) -> Vec<&'static str> {
    let calls: Vec<Value> = ALL
        .iter()
        .map(|name| json!({ "name": name, "arguments": {} }))
        .collect();
    let script = json!({ "steps": [{ "calls": calls }, { "text": "Done." }] });
    user.file("script.json", script.to_string());
    let run = [
        "run",
        "x",
        "--provider",
        "scripted",
        "--model",
        "script.json",
        "--json",
    ];
    let events = user.run(&run).ended(0).json_lines();
    // Calls can finish in any order.
    let results: Vec<&Value> = events
        .iter()
        .filter(|event| event["type"] == "call_finished")
        .collect();
    assert_eq!(results.len(), ALL.len(), "{events:?}");
    let is_known = |name: &&str| {
        let result = results.iter().find(|event| event["tool"] == **name).unwrap();
        result["error"]["kind"] != "unknown_tool"
    };
    ALL.into_iter().filter(is_known).collect()
}

#[test]
fn stored_memory_and_its_links_are_found_by_next_process() {
    let user = User::new();
    user.configure(ENABLED);
    let store = |content: &str| {
        let seen = call(&user, "memory_store", json!({ "content": content })).ended(0);
        seen.json()["id"].as_str().unwrap().to_owned()
    };
    let rule = store("We never deploy on Fridays.");
    let reason = store("The outage of March began with a release before a weekend.");
    let link = json!({ "from": rule, "to": reason, "relation": "because_of" });
    call(&user, "memory_link", link).ended(0);
    let task = json!({ "action": "create", "title": "Write the release calendar", "tags": ["ops"] });
    call(&user, "memory_task", task).ended(0);

    let query = json!({ "query": "deploying friday", "depth": 1 });
    let found = call(&user, "memory_discover", query).ended(0).json();
    assert_eq!(found["matches"][0]["id"], rule);
    assert_eq!(found["total"], 1);
    assert_eq!(found["neighbours"][0]["id"], reason);
    let read = call(&user, "memory_recall", json!({ "ids": [reason] }))
        .ended(0)
        .json();
    assert_eq!(read["memories"][0]["links"][0]["from"], rule);
    let open = call(&user, "memory_tasks", json!({ "tag": "ops" }))
        .ended(0)
        .json();
    assert_eq!(open["tasks"][0]["title"], "Write the release calendar");

    let seen = user.run(&["call", "memory_tasks", "{}", "--receipt"]).ended(0);
    assert!(seen.stderr.contains("read bucket memory"), "{}", seen.stderr);
    assert!(user.home().join(".local/share/toolcell/buckets.sqlite").is_file());
}

#[test]
fn grant_can_map_memory_to_project_bucket() {
    let user = User::new();
    let store = |grant: &str| {
        let arguments = json!({ "content": "x" }).to_string();
        let seen = user
            .run(&["call", "memory_store", &arguments, "--grant", grant])
            .ended(0);
        seen.json()["id"].clone()
    };
    assert_eq!(store("keyvalue=shop:memory"), "m1");
    assert_eq!(store("keyvalue=garden:memory"), "m1");
    assert_eq!(store("memory:keyvalue=shop:memory"), "m2");
    let found = user
        .run(&[
            "call",
            "memory_recall",
            "{}",
            "--grant",
            "keyvalue-read=shop:memory",
        ])
        .ended(0);
    assert_eq!(found.json()["memories"].as_array().unwrap().len(), 2);
    let refused = user.run(&[
        "call",
        "memory_store",
        r#"{"content": "x"}"#,
        "--grant",
        "keyvalue-read=shop:memory",
    ]);
    let refused = refused.ended(4);
    assert!(refused.stderr.contains("is read-only"), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("--grant memory:keyvalue=shop:memory"),
        "{}",
        refused.stderr
    );
}

#[test]
fn without_grant_nothing_is_stored_and_hint_allows_it() {
    let user = User::new();
    let seen = call(&user, "memory_store", json!({ "content": "x" })).ended(4);
    assert_eq!(seen.stdout, "");
    insta::assert_snapshot!(user.plain(&seen.stderr), @r#"
    error: call to `memory_store` failed
      why: │ not allowed: the bucket `memory` is not granted to this tool
     hint: allow it with --grant memory:keyvalue=memory
           or, in ~/.config/toolcell/config.toml: [tools.memory] grants = ["keyvalue=memory"]
    "#);
    assert!(!user.home().join(".local/share/toolcell").exists());
}

#[test]
fn memory_tools_are_offered_only_if_enabled_by_user() {
    let user = User::new();
    assert_eq!(offered(&user), [""; 0]);
    user.configure(ENABLED);
    assert_eq!(offered(&user), ALL);
    // A project can disable them, and cannot enable them.
    user.file("toolcell.toml", "[tools.memory]\nenabled = false\n");
    assert_eq!(offered(&user), [""; 0]);
    call(&user, "memory#memory_tasks", json!({})).ended(3);
    user.configure("")
        .file("toolcell.toml", "[tools.memory]\nenabled = true\n");
    let seen = user.run(&["config", "check"]).ended(3);
    insta::assert_snapshot!(user.plain(&seen.stderr), @r"
    error: the project's file enables `memory`
      why: in toolcell.toml, line 2, column 11
           │   2 | enabled = true
           │     |           ^^^^
         - it is disabled by default
     hint: to use it, in ~/.config/toolcell/config.toml: [tools.memory] enabled = true
    ");
}

#[test]
fn only_unset_offers_all_and_empty_list_none() {
    let user = User::new();
    let with = |only: &str| {
        user.configure(&format!("{ENABLED}{only}\n"));
        offered(&user)
    };
    assert_eq!(with(""), ALL);
    assert_eq!(with("only = []"), [""; 0]);
    assert_eq!(
        with("only = [\"memory_recall\", \"memory_discover\"]"),
        ["memory_recall", "memory_discover"]
    );
    let seen = call(&user, "memory_store", json!({ "content": "x" })).ended(3);
    insta::assert_snapshot!(user.plain(&seen.stderr), @r#"
    error: the tool `memory_store` is not offered
      why: in ~/.config/toolcell/config.toml, line 4, column 8
           │   4 | only = ["memory_recall", "memory_discover"]
           │     |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
     hint: add it there, or remove the list
    "#);
    call(&user, "memory_recall", json!({})).ended(0);

    user.configure(&format!("{ENABLED}only = [\"memory_recal\"]\n"));
    let seen = user.run(&["run", "x"]).ended(3);
    insta::assert_snapshot!(user.plain(&seen.stderr), @r#"
    error: `memory` has no tool `memory_recal` that could be offered
      why: in ~/.config/toolcell/config.toml, line 4, column 8
           │   4 | only = ["memory_recal"]
           │     |        ^^^^^^^^^^^^^^^^
     hint: did you mean `memory_recall`?
    "#);
}

#[test]
fn project_may_offer_fewer_tools_and_never_more() {
    let user = User::new();
    user.configure(&format!(
        "{ENABLED}only = [\"memory_recall\", \"memory_discover\"]\n"
    ));
    user.file("toolcell.toml", "[tools.memory]\nonly = [\"memory_recall\"]\n");
    assert_eq!(offered(&user), ["memory_recall"]);
    user.file(
        "toolcell.toml",
        "[tools.memory]\nonly = [\"memory_recall\", \"memory_store\"]\n",
    );
    let seen = user.run(&["config", "check"]).ended(3);
    insta::assert_snapshot!(user.plain(&seen.stderr), @r#"
    error: the project's file offers `memory_store`, and your own configuration does not
      why: in toolcell.toml, line 2, column 8
           │   2 | only = ["memory_recall", "memory_store"]
           │     |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
         - in ~/.config/toolcell/config.toml, line 4, column 8
           │   4 | only = ["memory_recall", "memory_discover"]
           │     |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
     hint: to offer it, name it in your own configuration
    "#);
    // For any component, a list offers fewer tools than no list.
    user.configure("")
        .file("toolcell.toml", "[tools.text]\nonly = [\"text_count\"]\n");
    call(&user, "text_count", json!({ "text": "a" })).ended(0);
    call(&user, "text_hash", json!({ "text": "a" })).ended(3);
}

#[test]
fn lock_pins_offered_tools_and_fewer_are_accepted() {
    let user = User::new();
    let only = |list: &str| {
        user.configure(&format!("{ENABLED}only = {list}\n"));
        user.run(&["call", "memory_recall", "{}", "--locked"])
    };
    user.configure(&format!(
        "{ENABLED}only = [\"memory_recall\", \"memory_tasks\"]\n"
    ));
    user.run(&["lock", "--tool", "memory"]).ended(0);
    only("[\"memory_recall\", \"memory_tasks\"]").ended(0);
    only("[\"memory_recall\"]").ended(0);
    let seen = only("[\"memory_recall\", \"memory_store\"]").ended(4);
    assert!(
        seen.stderr.contains("the tool `memory_store` is new"),
        "{}",
        seen.stderr
    );
    user.configure(
        "[tools.memory]\nenabled = true\ngrants = [\"keyvalue=other:memory\"]\nonly = [\"memory_recall\"]\n",
    );
    let seen = user.run(&["call", "memory_recall", "{}", "--locked"]).ended(4);
    assert!(
        seen.stderr.contains("the grant `keyvalue=other:memory`"),
        "{}",
        seen.stderr
    );
}

#[test]
fn memory_stored_in_session_is_found_in_next() {
    let user = User::new();
    user.configure(ENABLED);
    let run = |calls: Value, answer: &str| {
        let script = json!({ "steps": [{ "calls": calls }, { "text": answer }] });
        user.file("script.json", script.to_string());
        let run = [
            "run",
            "x",
            "--provider",
            "scripted",
            "--model",
            "script.json",
            "--json",
        ];
        let events = user.run(&run).ended(0).json_lines();
        let finished = events
            .into_iter()
            .filter(|event| event["type"] == "call_finished");
        finished.collect::<Vec<_>>()
    };
    let note = |text: &str| json!({ "name": "memory_store", "arguments": { "content": text } });
    // Several calls in one step, as models make them.
    let stored = run(
        json!([note("The quince needs water."), note("The quince likes sun.")]),
        "Noted.",
    );
    let mut ids: Vec<&str> = stored
        .iter()
        .map(|result| result["structured"]["id"].as_str().unwrap())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, ["m1", "m2"]);
    let link = json!({ "from": "m1", "to": "m2", "relation": "besides" });
    run(json!([{ "name": "memory_link", "arguments": link }]), "Linked.");
    let query = json!({ "query": "water", "depth": 1 });
    let found = run(
        json!([{ "name": "memory_discover", "arguments": query }]),
        "It needs water.",
    )
    .remove(0);
    assert_eq!(
        found["structured"]["matches"][0]["content"],
        "The quince needs water."
    );
    assert_eq!(
        found["structured"]["neighbours"][0]["about"],
        "The quince likes sun."
    );
    assert_eq!(
        found["receipt"]["buckets"],
        json!([{ "bucket": "memory", "write": false }])
    );
}

#[test]
fn memory_counts_as_private_and_untrusted() {
    let user = User::new();
    let arguments = [
        "policy",
        "explain",
        "--tool",
        "memory",
        "--tool",
        "fetch",
        "--grant",
        "memory:keyvalue=memory",
        "--grant",
        "fetch:http=example.com",
    ];
    let seen = user.run(&arguments).ended(0);
    insta::assert_snapshot!(user.plain(&seen.stdout), @r"
    memory  reads private data, brings in untrusted content, changes stored values
              by keyvalue=memory
    fetch   brings in untrusted content, can send data out
              by http=example.com

    ! `memory` and `fetch` together can leak private data if content they read instructs the model to
      the flow guard asks before the call that completes the combination; without a terminal the call is refused (default)
    ");
}

#[test]
fn tool_inspect_shows_use_of_buckets() {
    let user = User::new();
    let seen = user
        .run(&["tool", "inspect", "memory", "--grant", "keyvalue=memory"])
        .ended(0);
    let says = "can request buckets of values that outlive the call, and sees only those that are granted";
    assert!(seen.stdout.contains(says), "{}", seen.stdout);
    assert!(!seen.stdout.contains("has no effect"), "{}", seen.stdout);
    let useless = user
        .run(&["tool", "inspect", "clock", "--grant", "keyvalue=memory"])
        .ended(0);
    assert!(
        useless.stdout.contains("has no imports for buckets"),
        "{}",
        useless.stdout
    );
}

/// Number of memories that a search handles within the default limits of a call.
const MANY: u64 = 10_000;

#[test]
fn search_in_ten_thousand_memories_stays_below_limits() {
    let user = User::new();
    user.configure(ENABLED);
    call(
        &user,
        "memory_store",
        json!({ "content": "one", "title": "A needle", "tags": ["sewing"] }),
    )
    .ended(0);
    fill(&user);
    let query = json!({ "query": "needle haystack 4711", "limit": 5 }).to_string();
    let seen = user
        .run(&["call", "memory_discover", &query, "--json"])
        .ended(0)
        .json();
    let found = &seen["structured"];
    assert_eq!(found["matches"][0]["id"], "m4711");
    assert_eq!(found["total"], MANY);
    let receipt = &seen["receipt"];
    let used = |name: &str| receipt[name].as_u64().unwrap();
    // The defaults are 1 T, 256 MiB and 30 s. Time is not asserted: it depends on the machine.
    assert!(used("fuel") < 2_000_000_000, "{receipt}");
    assert!(used("peak_memory") < 32 << 20, "{receipt}");

    // The memories are older than the index, which two calls make; a search reads a tenth of them then.
    for _ in 0..2 {
        call(&user, "memory_store", json!({ "content": "a later one" })).ended(0);
    }
    let indexed = user
        .run(&[
            "call",
            "memory_discover",
            &query,
            "--json",
            "--limit",
            "keyvalue_bytes=2MiB",
        ])
        .ended(0)
        .json();
    assert_eq!(indexed["structured"]["matches"][0]["id"], "m4711");
    assert_eq!(indexed["structured"]["total"], MANY);
    let receipt = &indexed["receipt"];
    assert!(receipt["fuel"].as_u64().unwrap() < used("fuel") / 4, "{receipt}");
}

/// Adds memories of about sixty words, in the format of the tool.
#[tokio::main(flavor = "current_thread")]
async fn fill(user: &User) {
    let file = user.home().join(".local/share/toolcell/buckets.sqlite");
    let store = SqliteBuckets::open(file, BucketLimits::default()).unwrap();
    let bucket = store.open("memory").await.unwrap();
    let first = bucket
        .get(vec!["m/1".into()], 1 << 20)
        .await
        .unwrap()
        .remove(0)
        .unwrap();
    let form: Value = serde_json::from_slice(&first).unwrap();
    let words = [
        "haystack", "straw", "barn", "field", "water", "pear", "quince", "March", "release", "note",
    ];
    let memory = |number: u64| {
        let mut memory = form.clone();
        let mut content = format!("Number {number} lies in the haystack.");
        for i in 0..50 {
            let word = words[usize::try_from((number * 7 + i * i) % 10).unwrap()];
            content.push_str(&format!(" {word}"));
        }
        memory["content"] = content.into();
        memory["title"] = format!("Memory {number}").into();
        (format!("m/{number}"), memory.to_string().into_bytes())
    };
    let numbers: Vec<u64> = (1..=MANY).collect();
    let last = ("next".to_owned(), MANY.to_string().into_bytes());
    bucket.set(vec![last]).await.unwrap();
    for numbers in numbers.chunks(1_000) {
        bucket
            .set(numbers.iter().map(|number| memory(*number)).collect())
            .await
            .unwrap();
    }
}

#[test]
fn deleted_task_is_gone_from_disk() {
    let user = User::new();
    user.configure(ENABLED);
    let data = user.home().join(".local/share/toolcell");
    let holds = |text: &str| {
        crate::support::planted::files_below(&data)
            .into_iter()
            .any(|file| {
                let bytes = std::fs::read(file).unwrap();
                bytes.windows(text.len()).any(|window| window == text.as_bytes())
            })
    };
    let create = |title: &str| {
        let task = json!({ "action": "create", "title": title });
        call(&user, "memory_task", task).ended(0).json()["task"]["id"].clone()
    };
    let id = create("Bury the treasure");
    create("Water the plants");
    assert!(holds("treasure"));
    call(&user, "memory_task", json!({ "action": "delete", "id": id })).ended(0);
    assert!(!holds("treasure") && holds("plants"));
}
