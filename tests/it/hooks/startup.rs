//! Hooks that are refused at startup.

use super::*;

#[test]
fn hook_in_project_file_is_startup_error() {
    let user = user("unruly_hook.wasm", "", &order("x"));
    user.configure("");
    user.file("toolcell.toml", "[hooks.h]\ncomponent = \"hook.wasm\"\n");
    let seen = user.run(&["config", "check"]).ended(3);
    insta::assert_snapshot!(user.plain(&seen.stderr), @r#"
    error: a project's file cannot add or change a hook
      why: in toolcell.toml, line 1, column 8
           │   1 | [hooks.h]
           │     |        ^
         - a hook sees every prompt and every call, and a project could disable a guard
     hint: review the component with `toolcell tool inspect`; to use it, move the table to your own configuration
    "#);
    // A project cannot disable a hook of the user either.
    configure(&user, "");
    user.file("toolcell.toml", "[hooks.h]\nenabled = false\n");
    run(&user, "x", &[]).ended(3);
}

#[test]
fn unusable_hook_is_startup_error() {
    let user = user("unruly_hook.wasm", "", &order("x"));
    let mut all = String::new();
    user.file("core.wasm", wat::parse_str("(module)").unwrap());
    user.file("none.wasm", wat::parse_str("(component)").unwrap());
    user.probe("tool.wasm", &crate::probe::Probe::default());
    let named = |file: &str| format!("[hooks.h]\ncomponent = {:?}\n", user.work().join(file));
    let circle = ["a", "b"].map(|name| {
        let other = if name == "a" { "b" } else { "a" };
        named("hook.wasm").replace(".h]", &format!(".{name}]")) + &format!("before = [{other:?}]\n")
    });
    for (toml, code) in [
        ("[hooks.h]\n".to_owned(), 3),
        ("[hooks.\"a b\"]\ncomponent = \"x.wasm\"\n".to_owned(), 3),
        (named("gone.wasm"), 7),
        (named("core.wasm"), 7),
        (named("none.wasm"), 7),
        (named("tool.wasm"), 7),
        (circle.concat(), 3),
    ] {
        user.configure(&toml);
        let said = run(&user, "x", &[]).ended(code).stderr;
        // The configuration line contains a path of this machine.
        let lines = said.lines().filter(|line| !line.contains("| "));
        all.extend(lines.map(|line| user.plain(line) + "\n"));
    }
    user.configure("");
    user.file(
        "hook.wasm",
        std::fs::read(built().join("keep_files.wasm")).unwrap(),
    );
    all.push_str(&user.plain(&run(&user, "x", &["--tool", "hook.wasm"]).ended(7).stderr));
    insta::assert_snapshot!(all, @r#"
    error: the hook `h` has no component
      why: in ~/.config/toolcell/config.toml, line 1, column 8
     hint: set its file: component = "FILE.wasm"
    error: `a b` is not a valid name of a hook
      why: in ~/.config/toolcell/config.toml, line 1, column 8
     hint: use 1 to 64 characters of a-z, A-Z, 0-9, `_` and `-`, the first one a letter
    error: the component `gone.wasm` cannot be read
      why: in ~/.config/toolcell/config.toml, line 2, column 13
         - No such file or directory (os error 2)
     hint: check the path; relative paths start at the directory of the configuration file
    error: `core.wasm` cannot be loaded
      why: this is a WebAssembly core module, not a component
         - in ~/.config/toolcell/config.toml, line 2, column 13
     hint: build it for `wasm32-wasip2`, or make a component of it with `wasm-tools component new`
    error: `none.wasm` cannot be loaded
      why: the component is not a hook: it does not export `toolcell:tool/hooks`
         - in ~/.config/toolcell/config.toml, line 2, column 13
     hint: build it against the world `toolcell:tool/hook-provider`
    error: `tool.wasm` cannot be loaded
      why: the component is not a hook: it does not export `toolcell:tool/hooks`
         - in ~/.config/toolcell/config.toml, line 2, column 13
     hint: it has tools: add them with --tool, or with `[tools.NAME] component = "FILE.wasm"`
    error: the hooks have conflicting orders
      why: the ordering constraints of hooks form a cycle: a, b
     hint: set their order in `[hooks.NAME]`: `priority`, `before`, `after`
    error: `hook.wasm` cannot be loaded
      why: the component is not a tool: it does not export `toolcell:tool/tools`
     hint: it is a hook: add it to your own configuration, `[hooks.NAME] component = "FILE.wasm"`
    "#);
}

#[test]
fn hook_runs_only_if_it_matches_lock() {
    let user = user("unruly_hook.wasm", "", &order("say hello"));
    let locked = ["--locked"];
    run(&user, "x", &locked).ended(3);
    let seen = user.run(&["lock", "--tool", "text"]).ended(0);
    assert!(seen.stderr.contains("the hook h"), "{}", seen.stderr);
    run(&user, "x", &locked).ended(0);
    configure(&user, "grants = [\"read=.\"]");
    let seen = run(&user, "x", &locked).ended(4);
    for words in [
        "the tools or hooks differ from `toolcell.lock`",
        "the hook `h`: the grant `read=.` is not among those that are locked",
    ] {
        assert!(seen.stderr.contains(words), "{}", seen.stderr);
    }
    configure(&user, "");
    user.file(
        "hook.wasm",
        std::fs::read(built().join("keep_files.wasm")).unwrap(),
    );
    let seen = run(&user, "x", &locked).ended(4);
    for words in [
        "the hook `h`: its code changed",
        "it is called at before_call, and was at `before_prompt",
    ] {
        assert!(seen.stderr.contains(words), "{}", seen.stderr);
    }
    // A guard that was removed from the configuration is reported.
    user.configure("");
    let seen = run(&user, "x", &locked).ended(4);
    assert!(
        seen.stderr.contains("the hook `h` is locked and not in use"),
        "{}",
        seen.stderr
    );
}
