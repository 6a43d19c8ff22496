//! Saved sessions as the user finds them again: names, list, search, prune, continue.

use serde_json::{Value, json};

use crate::support::cli_user::{Seen, User};

const SCRIPT: [&str; 4] = ["--provider", "scripted", "--model", "script.json"];

fn answers(user: &User, texts: &[&str]) {
    let usage = json!({ "input": 900, "output": 40, "cache_read": 800, "reasoning": 12 });
    let steps: Vec<Value> = texts
        .iter()
        .map(|text| json!({ "text": text, "usage": usage }))
        .collect();
    let script = json!({ "model": "demo", "position": "conversation", "steps": steps });
    user.file("script.json", script.to_string());
}

fn say(user: &User, prompt: &str, flags: &[&str]) -> Seen {
    user.run(&[&["run", prompt][..], &SCRIPT, flags].concat())
        .ended(0)
}

fn sessions(user: &User) -> Vec<Value> {
    let listed = user.run(&["session", "list", "--json"]).ended(0).json();
    listed.as_array().unwrap().clone()
}

fn titles(user: &User) -> Vec<String> {
    let all = sessions(user);
    all.iter()
        .map(|info| info["title"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn list_shows_name_age_messages_size_tokens_and_cost() {
    let user = User::new();
    answers(&user, &["Yes.", "No."]);
    user.configure("[prices.demo]\ninput = 1\ncache_read = 0.1\noutput = 10\n");
    let seen = say(&user, "Is it so?", &[]);
    let tokens = "900 tokens in (800 cached), 40 out (12 reasoning) · cost 0.00058";
    assert!(
        seen.stderr.contains(&format!("1 step · 0 calls · {tokens} · ")),
        "{}",
        seen.stderr
    );
    user.run(&["session", "rename", "last", "my plans"]).ended(0);
    let listed = user.run(&["session", "list"]).ended(0).stdout;
    let id = sessions(&user)[0]["id"].as_str().unwrap().to_owned();
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].starts_with(&format!("{id}  just now")), "{listed}");
    assert!(lines[0].ends_with("`my plans`  Is it so?"), "{listed}");
    assert!(
        lines[1].starts_with("    2 messages · ") && lines[1].ends_with(&format!(" · {tokens}")),
        "{listed}"
    );

    say(&user, "Really?", &["--continue"]);
    let all = sessions(&user);
    assert_eq!(all.len(), 1);
    let info = &all[0];
    assert_eq!(
        (
            &info["name"],
            &info["messages"],
            &info["cost_micros"],
            &info["usage"]["input"]
        ),
        (&json!("my plans"), &json!(4), &json!(1_160), &json!(1_800)),
    );
    assert!(info["bytes"].as_u64().unwrap() > 500);
    // The cost is that of the time of each turn, wherever it is shown.
    user.configure("[prices.demo]\ninput = 100\noutput = 1000\n");
    let mut chat = vec!["chat", "--session", "last"];
    chat.extend(SCRIPT);
    let seen = user.run_with_input(&chat, "/cost\n").ended(0).stderr;
    let cost = "2 turns · 0 calls · 1.8 k tokens in (1.6 k cached), 80 out (24 reasoning) · cost 0.00116";
    assert!(seen.contains(cost), "{seen}");
    // Without prices there is no cost.
    user.configure("");
    let seen = say(&user, "Is it free?", &[]);
    assert!(!seen.stderr.contains("cost") && sessions(&user)[0].get("cost_micros").is_none());
}

#[test]
fn session_is_found_by_its_name_until_it_has_none() {
    let user = User::new();
    answers(&user, &["One.", "Two."]);
    say(&user, "first", &[]);
    say(&user, "second", &[]);
    user.run(&["session", "rename", "last", "plans"]).ended(0);
    say(&user, "third", &["--continue"]);
    let shown = user.run(&["session", "show", "plans"]).ended(0).stdout;
    assert!(shown.contains("second") && shown.contains("third"), "{shown}");

    say(&user, "newest", &[]);
    let seen = user.run(&["session", "rename", "last", "plans"]).ended(2);
    assert!(
        seen.stderr.contains("another session has the name `plans`"),
        "{}",
        seen.stderr
    );
    for name in ["last", "", " x", "-x", "a\u{1b}[31mb", "a\nb", "\u{202e}x"] {
        let seen = user.run(&["session", "rename", "last", "--", name]).ended(2);
        assert!(
            seen.stderr.contains("a session cannot have the name"),
            "{}",
            seen.stderr
        );
        assert!(!seen.stderr.contains('\u{1b}') && !seen.stderr.contains('\u{202e}'));
    }
    let seen = user.run(&["session", "rename", "last", &"n".repeat(65)]).ended(2);
    let told = "error: the name of the session is too long\n  why: it has 65 characters, of at most 64\n";
    assert_eq!(seen.stderr, told);
    user.run(&["session", "rename", "last", &"n".repeat(64)]).ended(0);
    user.run(&["session", "rename", "plans"]).ended(0);
    user.run(&["session", "show", "plans"]).ended(2);
    user.run(&["session", "rename", "nobody", "x"]).ended(2);
}

#[test]
fn search_finds_what_user_and_model_said() {
    let user = User::new();
    answers(&user, &["The invoice is \u{1b}[31mpaid."]);
    say(&user, "Where is my parcel?", &[]);
    say(&user, "Where is the letter?", &[]);
    user.run(&["session", "rename", "last", "Letters"]).ended(0);
    let search = |words: &[&str]| user.run(&[&["session", "search"], words].concat()).ended(0);
    let found = search(&["INVOICE", "paid"]).stdout;
    assert_eq!(
        found.matches("assistant │ The invoice is ␛[31mpaid.").count(),
        2,
        "{found:?}"
    );
    let found = search(&["parcel", "where"]).stdout;
    assert_eq!(found.matches("user │ Where is my parcel?").count(), 1, "{found}");
    assert!(!found.contains("letter"), "{found}");
    assert!(
        search(&["letters"])
            .stdout
            .contains("Letters  Where is the letter?")
    );
    let nothing = search(&["parcel", "letter"]);
    assert_eq!(
        (nothing.stdout.as_str(), nothing.stderr.trim()),
        ("", "no session matches")
    );
    let found = search(&["parcel", "--json"]).json();
    assert_eq!(found[0]["title"], "Where is my parcel?");
    assert_eq!(
        found[0]["matches"],
        json!([{ "role": "user", "text": "Where is my parcel?" }])
    );
    user.run(&["session", "search"]).ended(2);
}

#[test]
fn prune_deletes_by_age_and_number_and_keeps_named_ones() {
    let user = User::new();
    answers(&user, &["Yes."]);
    for prompt in ["one", "two", "three", "four"] {
        say(&user, prompt, &[]);
    }
    user.run(&["session", "rename", "last", "kept"]).ended(0);
    say(&user, "five", &[]);
    let prune = |flags: &[&str]| user.run(&[&["session", "prune"], flags].concat());
    let seen = prune(&[]).ended(2);
    assert!(
        seen.stderr.contains("--older-than <TIME>|--keep <N>"),
        "{}",
        seen.stderr
    );
    let seen = prune(&["--older-than", "1d", "--yes"]).ended(0);
    assert_eq!(seen.stderr.trim(), "there is nothing to delete");
    let seen = prune(&["--keep", "2", "--dry-run"]).ended(0);
    assert!(
        seen.stderr.contains("would delete 2 sessions, "),
        "{}",
        seen.stderr
    );
    assert!(
        seen.stdout.contains("  one\n") && seen.stdout.contains("  two\n"),
        "{}",
        seen.stdout
    );
    // Nobody can be asked here.
    let seen = prune(&["--keep", "2"]).ended(2);
    assert!(seen.stderr.contains("--yes"), "{}", seen.stderr);
    assert_eq!(titles(&user), ["five", "four", "three", "two", "one"]);
    prune(&["--keep", "2", "--older-than", "1d", "--yes"]).ended(0);
    assert_eq!(titles(&user).len(), 5);
    let seen = prune(&["--keep", "2", "--yes"]).ended(0);
    assert_eq!(seen.stderr.trim(), "deleted 2 sessions");
    assert_eq!(titles(&user), ["five", "four", "three"]);
    prune(&["--older-than", "0s", "--yes"]).ended(0);
    assert_eq!(titles(&user), ["four"]);
    prune(&["--keep", "0", "--named", "--yes"]).ended(0);
    assert!(titles(&user).is_empty());
}

#[test]
fn run_and_chat_continue_last_or_named_session() {
    let user = User::new();
    answers(&user, &["One.", "Two.", "Three.", "Four."]);
    let run = |prompt: &str, flags: &[&str]| user.run(&[&["run", prompt][..], &SCRIPT, flags].concat());
    let seen = run("x", &["--continue"]).ended(2);
    assert!(seen.stderr.contains("there are no sessions"), "{}", seen.stderr);
    say(&user, "first", &[]);
    user.run(&["session", "rename", "last", "plans"]).ended(0);
    say(&user, "other", &[]);
    assert_eq!(say(&user, "second", &["--session", "plans"]).stdout, "Two.\n");
    assert_eq!(say(&user, "third", &["--continue"]).stdout, "Three.\n");
    let chat = [&["chat", "--continue"][..], &SCRIPT].concat();
    let seen = user.run_with_input(&chat, "fourth\n").ended(0);
    // What was said before is shown at a terminal only.
    assert_eq!(seen.stdout, "Four.\n");
    assert_eq!(sessions(&user).len(), 2);
    assert_eq!(sessions(&user)[0]["messages"], 8);
    run("x", &["--session", "nobody"]).ended(2);
    run("x", &["--session", "plans", "--continue"]).ended(2);
    run("x", &["--continue", "--no-session"]).ended(2);
}

#[test]
fn damaged_store_is_set_aside_and_nothing_is_lost() {
    let user = User::new();
    answers(&user, &["One.", "Two."]);
    say(&user, "first", &[]);
    let state = user.home().join(".local/state/toolcell");
    let file = state.join("sessions.sqlite");
    let checked = |code: i32| {
        let all = user.run(&["doctor", "--json"]).ended(code).json();
        let all = all.as_array().unwrap().clone();
        all.into_iter()
            .find(|check| check["check"] == "sessions")
            .unwrap()
    };
    let good = checked(0);
    assert_eq!(good["state"], "good");
    assert!(good["text"].as_str().unwrap().starts_with("1 saved, "), "{good}");

    let mut bytes = std::fs::read(&file).unwrap();
    bytes[..16].fill(b'x');
    std::fs::write(&file, &bytes).unwrap();
    let hint = "toolcell session set-aside";
    let seen = user.run(&["session", "list"]).ended(74);
    for part in [
        "the saved sessions in `~/.local/state/toolcell/sessions.sqlite` cannot be used",
        "the file is damaged",
        hint,
    ] {
        assert!(seen.stderr.contains(part), "{part}: {}", seen.stderr);
    }
    let bad = checked(74);
    assert_eq!(bad["state"], "bad");
    assert!(bad["hints"].to_string().contains(hint), "{bad}");
    // A turn runs without a session all the same.
    let seen = say(&user, "x", &[]);
    for part in ["this session is not saved", "the file is damaged", hint] {
        assert!(seen.stderr.contains(part), "{part}: {}", seen.stderr);
    }

    let seen = user.run(&["session", "set-aside"]).ended(0);
    assert!(
        seen.stderr
            .contains("the saved sessions are now in `~/.local/state/toolcell/sessions-"),
        "{}",
        seen.stderr
    );
    let kept = std::fs::read_dir(&state).unwrap().flatten().any(|entry| {
        let name = entry.file_name().into_string().unwrap();
        name.starts_with("sessions-") && std::fs::read(entry.path()).unwrap() == bytes
    });
    assert!(kept);
    assert!(sessions(&user).is_empty());
    say(&user, "second", &[]);
    assert_eq!(titles(&user), ["second"]);

    // Damage inside of the file.
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[4096..].fill(0xee);
    std::fs::write(&file, &bytes).unwrap();
    for ending in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(state.join(format!("sessions.sqlite{ending}")));
    }
    let all = user.run(&["doctor", "--json"]).json();
    let bad = all
        .as_array()
        .unwrap()
        .iter()
        .find(|check| check["check"] == "sessions")
        .unwrap()
        .clone();
    assert_eq!(bad["state"], "bad", "{bad}");
    assert!(bad["hints"].to_string().contains(hint), "{bad}");
    user.run(&["session", "set-aside"]).ended(0);
    let seen = user.run(&["session", "set-aside"]).ended(0);
    assert!(sessions(&user).is_empty() && seen.code == 0);
}

#[test]
fn name_is_no_part_of_an_identifier() {
    let user = User::new();
    answers(&user, &["One."]);
    say(&user, "first", &[]);
    let id = sessions(&user)[0]["id"].as_str().unwrap().to_owned();
    for name in [&id[..4], &id[id.len() - 6..], &id] {
        let seen = user.run(&["session", "rename", "last", name]).ended(2);
        assert!(seen.stderr.contains("part of the identifier"), "{}", seen.stderr);
    }
    user.run(&["session", "rename", "last", &id[..3]]).ended(0);
}

#[test]
fn limit_of_the_size_of_files_is_an_error_of_the_write() {
    let user = User::new();
    answers(&user, &["one", "two"]);
    say(&user, "first", &["--tool", "text"]);
    let line = format!(
        "ulimit -f 8; exec {} run second {} --tool text",
        env!("CARGO_BIN_EXE_toolcell"),
        SCRIPT.join(" ")
    );
    let arguments = ["-c", line.as_str()];
    let ended = user.program("bash", &arguments).output().unwrap();
    let seen = user.seen(&arguments, ended).ended(0);
    assert!(
        seen.stderr.contains("this session is not saved"),
        "{}",
        seen.stderr
    );
    assert_eq!(titles(&user), ["first"]);
}
