//! Policy: `toolcell.lock`, `toolcell policy explain`, dangerous grants.

use crate::probe::Probe;
use crate::support::cli_user::User;

#[test]
fn tool_runs_only_if_it_matches_lock() {
    let user = User::new();
    let locked = ["lock", "--tool", "probe.wasm"];
    let call = ["call", "probe.wasm", "{}", "--locked"];
    user.probe("probe.wasm", &Probe::default());
    user.run(&call).ended(3);
    user.run(&locked).ended(0);
    user.run(&call).ended(0);

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
        user.probe("probe.wasm", &changed);
        all.push_str(
            &user
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
     hint: review the changes with `toolcell tool inspect`, then run `toolcell lock` to approve them
    error: the tools differ from `toolcell.lock`
      why: `probe`: the input schema of `probe` changed
         - `probe`: its code changed
     hint: review the changes with `toolcell tool inspect`, then run `toolcell lock` to approve them
    error: the tools differ from `toolcell.lock`
      why: `probe`: the tool `another` is new
         - `probe`: its code changed
     hint: review the changes with `toolcell tool inspect`, then run `toolcell lock` to approve them
    error: the tools differ from `toolcell.lock`
      why: `probe`: its code changed, but nothing that the model reads
     hint: review the changes with `toolcell tool inspect`, then run `toolcell lock` to approve them
    ");
}

#[test]
fn grant_beyond_lock_is_refused_and_fewer_is_not() {
    let user = User::new();
    user.run(&["lock", "--tool", "text", "--grant", "read=."])
        .ended(0);
    let call = |grants: &[&str]| {
        let mut arguments = vec!["call", "text_count", r#"{"text": "a"}"#, "--locked"];
        arguments.extend(grants);
        user.run(&arguments)
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
    user.run(&["lock", "--check", "--tool", "json"]).ended(4);
}

/// Configures a secret for `fetch`, bound as in `more`.
fn bound(user: &User, more: &str) {
    user.configure(&format!(
        "[secrets.token]\nenv = \"MY_TOKEN\"\n[tools.fetch]\ngrants = [\"http=api.example.com\"]\n\
         secrets = [{{ secret = \"token\", origins = [\"https://api.example.com\"], header = \"authorization\", template = \"Bearer {{}}\"{more} }}]\n"
    ));
}

const NARROW: &str = ", methods = [\"POST\"], paths = [\"/v1/me\"], responses = [\"application/json\"]";

#[test]
fn policy_explain_shows_where_secrets_go() {
    let mut user = User::new();
    user.var("MY_TOKEN", "planted-secret-value");
    let explain = ["policy", "explain", "--tool", "fetch"];
    for (more, line) in [
        ("", "token: authorization: Bearer {} to https://api.example.com"),
        (
            NARROW,
            "token: authorization: Bearer {} to https://api.example.com, methods POST, paths /v1/me, answers application/json",
        ),
    ] {
        bound(&user, more);
        let seen = user.run(&explain).ended(0);
        let expected = format!("with the secret {line}\n");
        assert!(seen.stdout.contains(&expected), "{}", seen.stdout);
        let json = user.run(&[&explain[..], &["--json"]].concat()).ended(0).json();
        assert_eq!(json["components"][0]["secrets"][0], line);
    }
}

#[test]
fn unlocked_secret_binding_is_refused() {
    let mut user = User::new();
    user.var("MY_TOKEN", "planted-secret-value");
    bound(&user, NARROW);
    user.run(&["lock", "--tool", "fetch"]).ended(0);
    user.run(&["lock", "--check", "--tool", "fetch"]).ended(0);
    bound(&user, "");
    let seen = user.run(&["lock", "--check", "--tool", "fetch"]).ended(4);
    let reason =
        "the grant `secret token: authorization: Bearer {} to https://api.example.com` is not among those";
    assert!(seen.stderr.contains(reason), "{}", seen.stderr);
}

#[test]
fn unusable_secret_binding_is_config_error() {
    let mut user = User::new();
    user.var("MY_TOKEN", "planted-secret-value");
    for (more, why) in [
        (", responses = \"none\"", "value `none`"),
        (", responses = []", "empty list"),
        (", methods = [\"get\"]", "invalid method `get`"),
        (", paths = [\"v1\"]", "invalid path `v1`"),
    ] {
        bound(&user, more);
        let call = ["call", "fetch", r#"{"url": "https://api.example.com/"}"#];
        let seen = user.run(&call).ended(3);
        assert!(seen.stderr.contains(why), "{more}: {}", seen.stderr);
    }
}

#[test]
fn invalid_lock_file_is_refused() {
    let user = User::new();
    for content in [
        "",
        "version = 2\n",
        "version = 1\n[components.text]\nx = 1\n",
        "not toml",
    ] {
        user.file("toolcell.lock", content);
        user.run(&["call", "text_count", r#"{"text": "a"}"#, "--locked"])
            .ended(3);
    }
}

#[test]
fn grants_that_combine_to_exfiltration_are_explained() {
    let user = User::new();
    let explain = |grants: &[&str]| {
        let mut arguments = vec!["policy", "explain", "--tool", "files", "--tool", "fetch"];
        arguments.extend(grants.iter().flat_map(|grant| ["--grant", grant]));
        user.run(&arguments).ended(0).stdout
    };
    insta::assert_snapshot!(explain(&["read=.", "http=example.com"]), @r"
    files  reads private data
             by read=.
    fetch  brings in untrusted content, can send data out
             by http=example.com

    ! `files` and `fetch` together can leak private data if content they read instructs the model to
      the flow guard asks before the call that completes the combination; without a terminal the call is refused (default)
    ");
    insta::assert_snapshot!(explain(&["files:read=."]), @r"
    files  reads private data
             by read=.
    fetch  has no access outside its cell

    ✓ no combination can read private data, read untrusted content, and send data out
    ");
    // A grant that only changes is access as well.
    std::fs::create_dir(user.work().join("sub")).unwrap();
    let changing = explain(&["files:create=.", "fetch:write=sub"]);
    assert!(
        changing.starts_with("files  changes files\n         by create=.\nfetch  has no access"),
        "{changing}"
    );
    let both = explain(&["files:write=."]);
    assert!(
        both.starts_with("files  reads private data, changes files\n"),
        "{both}"
    );
    let json = user
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
fn grant_of_everything_needs_dangerous_flag() {
    let user = User::new();
    let call = |grant: &str, more: &[&str]| {
        let mut arguments = vec!["call", "text_count", r#"{"text": "a"}"#, "--grant", grant];
        arguments.extend(more);
        user.run(&arguments)
    };
    let mut all = String::new();
    for grant in ["read=/", "read=~", "read=..", "read=/etc"] {
        all.push_str(&user.plain(&call(grant, &[]).ended(4).stderr));
        call(grant, &["--dangerous"]).ended(0);
    }
    // The path of the home directory differs between machines.
    let stable: String = all
        .lines()
        .filter(|line| !line.contains("why:"))
        .map(|line| format!("{line}\n"))
        .collect();
    insta::assert_snapshot!(stable, @r"
    error: the grant `read=/` is dangerous
         - from --grant
     hint: grant a narrower directory, or add --dangerous to allow it
    error: the grant `read=~` is dangerous
         - from --grant
     hint: grant a narrower directory, or add --dangerous to allow it
    error: the grant `read=..` is dangerous
         - from --grant
     hint: grant a narrower directory, or add --dangerous to allow it
    error: the grant `read=/etc` is dangerous
         - from --grant
     hint: grant a narrower directory, or add --dangerous to allow it
    ");
    call("read=.", &[]).ended(0);
}

#[test]
fn scratch_changes_are_reviewed_before_commit() {
    let user = User::new();
    user.file("project/a.txt", "old\n");
    let write = |path: &str, mode: &str| {
        let arguments = serde_json::json!({ "path": path, "content": "new\n", "mode": mode }).to_string();
        let flags = ["--grant", "write=project:/", "--scratch", "scratch"];
        let mut all = vec!["call", "files_write", &arguments];
        all.extend(flags);
        user.run(&all).ended(0);
    };
    let content = |path: &str| std::fs::read_to_string(user.work().join(path)).ok();
    write("/a.txt", "overwrite");
    write("/b.txt", "create");
    assert_eq!(
        (content("project/a.txt").as_deref(), content("project/b.txt")),
        (Some("old\n"), None)
    );
    let diff = user.run(&["scratch", "diff", "scratch"]).ended(0);
    assert!(
        diff.stdout
            .contains("  ~ a.txt\n    @@ -1 +1 @@\n    │ -old\n    │ +new\n"),
        "{}",
        diff.stdout
    );
    user.run(&["scratch", "commit", "scratch"]).ended(0);
    assert_eq!(content("project/b.txt").as_deref(), Some("new\n"));
    assert_eq!(content("project/a.txt").as_deref(), Some("new\n"));

    write("/c.txt", "create");
    write("/d.txt", "create");
    user.run(&["scratch", "commit", "scratch", "project/gone"])
        .ended(2);
    let seen = user
        .run(&["scratch", "commit", "scratch", "project/d.txt"])
        .ended(0);
    assert!(seen.stderr.contains("1 change committed"), "{}", seen.stderr);
    assert_eq!(content("project/d.txt").as_deref(), Some("new\n"));
    let names = ["scratch", "diff", "scratch", "--names"];
    assert!(user.run(&names).ended(0).stdout.contains("+ c.txt"));
    write("/a.txt", "overwrite");
    user.run(&["scratch", "discard", "scratch", "project/c.txt"])
        .ended(0);
    assert!(!user.run(&names).ended(0).stdout.contains("c.txt"));
    write("/c.txt", "create");
    user.run(&["scratch", "discard", "scratch"]).ended(0);
    user.run(&["scratch", "commit", "scratch"]).ended(0);
    assert_eq!(content("project/c.txt"), None);
    user.run(&["scratch", "diff", "gone"]).ended(2);
    // A scratch directory within a granted one would be visible to the tool.
    user.run(&[
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
