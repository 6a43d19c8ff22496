//! The memory tools: off by default, kept between processes, named tools only, nothing without a grant.

use serde_json::{Value, json};
use toolcell_core::KeyValueStore as _;
use toolcell_store::{BucketLimits, SqliteBuckets};

use crate::cli_person::{Person, Seen};

const ENABLED: &str = "[tools.memory]\nenabled = true\ngrants = [\"keyvalue=memory\"]\n";

fn call(person: &Person, tool: &str, arguments: Value) -> Seen {
    person.run(&["call", tool, &arguments.to_string()])
}

const ALL: [&str; 6] = [
    "memory_store",
    "memory_recall",
    "memory_discover",
    "memory_link",
    "memory_task",
    "memory_tasks",
];

/// The memory tools that a model is offered: those that are not unknown when it calls them.
fn offered(person: &Person) -> Vec<&'static str> {
    let calls: Vec<Value> = ALL
        .iter()
        .map(|name| json!({ "name": name, "arguments": {} }))
        .collect();
    let script = json!({ "steps": [{ "calls": calls }, { "text": "Done." }] });
    person.file("script.json", script.to_string());
    let run = [
        "run",
        "x",
        "--provider",
        "scripted",
        "--model",
        "script.json",
        "--json",
    ];
    let events = person.run(&run).ended(0).json_lines();
    // They end in any order.
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
fn what_one_process_stores_another_one_finds_with_what_is_linked_to_it() {
    let person = Person::new();
    person.configure(ENABLED);
    let store = |content: &str| {
        let seen = call(&person, "memory_store", json!({ "content": content })).ended(0);
        seen.json()["id"].as_str().unwrap().to_owned()
    };
    let rule = store("We never deploy on Fridays.");
    let reason = store("The outage of March began with a release before a weekend.");
    let link = json!({ "from": rule, "to": reason, "relation": "because_of" });
    call(&person, "memory_link", link).ended(0);
    let task = json!({ "action": "create", "title": "Write the release calendar", "tags": ["ops"] });
    call(&person, "memory_task", task).ended(0);

    let query = json!({ "query": "deploying friday", "depth": 1 });
    let found = call(&person, "memory_discover", query).ended(0).json();
    assert_eq!(found["matches"][0]["id"], rule);
    assert_eq!(found["total"], 1);
    assert_eq!(found["neighbours"][0]["id"], reason);
    let read = call(&person, "memory_recall", json!({ "ids": [reason] }))
        .ended(0)
        .json();
    assert_eq!(read["memories"][0]["links"][0]["from"], rule);
    let open = call(&person, "memory_tasks", json!({ "tag": "ops" }))
        .ended(0)
        .json();
    assert_eq!(open["tasks"][0]["title"], "Write the release calendar");

    let seen = person.run(&["call", "memory_tasks", "{}", "--receipt"]).ended(0);
    assert!(seen.stderr.contains("read bucket memory"), "{}", seen.stderr);
    assert!(
        person
            .home()
            .join(".local/share/toolcell/buckets.sqlite")
            .is_file()
    );
}

#[test]
fn a_grant_can_put_a_bucket_of_a_projects_own_behind_the_memory() {
    let person = Person::new();
    let store = |grant: &str| {
        let arguments = json!({ "content": "x" }).to_string();
        let seen = person
            .run(&["call", "memory_store", &arguments, "--grant", grant])
            .ended(0);
        seen.json()["id"].clone()
    };
    assert_eq!(store("keyvalue=shop:memory"), "m1");
    assert_eq!(store("keyvalue=garden:memory"), "m1");
    assert_eq!(store("memory:keyvalue=shop:memory"), "m2");
    let found = person
        .run(&[
            "call",
            "memory_recall",
            "{}",
            "--grant",
            "keyvalue-read=shop:memory",
        ])
        .ended(0);
    assert_eq!(found.json()["memories"].as_array().unwrap().len(), 2);
    let refused = person.run(&[
        "call",
        "memory_store",
        r#"{"content": "x"}"#,
        "--grant",
        "keyvalue-read=shop:memory",
    ]);
    let refused = refused.ended(4);
    assert!(refused.stderr.contains("may only be read"), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("--grant memory:keyvalue=shop:memory"),
        "{}",
        refused.stderr
    );
}

