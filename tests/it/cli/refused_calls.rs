//! Calls that do not start, or break off: wrong tools, arguments and grants, and what others send.

use serde_json::{Value, json};

use crate::probe::Probe;
use crate::support::cli_user::User;

#[test]
fn file_that_is_no_tool_is_refused_with_reason() {
    let user = User::new();
    user.file("text.wasm", "not at all")
        .file("core.wasm", wat::parse_str("(module)").unwrap())
        .file("source.wasm", "(component)")
        .file("empty.wasm", "")
        .file("other.wasm", wat::parse_str("(component)").unwrap());
    let whole = Probe::default().build();
    user.file("cut.wasm", &whole[..whole.len() / 2]);
    std::fs::create_dir(user.work().join("dir.wasm")).unwrap();
    let mut all = String::new();
    for name in ["text", "core", "source", "empty", "other", "cut", "gone"] {
        let seen = user.run(&["call", &format!("{name}.wasm"), "{}"]).ended(7);
        assert_eq!(seen.stdout, "");
        all.push_str(&seen.stderr);
    }
    insta::assert_snapshot!(all, @r"
    error: `text.wasm` cannot be loaded
      why: the file is not WebAssembly
    error: `core.wasm` cannot be loaded
      why: this is a WebAssembly core module, not a component
     hint: build it for `wasm32-wasip2`, or make a component of it with `wasm-tools component new`
    error: `source.wasm` cannot be loaded
      why: the file is WebAssembly in text form; only the binary form is supported
     hint: assemble it first, for example with `wasm-tools parse`
    error: `empty.wasm` cannot be loaded
      why: the file is not WebAssembly
    error: `other.wasm` cannot be loaded
      why: the component is not a tool: it does not export `toolcell:tool/tools`
     hint: it exports nothing: with the SDK for Rust, add `toolcell_sdk::export!(TOOL, …)`; otherwise build it against the world `toolcell:tool/provider`
    error: `cut.wasm` cannot be loaded
      why: the component is truncated: it ends inside a section
     hint: the download or copy may be incomplete; fetch it again
    error: the component `gone.wasm` cannot be read
      why: No such file or directory (os error 2)
     hint: check the path; relative paths start at the working directory
    ");
    // A directory stands for the component in it.
    let seen = user.run(&["call", "dir.wasm", "{}"]).ended(2);
    assert!(
        seen.stderr
            .starts_with("error: the directory `dir.wasm` names no component\n"),
        "{}",
        seen.stderr
    );
}

#[test]
fn wrong_arguments_are_refused_before_anything_runs() {
    let user = User::new();
    let mut all = String::new();
    for arguments in [
        "{",
        "[1]",
        r#"{"text": 1}"#,
        r#"{"txet": "a"}"#,
        r#"{"text": "a", "text": "b"}"#,
    ] {
        all.push_str(&user.run(&["call", "text_count", arguments]).ended(2).stderr);
    }
    insta::assert_snapshot!(all, @r#"
    error: call to `text_count` failed
      why: the arguments were not accepted: EOF while parsing an object at line 1 column 1
     hint: `toolcell tool inspect text_count` shows its parameters
    error: call to `text_count` failed
      why: the arguments were not accepted: expected a JSON object, found an array
     hint: `toolcell tool inspect text_count` shows its parameters
    error: call to `text_count` failed
      why: the arguments were not accepted: at /text: 1 is not of type "string"
     hint: `toolcell tool inspect text_count` shows its parameters
    error: call to `text_count` failed
      why: the arguments were not accepted: there is no parameter `txet` (did you mean `text`?); there are `path`, `text`
     hint: `toolcell tool inspect text_count` shows its parameters
    error: call to `text_count` failed
      why: the arguments were not accepted: duplicate name `text` at line 1 column 20
     hint: `toolcell tool inspect text_count` shows its parameters
    "#);
}

#[test]
fn unknown_tool_name_suggests_nearest() {
    let user = User::new();
    let mut all = String::new();
    for name in ["text_cuont", "text", "text#count", "zzz", "./x"] {
        let seen = user.run(&["call", name, "{}"]);
        assert!([2, 7].contains(&seen.code), "{}", seen.stderr);
        all.push_str(&seen.stderr);
    }
    insta::assert_snapshot!(all, @r"
    error: there is no tool `text_cuont`
     hint: did you mean `text_count` or `text`?
    error: `text` has 3 tools
     hint: name one of `text_count`, `text_diff`, `text_hash`
    error: the component `text` has no tool `count`
     hint: did you mean `text_count`?
    error: there is no tool `zzz`
     hint: `toolcell tool list` shows all tools; a component in a file is named by its path, such as `./my.wasm`
    error: the component `x` cannot be read
      why: No such file or directory (os error 2)
     hint: check the path; relative paths start at the working directory
    ");
}

#[test]
fn wrong_grants_are_refused_with_reason() {
    let user = User::new();
    user.file("file.txt", "");
    let mut all = String::new();
    for grant in ["read=gone", "read=gone/deeper", "read=file.txt", "other:read=."] {
        let seen = user.run(&["call", "text_count", "{}", "--grant", grant]);
        assert!([2, 3].contains(&seen.code), "{}", seen.stderr);
        all.push_str(&user.plain(&seen.stderr));
    }
    insta::assert_snapshot!(all, @r"
    error: cannot grant `read=gone`
      why: No such file or directory (os error 2)
     hint: create it first: mkdir gone
    error: cannot grant `read=gone/deeper`
      why: No such file or directory (os error 2)
     hint: `gone/deeper` does not exist; check the path
    error: cannot grant `read=file.txt`
      why: `file.txt` is not a directory
     hint: grant the directory that holds it
    error: `--grant other:…` names a component that is not in use
      why: components in use: text
     hint: without a name in front it applies to every component
    ");
    user.run(&["call", "text_count", "{}", "--grant", "reed=."])
        .ended(2);
    user.run(&["call", "text_count", "{}", "--limit", "wall=30"])
        .ended(2);
}

#[test]
fn json_reports_why_call_did_not_start() {
    let user = User::new();
    let seen = user.run(&["call", "txt_count", "{}", "--json"]).ended(2);
    let answer = seen.json();
    assert_eq!(
        (&answer["tool"], &answer["receipt"]),
        (&json!("txt_count"), &Value::Null)
    );
    assert_eq!(answer["error"]["kind"], "not_started");
    assert_eq!(answer["error"]["message"], "there is no tool `txt_count`");
    assert_eq!(answer["error"]["hints"][0], "did you mean `text_count`?");
    assert_eq!(answer["error"]["exit"], 2);
    assert!(
        seen.stderr.starts_with("error: there is no tool"),
        "{}",
        seen.stderr
    );
    // A result that was printed is the only output.
    let seen = user
        .run(&["call", "text_count", r#"{"text": 7}"#, "--json"])
        .ended(2);
    assert_eq!(seen.json()["error"]["kind"], "invalid_arguments");
}

#[test]
fn argument_in_another_form_is_refused_with_its_json() {
    let user = User::new();
    for (written, json) in [
        ("path=x", r#"'{"path":"x"}'"#),
        ("count=3", r#"'{"count":3}'"#),
        ("text=it's", r#"'{"text":"it'\''s"}'"#),
    ] {
        let seen = user.run(&["call", "text_count", written]).ended(2);
        assert!(seen.stderr.contains("not a JSON object"), "{}", seen.stderr);
        let hint = format!("toolcell call text_count {json}");
        assert!(seen.stderr.contains(&hint), "{}", seen.stderr);
    }
    // Other forms are an error of the tool's arguments.
    let seen = user.run(&["call", "text_count", "a b=c"]);
    assert!(!seen.stderr.contains("not a JSON object"), "{}", seen.stderr);
}

/// Which of them is meant cannot be known: neither is called.
#[test]
fn name_of_a_tool_that_several_components_define_is_refused() {
    let user = User::new();
    let defines = |names: &[&str]| Probe {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Probe::default()
    };
    user.probe("mine.wasm", &defines(&["text_count", "both", "own"]))
        .probe("other.wasm", &defines(&["both", "alone"]));
    let path = |name: &str| user.work().join(name).display().to_string();
    let table = |name: &str| {
        format!(
            "[tools.{name}]\ncomponent = \"{}\"\n",
            path(&format!("{name}.wasm"))
        )
    };
    user.configure(&[table("mine"), table("other")].concat());
    let seen = user.run(&["call", "text_count", r#"{"text": "a b"}"#]).ended(2);
    for part in [
        "there are several tools `text_count`",
        "the built-in component `text`",
        "`mine` (",
        "text#text_count",
        "mine#text_count",
    ] {
        assert!(seen.stderr.contains(part), "{part}: {}", seen.stderr);
    }
    let named = user
        .run(&["call", "text#text_count", r#"{"text": "a b"}"#])
        .ended(0);
    assert_eq!(named.json()["words"], 2);
    user.run(&["call", "mine#text_count", r#"{"a": 1}"#]).ended(0);
    let seen = user.run(&["call", "both", "{}"]).ended(2);
    assert!(
        seen.stderr.contains("mine#both") && seen.stderr.contains("other#both"),
        "{}",
        seen.stderr
    );
    // Of one component only, whatever else is configured.
    for name in ["own", "alone"] {
        user.run(&["call", name, r#"{"a": 1}"#]).ended(0);
    }
    user.configure(&[table("mine"), table("gone")].concat());
    user.run(&["call", "own", r#"{"a": 1}"#]).ended(0);
    user.configure(&table("gone"));
    user.run(&["call", "text_count", r#"{"text": "a b"}"#]).ended(0);
}

#[test]
fn wrong_name_compiles_few_of_the_configured_components() {
    let user = User::new();
    let cache = user.work().join("cache");
    let mut tables = String::new();
    for at in 0..12 {
        let file = format!("c{at:02}.wasm");
        let tool = Probe {
            names: vec![format!("tool_{at:02}")],
            ..Probe::default()
        };
        user.probe(&file, &tool);
        tables.push_str(&format!(
            "[tools.c{at:02}]\ncomponent = \"{}\"\n",
            user.work().join(&file).display()
        ));
    }
    user.configure(&tables);
    let call = |name: &str| {
        let mut command = user.command(&["call", name, "{}"]);
        command.env("XDG_CACHE_HOME", &cache);
        user.seen(&["call", name], command.output().unwrap())
    };
    let seen = call("wrong_name").ended(2);
    assert!(
        seen.stderr.contains("4 components were not searched"),
        "{}",
        seen.stderr
    );
    assert!(seen.stderr.contains("COMPONENT#wrong_name"), "{}", seen.stderr);
    // What is known is not compiled again, and the next search reaches the rest.
    let seen = call("wrong_name").ended(2);
    assert!(!seen.stderr.contains("not searched"), "{}", seen.stderr);
    call("tool_11").ended(0);
}

/// A server that sends this many bytes for each request, with or without their number.
fn body_server(size: usize, has_length: bool) -> String {
    use std::io::{BufRead as _, BufReader, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let _ = lines.map_while(Result::ok).find(|line| line.is_empty());
            let length = match has_length {
                true => format!("content-length: {size}\r\n"),
                false => String::new(),
            };
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n{length}connection: close\r\n\r\n"
            );
            let _ = stream.write_all(&vec![b'a'; size]);
        }
    });
    origin
}

#[test]
fn body_beyond_its_limit_is_told_as_such() {
    let user = User::new();
    // The size is known for one of them alone.
    for (has_length, hint) in [(true, "http_body=20MiB"), (false, "http_body=16MiB")] {
        let origin = body_server(20 << 20, has_length);
        let arguments = json!({ "url": format!("{origin}/") }).to_string();
        let grant = format!("http={origin}");
        let limit = ["--limit", "http_body=1MiB"];
        let call = [&["call", "fetch", &arguments, "--grant", &grant], &limit[..]].concat();
        let seen = user.run(&call).ended(5).stderr;
        assert!(
            seen.contains("the response exceeds the limit of this tool"),
            "{seen}"
        );
        assert!(seen.contains(hint), "{seen}");
        assert!(!seen.contains("broke") && !seen.contains("later"), "{seen}");
    }
}
