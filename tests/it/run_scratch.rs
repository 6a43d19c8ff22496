//! `--scratch` with turns: what a person reads when they are over.

use serde_json::json;

use crate::cli_person::Person;

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

/// What is said about changes.
fn summary(stderr: &str) -> String {
    let from = stderr
        .find("change")
        .and_then(|at| stderr[..at].rfind('\n'))
        .map_or(0, |at| at + 1);
    stderr[from..].to_owned()
}

#[test]
fn a_run_with_a_scratch_directory_ends_with_what_changed_and_what_to_do_with_it() {
    let person = Person::new();
    person.file("project/a.txt", "old\n");
    person.file("script.json", script(&["/a.txt".into(), "/b.txt".into()]));
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
        person.run(&all).ended(0)
    };
    insta::assert_snapshot!(summary(&run(&[]).stderr), @r"
    2 changes wait in `my scratch`, not carried out yet
    in `project`
      ~ a.txt
      + b.txt
          look: toolcell scratch diff 'my scratch'
     carry out: toolcell scratch commit 'my scratch'
    throw away: toolcell scratch discard 'my scratch'
    ");
    assert_eq!(run(&["--json"]).stderr, "");
    // The command that is shown is the command that works.
    let diff = person.run(&["scratch", "diff", "my scratch"]).ended(0);
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
    let names = person.run(&["scratch", "diff", "my scratch", "--names"]).ended(0);
    assert_eq!(names.stdout, "in `project`\n  ~ a.txt\n  + b.txt\n");
    person.run(&["scratch", "discard", "my scratch"]).ended(0);

    // A long list is cut, and counted whole.
    let many: Vec<String> = (0..25).map(|i| format!("/n{i:02}.txt")).collect();
    person.file("script.json", script(&many));
    let seen = summary(&run(&[]).stderr);
    assert!(seen.starts_with("25 changes wait in"), "{seen}");
    assert!(seen.contains("  + n19.txt\n  … and 5 more\n"), "{seen}");
    person.run(&["scratch", "discard", "my scratch"]).ended(0);

    person.file(
        "script.json",
        json!({ "steps": [{ "text": "Nothing to do." }] }).to_string(),
    );
    let mut chat = vec!["chat"];
    chat.extend(flags);
    let seen = person.run(&chat).ended(0);
    assert!(
        seen.stderr.contains("no file is changed in `my scratch`"),
        "{}",
        seen.stderr
    );
}

#[test]
fn nothing_is_carried_out_over_what_somebody_else_changed_in_the_meantime() {
    let person = Person::new();
    person.file("project/a.txt", "old\n");
    person.configure("[tools.files]\ngrants = [\"write=project:/\"]\nscratch = \"aside\"\n");
    let call = |path: &str| {
        let arguments = json!({ "path": path, "content": "tool\n", "mode": "overwrite" });
        person
            .run(&["call", "files_write", &arguments.to_string()])
            .ended(0);
    };
    call("/a.txt");
    call("/b.txt");
    let read = |path: &str| std::fs::read_to_string(person.work().join(path)).unwrap();
    assert_eq!(read("project/a.txt"), "old\n");
    person.file("project/a.txt", "person\n");
    let seen = person.run(&["scratch", "commit", "aside"]).ended(1);
    insta::assert_snapshot!(seen.stderr, @r"
    error: nothing is carried out
      why: `project/a.txt` changed in the meantime
     hint: look with `toolcell scratch diff`; `--overwrite` carries the changes out all the same
    ");
    assert_eq!(read("project/a.txt"), "person\n");
    assert!(!person.work().join("project/b.txt").exists());
    let shown = person
        .run(&["scratch", "diff", "aside", "--json"])
        .ended(0)
        .json();
    let conflicts: Vec<_> = shown.as_array().unwrap().iter().map(|c| &c["conflict"]).collect();
    assert_eq!(conflicts, [&json!(true), &json!(false)]);

    person
        .run(&["scratch", "commit", "aside", "--overwrite"])
        .ended(0);
    assert_eq!(read("project/a.txt"), "tool\n");
    assert_eq!(read("project/b.txt"), "tool\n");

    person.file("toolcell.toml", "[tools.files]\nscratch = \"/tmp\"\n");
    let seen = person.run(&["config", "check"]).ended(3);
    assert!(
        seen.stderr.contains("cannot name a scratch directory"),
        "{}",
        seen.stderr
    );
}
