//! `--scratch` with turns: the summary at the end.

use serde_json::json;

use crate::support::cli_user::User;

fn script(paths: &[String]) -> String {
    let calls: Vec<_> = paths
        .iter()
        .map(|path| {
            let arguments = json!({ "path": path, "content": "new\n", "mode": "overwrite" });
            json!({ "name": "files_write", "arguments": arguments })
        })
        .collect();
    json!({ "model": "demo", "steps": [{ "calls": calls }, { "text": "Done." }] }).to_string()
}

/// Returns the summary of changes.
fn summary(stderr: &str) -> String {
    let from = stderr
        .find("change")
        .and_then(|at| stderr[..at].rfind('\n'))
        .map_or(0, |at| at + 1);
    stderr[from..].to_owned()
}

#[test]
fn scratch_run_ends_with_changes_and_next_commands() {
    let user = User::new();
    user.file("project/a.txt", "old\n");
    user.file("script.json", script(&["/a.txt".into(), "/b.txt".into()]));
    let flags = [
        "--provider",
        "scripted",
        "--model",
        "script.json",
        "--tool",
        "files",
        "--grant",
        "write=project:/",
        "--scratch",
        "my scratch",
    ];
    let run = |extra: &[&str]| {
        let mut all = vec!["run", "x"];
        all.extend(flags);
        all.extend(extra);
        user.run(&all).ended(0)
    };
    insta::assert_snapshot!(summary(&run(&[]).stderr), @r"
    2 changes are pending in `my scratch`, not committed yet
    in `project`
      ~ a.txt
      + b.txt
        review: toolcell scratch diff 'my scratch'
        commit: toolcell scratch commit 'my scratch'
       discard: toolcell scratch discard 'my scratch'
    ");
    assert_eq!(run(&["--json"]).stderr, "");
    // The printed command works.
    let diff = user.run(&["scratch", "diff", "my scratch"]).ended(0);
    insta::assert_snapshot!(diff.stdout, @r"
    in `project`
      ~ a.txt
        @@ -1 +1 @@
        │ -old
        │ +new
      + b.txt
        @@ -0,0 +1 @@
        │ +new
    ");
    let names = user.run(&["scratch", "diff", "my scratch", "--names"]).ended(0);
    assert_eq!(names.stdout, "in `project`\n  ~ a.txt\n  + b.txt\n");
    user.run(&["scratch", "discard", "my scratch"]).ended(0);

    // A long list is truncated, and counted completely.
    let many: Vec<String> = (0..25).map(|i| format!("/n{i:02}.txt")).collect();
    user.file("script.json", script(&many));
    let seen = summary(&run(&[]).stderr);
    assert!(seen.starts_with("25 changes are pending in"), "{seen}");
    assert!(seen.contains("  + n19.txt\n  … and 5 more\n"), "{seen}");
    user.run(&["scratch", "discard", "my scratch"]).ended(0);

    user.file(
        "script.json",
        json!({ "steps": [{ "text": "Nothing to do." }] }).to_string(),
    );
    let mut chat = vec!["chat"];
    chat.extend(flags);
    let seen = user.run(&chat).ended(0);
    assert!(
        seen.stderr.contains("there are no changes in `my scratch`"),
        "{}",
        seen.stderr
    );
}

#[test]
fn commit_skips_files_changed_in_the_meantime() {
    let user = User::new();
    user.file("project/a.txt", "old\n");
    user.configure("[tools.files]\ngrants = [\"write=project:/\"]\nscratch = \"aside\"\n");
    let call = |path: &str| {
        let arguments = json!({ "path": path, "content": "tool\n", "mode": "overwrite" });
        user.run(&["call", "files_write", &arguments.to_string()])
            .ended(0);
    };
    call("/a.txt");
    call("/b.txt");
    let read = |path: &str| std::fs::read_to_string(user.work().join(path)).unwrap();
    assert_eq!(read("project/a.txt"), "old\n");
    user.file("project/a.txt", "user\n");
    let seen = user.run(&["scratch", "commit", "aside"]).ended(1);
    insta::assert_snapshot!(seen.stderr, @r"
    error: nothing was committed
      why: `project/a.txt` changed in the meantime
     hint: review with `toolcell scratch diff`; `--overwrite` commits the changes anyway
    ");
    assert_eq!(read("project/a.txt"), "user\n");
    assert!(!user.work().join("project/b.txt").exists());
    let shown = user.run(&["scratch", "diff", "aside", "--json"]).ended(0).json();
    let conflicts: Vec<_> = shown.as_array().unwrap().iter().map(|c| &c["conflict"]).collect();
    assert_eq!(conflicts, [&json!(true), &json!(false)]);

    user.run(&["scratch", "commit", "aside", "--overwrite"]).ended(0);
    assert_eq!(read("project/a.txt"), "tool\n");
    assert_eq!(read("project/b.txt"), "tool\n");

    user.file("toolcell.toml", "[tools.files]\nscratch = \"/tmp\"\n");
    let seen = user.run(&["config", "check"]).ended(3);
    assert!(
        seen.stderr.contains("cannot name a scratch directory"),
        "{}",
        seen.stderr
    );
}

#[test]
fn what_starts_programs_is_carried_out_only_when_that_is_said() {
    let user = User::new();
    user.file("project/a.txt", "old\n");
    let write = |path: &str, extra: &[&str]| {
        let arguments = json!({ "path": path, "content": "tool\n", "mode": "overwrite" }).to_string();
        let mut all = vec!["call", "files_write", &arguments];
        all.extend(["--grant", "write=project:/", "--scratch", "aside"]);
        all.extend(extra);
        user.run(&all)
    };
    write("/.envrc", &[]).ended(4);
    write("/.envrc", &["--dangerous"]).ended(0);
    write("/a.txt", &[]).ended(0);
    let at = |path: &str| user.work().join("project").join(path);
    let diff = user.run(&["scratch", "diff", "aside", "--names"]).ended(0);
    insta::assert_snapshot!(diff.stdout, @r"
    in `project`
      ~ a.txt
      ! `project/.envrc` is skipped: built-in: files that start programs can be changed only with --dangerous
    ");
    let seen = user.run(&["scratch", "commit", "aside"]).ended(1);
    insta::assert_snapshot!(seen.stderr, @r"
    error: 1 entries were not committed
      why: each is listed above; all others were committed
     hint: the remaining changes are still there; `toolcell scratch discard` removes them
     hint: look at files that start programs, and commit them with `--dangerous` if you want them
    ");
    assert_eq!(std::fs::read_to_string(at("a.txt")).unwrap(), "tool\n");
    assert!(!at(".envrc").exists());
    user.run(&["scratch", "commit", "aside", "--dangerous"]).ended(0);
    assert_eq!(std::fs::read_to_string(at(".envrc")).unwrap(), "tool\n");
}

#[test]
fn what_is_denied_to_every_tool_is_not_carried_out() {
    let user = User::new();
    user.file("project/private/key", "old\n");
    let arguments = json!({ "path": "/private/key", "content": "tool\n", "mode": "overwrite" }).to_string();
    let flags = ["--grant", "write=project:/", "--scratch", "aside"];
    user.run(&[&["call", "files_write", &arguments], &flags[..]].concat())
        .ended(0);
    user.configure("deny = [\"project/private\"]\n");
    let seen = user.run(&["scratch", "commit", "aside"]).ended(1);
    assert!(
        seen.stdout.contains("`project/private/key` is skipped"),
        "{}",
        seen.stdout
    );
    assert!(seen.stdout.contains("project/private"), "{}", seen.stdout);
    let key = user.work().join("project/private/key");
    assert_eq!(std::fs::read_to_string(key).unwrap(), "old\n");
}

#[test]
fn no_tool_reaches_the_scratch_overlay_of_another() {
    let user = User::new();
    user.file("project/a.txt", "old\n");
    let call = |tool: &str, arguments: serde_json::Value, flags: &[&str]| {
        let arguments = arguments.to_string();
        user.run(&[&["call", tool, &arguments], flags].concat())
    };
    let change = |path: &str| json!({ "path": path, "content": "tool\n", "mode": "overwrite" });
    let own = ["--grant", "write=project:/", "--scratch", "aside"];
    call("files_write", change("/a.txt"), &own).ended(0);
    let overlays: Vec<String> = std::fs::read_dir(user.work().join("aside"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(overlays.len(), 2, "{overlays:?}");
    for name in overlays {
        let other = ["--grant", "write=.:/"];
        for path in [format!("/aside/{name}"), format!("/aside/{name}/upper/a.txt")] {
            call("files_read", json!({ "path": path }), &other).ended(4);
            call("files_write", change(&path), &other).ended(4);
        }
    }
    let diff = user.run(&["scratch", "diff", "aside", "--names"]).ended(0);
    assert_eq!(diff.stdout, "in `project`\n  ~ a.txt\n");
}
