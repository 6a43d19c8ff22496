//! How a turn ends: with failures, at limits, by signals, and with which exit code.

use super::*;

#[test]
fn turn_that_reaches_limit_has_its_own_exit_code() {
    let user = User::new();
    let call = json!([{ "name": "text_count", "arguments": { "text": "a" } }]);
    // This preset has no answer at the limit.
    user.configure("[loop]\npreset = \"task\"\n");
    user.file(
        "steps.json",
        json!({ "steps": [{ "calls": call }, { "text": "Not asked for." }] }).to_string(),
    );
    let script = [
        "run",
        "x",
        "--provider",
        "scripted",
        "--model",
        "steps.json",
        "--tool",
        "text",
    ];
    let seen = user.run(&[&script[..], &["--max-steps", "1"]].concat()).ended(5);
    assert!(seen.stderr.contains("--max-steps"), "{}", seen.stderr);
    assert!(!seen.stdout.contains("Not asked for."), "{}", seen.stdout);
    user.file(
        "slow.json",
        json!({ "steps": [{ "delay_ms": 60_000, "calls": call }] }).to_string(),
    );
    let seen = user
        .run(&[
            "run",
            "x",
            "--provider",
            "scripted",
            "--model",
            "slow.json",
            "--tool",
            "text",
            "--deadline",
            "200ms",
        ])
        .ended(5);
    assert!(seen.stderr.contains("--deadline"), "{}", seen.stderr);
}

#[test]
fn startup_failure_names_cause() {
    let user = User::new();
    user.file("bad.json", "{");
    let mut all = String::new();
    for (arguments, code) in [
        (&["run", " "][..], 2),
        (&["run", "x", "--provider", "openai"], 6),
        (
            &[
                "run",
                "x",
                "--provider",
                "openai",
                "--base-url",
                "http://127.0.0.1:1/v1",
            ],
            3,
        ),
        (&["run", "x", "--provider", "scripted"], 3),
        (&["run", "x", "--provider", "scripted", "--model", "gone.json"], 3),
        (&["run", "x", "--tool", "gone.wasm"], 7),
        (&["run", "x", "--tool", "text#text_count"], 2),
    ] {
        all.push_str(&user.plain(&user.run(arguments).ended(code).stderr));
    }
    insta::assert_snapshot!(all, @r#"
    error: the prompt is empty
     hint: give a task: toolcell run "…"
    error: provider `openai` could not be set up
      why: no API key is set for the provider `openai`, and `api.openai.com` requires one
     hint: set the key: export OPENAI_API_KEY=…
           or try without a model: --provider offline
    error: no model is set for `openai` at `http://127.0.0.1:1/v1`
     hint: set it with --model, TOOLCELL_MODEL or `[provider] model`
    error: provider `scripted` needs a script
     hint: give one with --model FILE.json
    error: provider `scripted` could not be set up
      why: invalid script `[work]/gone.json`
         - could not open `[work]/gone.json`
         - No such file or directory (os error 2)
     hint: a script is JSON such as {"steps": [{"calls": [{"name": "clock_now", "arguments": {}}]}, {"text": "Done."}]}
    error: the component `gone.wasm` cannot be read
      why: No such file or directory (os error 2)
     hint: check the path; relative paths start at the working directory
    error: `--tool text#text_count` names one tool of a component
      why: `text_count` is offered together with the other tools of `text`
     hint: offer the whole component: --tool text
    "#);
}

/// Starts a server that answers every request with the same bytes, and sends the head of each request.
fn server(answer: &'static str) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (heads, received) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                    break;
                }
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            let _ = reader.read_exact(&mut body);
            let _ = heads.send(head);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (url, received)
}

#[test]
fn every_provider_failure_is_shown_with_exit_code() {
    let mut user = User::new();
    user.var("OPENAI_API_KEY", "sk-planted-key");
    for (answer, reason) in [
        (
            "HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\ncontent-length: 66\r\nconnection: close\r\n\r\n{\"error\":{\"message\":\"Incorrect API key provided: sk-planted-key\"}}\n",
            "the API key was not accepted",
        ),
        (
            "HTTP/1.1 429 Too Many Requests\r\nretry-after: 600\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            "too many requests",
        ),
        (
            "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 4\r\nconnection: close\r\n\r\noops",
            "the provider is not available",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"Half an\"}}]}\n\n",
            "ended before it was complete",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 13\r\nconnection: close\r\n\r\n<html></html>",
            "",
        ),
    ] {
        let (url, heads) = server(answer);
        let seen = user
            .run(&["run", "x", "--base-url", &url, "--model", "m", "--tool", "text"])
            .ended(6);
        assert!(
            seen.stderr.contains("error: request to provider `openai` failed"),
            "{}",
            seen.stderr
        );
        assert!(seen.stderr.contains(reason), "{reason}: {}", seen.stderr);
        assert!(
            !seen.stderr.contains("sk-planted") && !seen.stdout.contains("sk-planted"),
            "{}",
            seen.stderr
        );
        // The server is on loopback, so it gets the key.
        let head = heads.try_recv().unwrap().to_ascii_lowercase();
        assert!(head.contains("authorization: bearer sk-planted-key"), "{head}");
        if answer.contains("Half an") {
            assert!(seen.stdout.starts_with("Half an"), "{}", seen.stdout);
        }
    }
}

