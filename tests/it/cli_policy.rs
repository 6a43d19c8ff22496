//! What people decide about tools: `toolcell.lock`, `toolcell policy explain`, dangerous grants.

use crate::cli_person::Person;
use crate::probe::Probe;

#[test]
fn a_tool_that_is_what_the_lock_says_runs_and_one_that_changed_does_not() {
    let person = Person::new();
    let locked = ["lock", "--tool", "probe.wasm"];
    let call = ["call", "probe.wasm", "{}", "--locked"];
    person.probe("probe.wasm", &Probe::default());
    person.run(&call).ended(3);
    person.run(&locked).ended(0);
    person.run(&call).ended(0);

    let mut all = String::new();
    let changes: [&dyn Fn(&mut Probe); 4] = [
        &|probe| probe.description = "Answers, and reads your mail.".into(),
        &|probe| probe.input = r#"{"type":"object","properties":{"x":{"type":"string"}}}"#.into(),
        &|probe| probe.names = vec!["probe".into(), "another".into()],
        &|probe| probe.run = "(unreachable)".into(),
    ];
    for change in changes {
        let mut changed = Probe::default();
        change(&mut changed);
        person.probe("probe.wasm", &changed);
        all.push_str(
            &person
                .run(&["run", "x", "--tool", "probe.wasm", "--locked"])
                .ended(4)
                .stderr
                .replace(
                    "offline stand-in, no model: no provider is configured and OPENAI_API_KEY is not set\n",
                    "",
                ),
        );
    }
    insta::assert_snapshot!(all, @r"
    error: the tools differ from `toolcell.lock`
      why: `probe`: the description of `probe` changed
         - `probe`: its code changed
     hint: look at what changed with `toolcell tool inspect`; `toolcell lock` approves of it
    error: the tools differ from `toolcell.lock`
      why: `probe`: the schema of the arguments of `probe` changed
         - `probe`: its code changed
     hint: look at what changed with `toolcell tool inspect`; `toolcell lock` approves of it
    error: the tools differ from `toolcell.lock`
      why: `probe`: the tool `another` is new
         - `probe`: its code changed
     hint: look at what changed with `toolcell tool inspect`; `toolcell lock` approves of it
    error: the tools differ from `toolcell.lock`
      why: `probe`: its code changed, and nothing that the model reads
     hint: look at what changed with `toolcell tool inspect`; `toolcell lock` approves of it
    ");
}

#[test]
fn a_grant_that_was_not_locked_is_refused_and_less_is_not() {
    let person = Person::new();
    person
        .run(&["lock", "--tool", "text", "--grant", "read=."])
        .ended(0);
    let call = |grants: &[&str]| {
        let mut arguments = vec!["call", "text_count", r#"{"text": "a"}"#, "--locked"];
        arguments.extend(grants);
        person.run(&arguments)
    };
    call(&["--grant", "read=."]).ended(0);
    call(&[]).ended(0);
    let seen = call(&["--grant", "write=."]).ended(4);
    assert!(
        seen.stderr
            .contains("the grant `write=.` is not among those that are locked"),
        "{}",
        seen.stderr
    );
    person.run(&["lock", "--check", "--tool", "json"]).ended(4);
}

/// The user's file with a secret for `fetch`, bound as `more` says.
fn bound(person: &Person, more: &str) {
    person.configure(&format!(
        "[secrets.token]\nenv = \"MY_TOKEN\"\n[tools.fetch]\ngrants = [\"http=api.example.com\"]\n\
         secrets = [{{ secret = \"token\", origins = [\"https://api.example.com\"], header = \"authorization\", template = \"Bearer {{}}\"{more} }}]\n"
    ));
}

const NARROW: &str = ", methods = [\"POST\"], paths = [\"/v1/me\"], responses = [\"application/json\"]";

#[test]
fn policy_explain_shows_where_secrets_go() {
    let mut person = Person::new();
    person.var("MY_TOKEN", "planted-secret-value");
    let explain = ["policy", "explain", "--tool", "fetch"];
    for (more, line) in [
        ("", "token: authorization: Bearer {} to https://api.example.com"),
        (
            NARROW,
            "token: authorization: Bearer {} to https://api.example.com, methods POST, paths /v1/me, answers application/json",
        ),
    ] {
        bound(&person, more);
        let seen = person.run(&explain).ended(0);
        let expected = format!("with the secret {line}\n");
        assert!(seen.stdout.contains(&expected), "{}", seen.stdout);
        let json = person.run(&[&explain[..], &["--json"]].concat()).ended(0).json();
        assert_eq!(json["components"][0]["secrets"][0], line);
    }
}

#[test]
fn a_binding_that_was_not_locked_is_refused() {
    let mut person = Person::new();
    person.var("MY_TOKEN", "planted-secret-value");
    bound(&person, NARROW);
    person.run(&["lock", "--tool", "fetch"]).ended(0);
    person.run(&["lock", "--check", "--tool", "fetch"]).ended(0);
    bound(&person, "");
    let seen = person.run(&["lock", "--check", "--tool", "fetch"]).ended(4);
    let reason =
        "the grant `secret token: authorization: Bearer {} to https://api.example.com` is not among those";
    assert!(seen.stderr.contains(reason), "{}", seen.stderr);
}

#[test]
fn a_binding_that_cannot_be_used_is_a_mistake_of_the_configuration() {
    let mut person = Person::new();
    person.var("MY_TOKEN", "planted-secret-value");
    for (more, why) in [
        (", responses = \"none\"", "value `none`"),
        (", responses = []", "empty list"),
        (", methods = [\"get\"]", "invalid method `get`"),
        (", paths = [\"v1\"]", "invalid path `v1`"),
    ] {
        bound(&person, more);
        let call = ["call", "fetch", r#"{"url": "https://api.example.com/"}"#];
        let seen = person.run(&call).ended(3);
        assert!(seen.stderr.contains(why), "{more}: {}", seen.stderr);
    }
}

#[test]
fn a_lock_file_that_is_none_is_refused() {
    let person = Person::new();
    for content in [
        "",
        "version = 2\n",
        "version = 1\n[components.text]\nx = 1\n",
        "not toml",
    ] {
        person.file("toolcell.lock", content);
        person
            .run(&["call", "text_count", r#"{"text": "a"}"#, "--locked"])
            .ended(3);
    }
}

#[test]
fn grants_that_together_carry_data_outside_are_explained() {
    let person = Person::new();
    let explain = |grants: &[&str]| {
        let mut arguments = vec!["policy", "explain", "--tool", "files", "--tool", "fetch"];
        arguments.extend(grants.iter().flat_map(|grant| ["--grant", grant]));
        person.run(&arguments).ended(0).stdout
    };
    insta::assert_snapshot!(explain(&["read=.", "http=example.com"]), @r"
    files  reads private data
             because of read=.
    fetch  brings content of strangers, can send outside
             because of http=example.com

    ! `files` and `fetch` together can carry private data outside when what they read tells the model to
      the flow guard asks before the call that completes it; without a terminal the call is refused (default)
    ");
    insta::assert_snapshot!(explain(&["files:read=."]), @r"
    files  reads private data
             because of read=.
    fetch  touches nothing outside its cell

    ✓ no combination of them can read private data, read what strangers wrote, and send outside
    ");
    let json = person
        .run(&[
            "policy", "explain", "--tool", "files", "--tool", "fetch", "--grant", "read=.", "--grant",
            "http=*", "--json",
        ])
        .ended(0)
        .json();
    assert_eq!(json["combinations"], serde_json::json!([["files", "fetch"]]));
    assert_eq!(json["guard"], "ask");
}

#[test]
fn a_grant_of_everything_needs_the_word_dangerous() {
    let person = Person::new();
    let call = |grant: &str, more: &[&str]| {
        let mut arguments = vec!["call", "text_count", r#"{"text": "a"}"#, "--grant", grant];
        arguments.extend(more);
        person.run(&arguments)
    };
    let mut all = String::new();
    for grant in ["read=/", "read=~", "read=..", "read=/etc"] {
        all.push_str(&person.plain(&call(grant, &[]).ended(4).stderr));
        call(grant, &["--dangerous"]).ended(0);
    }
    // Where the person's home lies differs from machine to machine.
    let stable: String = all
        .lines()
        .filter(|line| !line.contains("why:"))
        .map(|line| format!("{line}\n"))
        .collect();
    insta::assert_snapshot!(stable, @r"
    error: the grant `read=/` is dangerous
         - from --grant
     hint: grant a directory further down; if you mean it, add --dangerous
    error: the grant `read=~` is dangerous
         - from --grant
     hint: grant a directory further down; if you mean it, add --dangerous
    error: the grant `read=..` is dangerous
         - from --grant
     hint: grant a directory further down; if you mean it, add --dangerous
    error: the grant `read=/etc` is dangerous
         - from --grant
     hint: grant a directory further down; if you mean it, add --dangerous
    ");
    call("read=.", &[]).ended(0);
}

#[test]
fn what_a_tool_changes_in_a_scratch_directory_is_looked_at_before_it_is_carried_out() {
    let person = Person::new();
    person.file("project/a.txt", "old\n");
    let write = |path: &str, mode: &str| {
        let arguments = serde_json::json!({ "path": path, "content": "new\n", "mode": mode }).to_string();
        let flags = ["--grant", "write=project:/", "--scratch", "scratch"];
        let mut all = vec!["call", "files_write", &arguments];
        all.extend(flags);
        person.run(&all).ended(0);
    };
    let content = |path: &str| std::fs::read_to_string(person.work().join(path)).ok();
    write("/a.txt", "overwrite");
    write("/b.txt", "create");
    assert_eq!(
        (content("project/a.txt").as_deref(), content("project/b.txt")),
        (Some("old\n"), None)
    );
    let diff = person.run(&["scratch", "diff", "scratch"]).ended(0);
    assert!(
        diff.stdout
            .contains("  ~ a.txt\n    @@ -1 +1 @@\n    │ -old\n    │ +new\n"),
        "{}",
        diff.stdout
    );
    person.run(&["scratch", "commit", "scratch"]).ended(0);
    assert_eq!(content("project/b.txt").as_deref(), Some("new\n"));
    assert_eq!(content("project/a.txt").as_deref(), Some("new\n"));

    write("/c.txt", "create");
    person.run(&["scratch", "discard", "scratch"]).ended(0);
    person.run(&["scratch", "commit", "scratch"]).ended(0);
    assert_eq!(content("project/c.txt"), None);
    person.run(&["scratch", "diff", "gone"]).ended(2);
    // A scratch directory inside of what is granted would be seen by the tool.
    person
        .run(&[
            "call",
            "files_list",
            "{}",
            "--grant",
            "write=.",
            "--scratch",
            "scratch",
        ])
        .ended(3);
}