#[test]
fn without_a_grant_nothing_is_kept_and_the_person_reads_what_would_allow_it() {
    let person = Person::new();
    let seen = call(&person, "memory_store", json!({ "content": "x" })).ended(4);
    assert_eq!(seen.stdout, "");
    insta::assert_snapshot!(person.plain(&seen.stderr), @r#"
    error: the call of `memory_store` gave no answer
      why: not allowed: the bucket `memory` is not granted to this tool
     hint: allow it with --grant memory:keyvalue=memory
           │ or, in ~/.config/toolcell/config.toml: [tools.memory] grants = ["keyvalue=memory"]
    "#);
    assert!(!person.home().join(".local/share/toolcell").exists());
}

#[test]
fn the_memory_tools_are_offered_only_where_the_person_switches_them_on() {
    let person = Person::new();
    assert_eq!(offered(&person), [""; 0]);
    person.configure(ENABLED);
    assert_eq!(offered(&person), ALL);
    // A project cannot switch them on, and can switch them off.
    person.file("toolcell.toml", "[tools.memory]\nenabled = false\n");
    assert_eq!(offered(&person), [""; 0]);
    call(&person, "memory#memory_tasks", json!({})).ended(3);
    person
        .configure("")
        .file("toolcell.toml", "[tools.memory]\nenabled = true\n");
    let seen = person.run(&["config", "check"]).ended(3);
    insta::assert_snapshot!(person.plain(&seen.stderr), @r"
    error: the project's file switches `memory` on
      why: in toolcell.toml, line 2, column 11
           │   2 | enabled = true
           │     |           ^^^^
         - it is off unless you switch it on
     hint: to use it, in ~/.config/toolcell/config.toml: [tools.memory] enabled = true
    ");
}

#[test]
fn h11_only_unset_offers_all_tools_an_empty_list_none_and_a_list_those() {
    let person = Person::new();
    let with = |only: &str| {
        person.configure(&format!("{ENABLED}{only}\n"));
        offered(&person)
    };
    assert_eq!(with(""), ALL);
    assert_eq!(with("only = []"), [""; 0]);
    assert_eq!(
        with("only = [\"memory_recall\", \"memory_discover\"]"),
        ["memory_recall", "memory_discover"]
    );
    let seen = call(&person, "memory_store", json!({ "content": "x" })).ended(3);
    insta::assert_snapshot!(person.plain(&seen.stderr), @r#"
    error: the tool `memory_store` is not offered
      why: in ~/.config/toolcell/config.toml, line 4, column 8
           │   4 | only = ["memory_recall", "memory_discover"]
           │     |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
     hint: name it there, or take the list away
    "#);
    call(&person, "memory_recall", json!({})).ended(0);

    person.configure(&format!("{ENABLED}only = [\"memory_recal\"]\n"));
    let seen = person.run(&["run", "x"]).ended(3);
    insta::assert_snapshot!(person.plain(&seen.stderr), @r#"
    error: `memory` has no tool `memory_recal` that could be offered
      why: in ~/.config/toolcell/config.toml, line 4, column 8
           │   4 | only = ["memory_recal"]
           │     |        ^^^^^^^^^^^^^^^^
     hint: did you mean `memory_recall`?
    "#);
}

#[test]
fn a_project_may_leave_out_more_tools_and_never_offer_more() {
    let person = Person::new();
    person.configure(&format!(
        "{ENABLED}only = [\"memory_recall\", \"memory_discover\"]\n"
    ));
    person.file("toolcell.toml", "[tools.memory]\nonly = [\"memory_recall\"]\n");
    assert_eq!(offered(&person), ["memory_recall"]);
    person.file(
        "toolcell.toml",
        "[tools.memory]\nonly = [\"memory_recall\", \"memory_store\"]\n",
    );
    let seen = person.run(&["config", "check"]).ended(3);
    insta::assert_snapshot!(person.plain(&seen.stderr), @r#"
    error: the project's file offers `memory_store`, and your own configuration does not
      why: in toolcell.toml, line 2, column 8
           │   2 | only = ["memory_recall", "memory_store"]
           │     |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
         - in ~/.config/toolcell/config.toml, line 4, column 8
           │   4 | only = ["memory_recall", "memory_discover"]
           │     |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
     hint: to offer it, name it in your own configuration
    "#);
    // Any list is less than no list, for any component.
    person
        .configure("")
        .file("toolcell.toml", "[tools.text]\nonly = [\"text_count\"]\n");
    call(&person, "text_count", json!({ "text": "a" })).ended(0);
    call(&person, "text_hash", json!({ "text": "a" })).ended(3);
}

#[test]
fn a_lock_holds_the_tools_that_are_offered_and_fewer_need_no_approval() {
    let person = Person::new();
    let only = |list: &str| {
        person.configure(&format!("{ENABLED}only = {list}\n"));
        person.run(&["call", "memory_recall", "{}", "--locked"])
    };
    person.configure(&format!(
        "{ENABLED}only = [\"memory_recall\", \"memory_tasks\"]\n"
    ));
    person.run(&["lock", "--tool", "memory"]).ended(0);
    only("[\"memory_recall\", \"memory_tasks\"]").ended(0);
    only("[\"memory_recall\"]").ended(0);
    let seen = only("[\"memory_recall\", \"memory_store\"]").ended(4);
    assert!(
        seen.stderr.contains("the tool `memory_store` is new"),
        "{}",
        seen.stderr
    );
    person.configure(
        "[tools.memory]\nenabled = true\ngrants = [\"keyvalue=other:memory\"]\nonly = [\"memory_recall\"]\n",
    );
    let seen = person.run(&["call", "memory_recall", "{}", "--locked"]).ended(4);
    assert!(
        seen.stderr.contains("the grant `keyvalue=other:memory`"),
        "{}",
        seen.stderr
    );
}

#[test]
fn a_model_remembers_in_one_session_and_finds_it_in_the_next() {
    let person = Person::new();
    person.configure(ENABLED);
    let run = |calls: Value, answer: &str| {
        let script = json!({ "steps": [{ "calls": calls }, { "text": answer }] });
        person.file("script.json", script.to_string());
        let run = [
            "run",
            "x",
            "--provider",
            "scripted",
            "--model",
            "script.json",
            "--json",
        ];
        let events = person.run(&run).ended(0).json_lines();
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
fn memory_counts_as_private_and_as_written_by_anybody() {
    let person = Person::new();
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
    let seen = person.run(&arguments).ended(0);
    insta::assert_snapshot!(person.plain(&seen.stdout), @r"
    memory  reads private data, brings content of strangers
              because of keyvalue=memory
    fetch   brings content of strangers, can send outside
              because of http=example.com

    ! `memory` and `fetch` together can carry private data outside when what they read tells the model to
      the flow guard asks before the call that completes it; without a terminal the call is refused (default)
    ");
}

#[test]
fn an_inspected_component_says_that_it_can_ask_for_buckets() {
    let person = Person::new();
    let seen = person
        .run(&["tool", "inspect", "memory", "--grant", "keyvalue=memory"])
        .ended(0);
    let says = "can request buckets of values that outlive the call, and sees only those that are granted";
    assert!(seen.stdout.contains(says), "{}", seen.stdout);
    assert!(!seen.stdout.contains("of no use"), "{}", seen.stdout);
    let useless = person
        .run(&["tool", "inspect", "clock", "--grant", "keyvalue=memory"])
        .ended(0);
    assert!(
        useless.stdout.contains("imports nothing for buckets"),
        "{}",
        useless.stdout
    );
}

/// Memories that a search goes through within the default limits of a call.
const MANY: u64 = 10_000;

#[test]
fn a_search_in_ten_thousand_memories_stays_far_below_the_limits_of_a_call() {
    let person = Person::new();
    person.configure(ENABLED);
    call(
        &person,
        "memory_store",
        json!({ "content": "one", "title": "A needle", "tags": ["sewing"] }),
    )
    .ended(0);
    fill(&person);
    let query = json!({ "query": "needle haystack 4711", "limit": 5 }).to_string();
    let seen = person
        .run(&["call", "memory_discover", &query, "--json"])
        .ended(0)
        .json();
    let found = &seen["structured"];
    assert_eq!(found["matches"][0]["id"], "m4711");
    assert_eq!(found["total"], MANY);
    let receipt = &seen["receipt"];
    let used = |name: &str| receipt[name].as_u64().unwrap();
    // The defaults are 20 G, 256 MiB and 30 s. Time is not asserted: it is the machine's.
    assert!(used("fuel") < 2_000_000_000, "{receipt}");
    assert!(used("peak_memory") < 32 << 20, "{receipt}");
}

/// Puts memories of some sixty words beside the first one, in the form in which the tool keeps them.
#[tokio::main(flavor = "current_thread")]
async fn fill(person: &Person) {
    let file = person.home().join(".local/share/toolcell/buckets.sqlite");
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
    for numbers in numbers.chunks(1_000) {
        bucket
            .set(numbers.iter().map(|number| memory(*number)).collect())
            .await
            .unwrap();
    }
}

#[test]
fn a_task_that_was_deleted_is_nowhere_on_disk() {
    let person = Person::new();
    person.configure(ENABLED);
    let data = person.home().join(".local/share/toolcell");
    let holds = |text: &str| {
        crate::planted::files_below(&data).into_iter().any(|file| {
            let bytes = std::fs::read(file).unwrap();
            bytes.windows(text.len()).any(|window| window == text.as_bytes())
        })
    };
    let create = |title: &str| {
        let task = json!({ "action": "create", "title": title });
        call(&person, "memory_task", task).ended(0).json()["task"]["id"].clone()
    };
    let id = create("Bury the treasure");
    create("Water the plants");
    assert!(holds("treasure"));
    call(&person, "memory_task", json!({ "action": "delete", "id": id })).ended(0);
    assert!(!holds("treasure") && holds("plants"));
}