#[test]
fn closed_pipe_ends_turn_with_success() {
    let user = User::new();
    user.file(
        "script.json",
        json!({ "steps": [{ "text": "word ".repeat(50_000), "chunk": 5 }] }).to_string(),
    );
    let mut child = user
        .command(&[
            "run",
            "x",
            "--provider",
            "scripted",
            "--model",
            "script.json",
            "--tool",
            "text",
        ])
        .spawn()
        .unwrap();
    let mut first = [0; 5];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(!stderr.contains("error"), "{stderr}");
}

#[test]
fn ctrl_c_cancels_turn_and_completes_every_call() {
    let user = User::new();
    user.probe("loop.wasm", &Probe::running("(loop $l (br $l)) (unreachable)"));
    let calls = json!([{ "name": "probe", "arguments": {} }]);
    user.file("script.json", script(&calls, "never said"));
    let mut child = user
        .command(&[
            "run",
            "x",
            "--provider",
            "scripted",
            "--model",
            "script.json",
            "--tool",
            "loop.wasm",
            "--json",
            "--limit",
            "wall=60s",
            "--limit",
            "fuel=1000T",
        ])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    lines
        .by_ref()
        .find(|line| line.contains("\"call_started\""))
        .expect("the call starts");
    let pid = child.id().to_string();
    assert!(
        std::process::Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let rest: Vec<String> = lines.collect();
    assert!(
        rest.iter()
            .any(|line| line.contains("\"call_finished\"") && line.contains("\"cancelled\"")),
        "{rest:?}"
    );
    assert!(rest.last().unwrap().contains("\"turn_finished\""), "{rest:?}");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn best_answer_at_the_step_limit_is_a_success() {
    let count = |text: &str| json!({ "calls": [{ "name": "text_count", "arguments": { "text": text } }] });
    let failing = json!({ "calls": [{ "name": "text_count", "arguments": { "no": 1 } }] });
    let saying =
        json!({ "text": "So far.", "calls": [{ "name": "text_count", "arguments": { "text": "b" } }] });
    for (preset, steps, answer, notice) in [
        (
            "default",
            [count("a"), json!({ "text": "So far." })],
            "So far.",
            "limit of 2 steps",
        ),
        (
            "sequential",
            [count("a"), saying.clone()],
            "So far.",
            "limit of 2 steps",
        ),
        (
            "resilient",
            [count("a"), saying],
            "This was found:",
            "limit of 2 steps",
        ),
        (
            "resilient",
            [failing, json!({ "text": "From memory." })],
            "From memory.",
            "every call failed",
        ),
    ] {
        let user = User::new();
        user.configure(&format!("[loop]\npreset = \"{preset}\"\n"));
        user.file("steps.json", json!({ "steps": steps }).to_string());
        let seen = user
            .run(&[
                "run",
                "x",
                "--provider",
                "scripted",
                "--model",
                "steps.json",
                "--tool",
                "text",
                "--max-steps",
                "2",
            ])
            .ended(0);
        assert!(seen.stdout.contains(answer), "{preset}: {}", seen.stdout);
        assert!(seen.stderr.contains(notice), "{preset}: {}", seen.stderr);
        assert!(!seen.stderr.contains("error:"), "{preset}: {}", seen.stderr);
    }
}

#[test]
fn answer_cut_by_its_length_names_the_setting() {
    let user = User::new();
    user.file(
        "steps.json",
        json!({ "steps": [{ "text": "Half of", "stop": "max_tokens" }] }).to_string(),
    );
    let seen = user
        .run(&["run", "x", "--provider", "scripted", "--model", "steps.json"])
        .ended(1);
    assert!(seen.stdout.contains("Half of"), "{}", seen.stdout);
    assert!(seen.stderr.contains("--max-output-tokens"), "{}", seen.stderr);
}
