//! Packages from files: what is shown, stored and written.

use std::process::Stdio;

use super::{component, configuration, hex, stored};
use crate::probe::Probe;
use crate::support::cli_user::User;

/// A component with a section `toolcell:manifest`.
fn with_manifest(manifest: &str) -> Vec<u8> {
    let mut bytes = component("Echoes.");
    let name = "toolcell:manifest";
    let mut size = 1 + name.len() + manifest.len();
    bytes.push(0);
    while size >= 0x80 {
        bytes.push(u8::try_from(size & 0x7f).unwrap() | 0x80);
        size >>= 7;
    }
    bytes.push(u8::try_from(size).unwrap());
    bytes.push(u8::try_from(name.len()).unwrap());
    bytes.extend(name.as_bytes());
    bytes.extend(manifest.as_bytes());
    bytes
}

#[test]
fn wants_of_a_package_are_shown_and_not_granted() {
    let user = User::new();
    user.configure("# mine\n[tools.text]\nenabled = true\n");
    user.file(
        "weather.wasm",
        with_manifest(
            r#"{"name": "weather\u001b[2J", "version": "1.0", "wants": [{"grant": "read=/", "reason": "granted\nalready"}]}"#,
        ),
    );
    let seen = user.run(&["tool", "add", "weather.wasm"]).ended(0);
    assert!(
        seen.stdout
            .contains("it asks for these grants, which it does not get by this"),
        "{}",
        seen.stdout
    );
    assert!(
        seen.stdout.contains(r"read=/  │ granted\nalready"),
        "{}",
        seen.stdout
    );
    assert!(!seen.stdout.contains('\u{1b}'), "{}", seen.stdout);
    let shown = user.run(&["tool", "inspect", "weather"]).ended(0).stdout;
    for part in ["its author says, version: │ 1.0", r"read=/  │ granted\nalready"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let json = user
        .run(&["tool", "inspect", "weather", "--json"])
        .ended(0)
        .json();
    assert_eq!(json["manifest"]["wants"][0]["grant"], "read=/");
    let list = user.run(&["tool", "list", "--json"]).ended(0).json();
    let tool = list
        .as_array()
        .unwrap()
        .iter()
        .find(|tool| tool["component"] == "weather");
    assert_eq!(tool.unwrap()["grants"], serde_json::json!([]));
    assert!(configuration(&user).starts_with("# mine\n[tools.text]\nenabled = true\n"));
    // The copy is used, whatever becomes of the file.
    user.file("weather.wasm", "gone");
    user.run(&["call", "weather", r#"{"a": 1}"#]).ended(0);
    let [path] = stored(&user).try_into().unwrap();
    assert_eq!(
        path.file_stem().unwrap().to_str().unwrap(),
        hex(&std::fs::read(&path).unwrap())
    );

    user.run(&["tool", "remove", "weather"]).ended(0);
    assert_eq!(configuration(&user), "# mine\n[tools.text]\nenabled = true\n");
    assert_eq!(stored(&user).len(), 0);
}

#[test]
fn lock_has_origin_and_wants_of_a_package() {
    let user = User::new();
    let wants = |wants: &str| with_manifest(&format!(r#"{{"wants": [{wants}]}}"#));
    user.file("tool.wasm", wants(""));
    user.run(&["tool", "add", "tool.wasm"]).ended(0);
    user.run(&["lock", "--tool", "tool"]).ended(0);
    let path = user.work().join("toolcell.lock");
    let locked = std::fs::read_to_string(&path).unwrap();
    // Without its directory, which is another one for others.
    assert!(locked.contains("origin = \"tool.wasm\""), "{locked}");
    let call = ["call", "--locked", "tool", r#"{"a": 1}"#];
    user.run(&call).ended(0);
    std::fs::write(&path, locked.replace("\"tool.wasm", "\"/home/else/tool.wasm")).unwrap();
    user.run(&call).ended(0);
    // The same component from elsewhere.
    std::fs::write(&path, locked.replace("\"tool.wasm", "\"ghcr.io/me/tool:1")).unwrap();
    let seen = user.run(&call).ended(4);
    assert!(seen.stderr.contains("it comes from"), "{}", seen.stderr);
    std::fs::write(&path, &locked).unwrap();
    let next = wants(r#"{"grant": "http=evil.example"}"#);
    user.file("tool.wasm", &next);
    user.run(&["tool", "update", "tool", "--accept", &hex(&next)])
        .ended(0);
    let seen = user.run(&call).ended(4);
    assert!(
        seen.stderr.contains("its author proposes the grant"),
        "{}",
        seen.stderr
    );
    user.run(&["lock", "--tool", "tool"]).ended(0);
    let locked = std::fs::read_to_string(&path).unwrap();
    assert!(locked.contains("wants = [\"http=evil.example\"]"), "{locked}");
    user.run(&call).ended(0);
}

#[test]
fn password_in_a_reference_is_not_repeated() {
    let user = User::new();
    let reference = "https://me:hunter2@example.com/tool.wasm";
    for command in [&["add", reference][..], &["push", "x.wasm", reference]] {
        let seen = user.run(&[&["tool"], command].concat()).ended(2);
        assert!(
            seen.stderr.contains("https://…@example.com/tool.wasm"),
            "{}",
            seen.stderr
        );
        assert!(!seen.stderr.contains("hunter2"), "{}", seen.stderr);
    }
}

#[test]
fn package_that_cannot_be_used_leaves_nothing() {
    let user = User::new();
    user.file("a.wasm", component("Echoes."));
    user.file("page.wasm", "<html>");
    user.file("broken.wasm", b"\0asm\x0d\0\x01\0nonsense");
    user.file("wants.wasm", with_manifest("{"));
    let taken = Probe {
        names: vec!["text_count".into()],
        ..Probe::default()
    };
    user.probe("taken.wasm", &taken);
    user.run(&["tool", "add", "a.wasm"]).ended(0);
    let before = (configuration(&user), stored(&user));
    for (arguments, code, said) in [
        (&["a.wasm"][..], 2, "toolcell tool remove a\n"),
        (
            &["a.wasm", "--name", "text"],
            2,
            "there is a component of this name",
        ),
        (&["a.wasm", "--name", "a b"], 2, "give it another name"),
        (&["a.wasm", "--name", "twin"], 4, "a tool of your component `a`"),
        (&["taken.wasm"], 4, "cannot be called `text_count`"),
        (&["gone.wasm"], 7, "cannot be used"),
        (&["page.wasm"], 7, "not a WebAssembly file"),
        (&["broken.wasm"], 7, "cannot be loaded"),
        (&["wants.wasm"], 7, "toolcell:manifest"),
        (&["/dev/zero", "--name", "zero"], 7, "cannot be used"),
        (&["https://example.com/a.wasm"], 2, "needs the digest"),
        (
            &["http://example.com/a.wasm"],
            2,
            "`http` is for this machine alone",
        ),
        (&["me/tool"], 2, "is not the host of a registry"),
    ] {
        let seen = user.run(&[&["tool", "add"][..], arguments].concat()).ended(code);
        assert!(seen.stderr.contains(said), "{arguments:?}: {}", seen.stderr);
        assert_eq!((configuration(&user), stored(&user)), before, "{arguments:?}");
    }
    let other = Probe {
        names: vec!["other".into()],
        ..Probe::default()
    };
    user.probe("b.wasm", &other);
    let seen = user.run(&["tool", "add", "b.wasm", "--dry-run"]).ended(0);
    assert!(seen.stdout.contains("+[tools.b]"), "{}", seen.stdout);
    assert_eq!((configuration(&user), stored(&user)), before);
    let seen = user.run(&["tool", "remove", "text"]).ended(2);
    assert!(
        seen.stderr.contains("there is no package `text`"),
        "{}",
        seen.stderr
    );
}

#[test]
fn author_is_told_of_a_manifest_that_cannot_be_used() {
    let user = User::new();
    user.file("wants.wasm", with_manifest("{"));
    let shown = user.run(&["tool", "inspect", "wants.wasm"]).ended(0).stdout;
    assert!(
        shown.contains("its section `toolcell:manifest` cannot be used"),
        "{shown}"
    );
    user.file("no.wasm", "<html>");
    let json = user
        .run(&["tool", "inspect", "no.wasm", "--json"])
        .ended(7)
        .json();
    assert_eq!(json["error"]["exit"], 7, "{json}");
}

#[test]
fn program_keeps_the_name_of_its_package() {
    let user = User::new();
    let program = |text: &str| {
        let text = format!(
            r#"(module
(import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
(memory (export "memory") 1)
(data (i32.const 0) "\08\00\00\00\05\00\00\00{text}")
(func (export "_start") (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 32)))))"#
        );
        wat::parse_str(text).unwrap()
    };
    user.file("my.prog.wasm", program("first"));
    user.run(&["tool", "add", "my.prog.wasm", "--name", "my-prog"])
        .ended(0);
    let call = |said: &str| {
        let seen = user.run(&["call", "my-prog", "{}"]).ended(0);
        assert_eq!(seen.stdout, said);
    };
    call("first\n");
    let next = program("other");
    user.file("my.prog.wasm", &next);
    user.run(&["tool", "update", "my-prog", "--accept", &hex(&next)])
        .ended(0);
    call("other\n");
}

#[test]
fn update_replaces_only_what_was_accepted() {
    let user = User::new();
    let (old, new, other) = (component("Echoes."), component("Echoes it."), component("Else."));
    user.file("tool.wasm", &old);
    user.run(&["tool", "add", "tool.wasm"]).ended(0);
    user.run(&["lock", "--tool", "tool"]).ended(0);
    let update = ["tool", "update", "tool"];
    assert!(user.run(&update).ended(0).stderr.contains("up to date"));
    assert_eq!(user.run(&["tool", "list", "--outdated"]).ended(0).stdout, "");

    user.file("tool.wasm", &new);
    let listed = user.run(&["tool", "list", "--outdated"]).ended(0).stdout;
    assert!(listed.contains(&hex(&new)), "{listed}");
    let listed = user
        .run(&["tool", "list", "--outdated", "--json"])
        .ended(0)
        .json();
    assert_eq!(
        (&listed[0]["component"], &listed[0]["available"]),
        (&"tool".into(), &format!("sha256:{}", hex(&new)).into())
    );
    let seen = user.run(&update).ended(4);
    assert!(
        seen.stdout.contains(r#"+      "description": "Echoes it.""#),
        "{}",
        seen.stdout
    );
    assert!(
        seen.stderr.contains(&format!("--accept sha256:{}", hex(&new))),
        "{}",
        seen.stderr
    );
    let call = ["call", "tool", "{}", "--locked"];
    user.run(&call).ended(0);

    // Something else is there by the time that it is accepted.
    user.file("tool.wasm", &other);
    let accept = format!("sha256:{}", hex(&new));
    let seen = user.run(&[&update[..], &["--accept", &accept]].concat()).ended(4);
    assert!(seen.stderr.contains("not what was accepted"), "{}", seen.stderr);
    user.run(&call).ended(0);

    user.file("tool.wasm", &new);
    user.run(&[&update[..], &["--accept", &accept]].concat()).ended(0);
    // The lock does not accept it.
    user.run(&call).ended(4);
    user.run(&["lock", "--tool", "tool"]).ended(0);
    user.run(&call).ended(0);
    assert_eq!(stored(&user).len(), 1);
}

#[test]
fn update_keeps_grants_and_limits_of_the_user() {
    let user = User::new();
    user.file("tool.wasm", component("Echoes."));
    user.run(&["tool", "add", "tool.wasm"]).ended(0);
    let text = format!("{}grants = [\"env=LANG\"]\n", configuration(&user));
    user.configure(&text);
    let new = component("Echoes it.");
    user.file("tool.wasm", &new);
    user.run(&["tool", "update", "tool", "--accept", &hex(&new)])
        .ended(0);
    assert!(
        configuration(&user).contains("grants = [\"env=LANG\"]"),
        "{}",
        configuration(&user)
    );
}

#[test]
fn package_of_another_configuration_is_left_alone() {
    let user = User::new();
    user.file("one.wasm", component("Echoes."));
    user.file("two.wasm", component("Echoes more."));
    user.file("other.toml", "");
    user.run(&["tool", "add", "one.wasm", "--name", "echo"]).ended(0);
    let other = |arguments: &[&str]| user.run(&[&["--config", "other.toml", "tool"], arguments].concat());
    let seen = other(&["add", "two.wasm", "--name", "echo"]).ended(2);
    assert!(seen.stderr.contains("a package of this name"), "{}", seen.stderr);
    for arguments in [["remove", "echo"], ["update", "echo"]] {
        let seen = other(&arguments);
        assert!(seen.code != 0, "{arguments:?}");
        assert!(
            seen.stderr
                .contains("it belongs to `~/.config/toolcell/config.toml`")
                && seen
                    .stderr
                    .contains("--config ~/.config/toolcell/config.toml tool"),
            "{}",
            seen.stderr
        );
    }
    user.run(&["call", "echo", r#"{"a": 1}"#]).ended(0);
    // A table that was removed by hand leaves the package to be removed, and so does a file.
    user.configure("");
    user.run(&["tool", "remove", "echo"]).ended(0);
    other(&["add", "two.wasm", "--name", "echo"]).ended(0);
    std::fs::remove_file(user.work().join("other.toml")).unwrap();
    user.run(&["tool", "remove", "echo"]).ended(0);
    assert_eq!(stored(&user).len(), 0);
}

#[test]
fn damaged_list_of_packages_has_a_way_out() {
    let user = User::new();
    for name in ["one", "two"] {
        let probe = Probe {
            names: vec![name.into()],
            ..Probe::default()
        };
        user.file(&format!("{name}.wasm"), probe.build());
        user.run(&["tool", "add", &format!("{name}.wasm")]).ended(0);
    }
    let list = user.home().join(".local/share/toolcell/packages/packages.json");
    for damaged in ["", "{", r#"[{"name": "one"}]"#] {
        std::fs::write(&list, damaged).unwrap();
        for command in [
            &["tool", "add", "one.wasm", "--name", "other"][..],
            &["tool", "remove", "one"],
            &["tool", "update", "one"],
            &["tool", "list", "--outdated"],
        ] {
            let seen = user.run(command).ended(74).stderr;
            assert!(
                seen.contains("hint: restore the file from a copy; or move it away"),
                "{seen}"
            );
            assert!(seen.contains("packages.json.damaged"), "{seen}");
        }
        let seen = user.run(&["doctor"]).ended(74);
        assert!(seen.stdout.contains("✗ packages"), "{}", seen.stdout);
    }
    std::fs::rename(&list, list.with_extension("json.damaged")).unwrap();
    // What is configured is kept, and can be added again.
    user.run(&["tool", "remove", "one"]).ended(0);
    user.run(&["tool", "add", "one.wasm"]).ended(0);
    assert_eq!(stored(&user).len(), 2);
    user.run(&["call", "two", r#"{"a": 1}"#]).ended(0);
    let seen = user.run(&["doctor"]).ended(0);
    assert!(seen.stdout.contains("1 package"), "{}", seen.stdout);
}

#[test]
fn package_that_was_lost_can_be_repaired() {
    let user = User::new();
    user.file("tool.wasm", component("Echoes."));
    user.run(&["tool", "add", "tool.wasm"]).ended(0);
    let call = ["call", "tool", r#"{"a": 1}"#];
    let update = ["tool", "update", "tool"];
    // Its component is gone.
    std::fs::remove_file(&stored(&user)[0]).unwrap();
    for command in [&call[..], &["tool", "list"], &["tool", "list", "--outdated"]] {
        let seen = user.run(command).ended(7).stderr;
        let hint = "to fetch it again: toolcell tool update tool";
        assert!(seen.contains(hint) && !seen.contains("check the path"), "{seen}");
    }
    let back = "was missing or damaged, and is back";
    let seen = user.run(&update).ended(0);
    assert!(seen.stderr.contains(back), "{}", seen.stderr);
    user.run(&call).ended(0);
    // Its component has other bytes, as a full disk or another program leaves them.
    std::fs::write(&stored(&user)[0], component("Lies.")).unwrap();
    user.run(&call).ended(7);
    let seen = user.run(&update).ended(0);
    assert!(seen.stderr.contains(back), "{}", seen.stderr);
    user.run(&call).ended(0);
    // The configuration names another component.
    let added = configuration(&user);
    let digest = hex(&component("Echoes."));
    user.configure(&added.replace(&digest, &"0".repeat(64)));
    user.run(&call).ended(7);
    user.run(&update).ended(4);
    user.run(&[&update[..], &["--accept", &digest]].concat()).ended(0);
    assert_eq!(configuration(&user), added);
    user.run(&call).ended(0);
    // An agent has it.
    user.configure(&format!(
        "{added}\n[agents.helper]\ndescription = \"Helps\"\ntools = [\"tool\"]\n"
    ));
    let seen = user.run(&["tool", "remove", "tool"]).ended(0);
    assert!(
        seen.stderr.contains("the agent `helper` still has the tool"),
        "{}",
        seen.stderr
    );
    // The configuration has lost it, or was never written.
    user.configure("");
    user.run(&["tool", "add", "tool.wasm"]).ended(0);
    user.configure("");
    user.run(&["tool", "add", "tool.wasm"]).ended(0);
    user.run(&call).ended(0);
    // The list has lost it.
    let list = user.home().join(".local/share/toolcell/packages/packages.json");
    std::fs::remove_file(list).unwrap();
    user.run(&["tool", "remove", "tool"]).ended(0);
    assert!(!configuration(&user).contains("tools.tool") && stored(&user).is_empty());
}

/// Each command reads the configuration once it has the packages to itself, so that no change of another is lost.
#[test]
fn packages_that_are_added_at_once_are_all_there() {
    let user = User::new();
    let own = "# mine\n[tools.text]\nenabled = true\n";
    user.configure(own);
    let names: Vec<String> = (0..8).map(|n| format!("one{n}")).collect();
    for name in &names {
        let probe = Probe {
            names: vec![format!("{name}_tool")],
            ..Probe::default()
        };
        user.probe(&format!("{name}.wasm"), &probe);
    }
    let file = |name: &String| format!("{name}.wasm");
    let running: Vec<_> = names
        .iter()
        .map(|name| {
            let mut command = user.command(&["tool", "add", &file(name)]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    for running in running {
        user.seen(&["tool", "add"], running.wait_with_output().unwrap())
            .ended(0);
    }
    assert_eq!(stored(&user).len(), 8);
    let written = configuration(&user);
    assert!(written.starts_with(own), "{written}");
    for name in &names {
        assert!(written.contains(&format!("[tools.{name}]")), "{written}");
    }
    // Likewise when they are removed, while others are added with the same name, of which one succeeds.
    let removed: Vec<_> = names
        .iter()
        .map(|name| {
            user.command(&["tool", "remove", name])
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut running in removed {
        assert!(running.wait().unwrap().success());
    }
    assert_eq!((configuration(&user).as_str(), stored(&user).len()), (own, 0));
    let same: Vec<_> = (0..4)
        .map(|n| {
            let source = file(&names[n]);
            let mut command = user.command(&["tool", "add", &source, "--name", "same"]);
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    let ended: Vec<_> = same
        .into_iter()
        .map(|mut one| one.wait().unwrap().success())
        .collect();
    assert_eq!(ended.iter().filter(|is_added| **is_added).count(), 1, "{ended:?}");
    assert_eq!(stored(&user).len(), 1);
}
