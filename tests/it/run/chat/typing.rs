//! Keys typed while a model answers, at a real terminal.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::process::Signal;
use rustix::termios::LocalModes;
use serde_json::json;

use crate::support::cli_user::{SCRIPTED, User};
use crate::support::pty::Terminal;

/// Beginning and end of each answer.
const ANSWER: [&str; 2] = ["The beginning ", "and the end."];

/// A model server that streams the second half of each answer once it is told to.
struct HaltingServer {
    url: String,
    go_on: Sender<()>,
}

impl HaltingServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (go_on, wait) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // A client that went away is none of its failures.
                let _ = answer(stream.unwrap(), &wait);
            }
        });
        Self { url, go_on }
    }

    fn flags(&self, command: &[&str]) -> Vec<String> {
        let flags = [
            "--provider",
            "openai",
            "--model",
            "m",
            "--base-url",
            &self.url,
            "--no-session",
        ];
        command
            .iter()
            .chain(&flags)
            .map(|flag| (*flag).to_owned())
            .collect()
    }

    fn terminal(&self, user: &User, command: &[&str]) -> Terminal {
        let flags = self.flags(command);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        Terminal::start(user, &flags, "xterm", 100, 40)
    }
}

fn answer(mut stream: TcpStream, wait: &Receiver<()>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    reader.read_exact(&mut vec![0; length])?;
    let head = "HTTP/1.1 200 So\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes())?;
    for (i, text) in ANSWER.into_iter().enumerate() {
        if i > 0 && wait.recv_timeout(Duration::from_secs(60)).is_err() {
            break;
        }
        let delta = json!({ "choices": [{ "index": 0, "delta": { "content": text } }] });
        stream.write_all(format!("data: {delta}\n\n").as_bytes())?;
    }
    let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
    stream.write_all(format!("data: {end}\n\ndata: [DONE]\n\n").as_bytes())
}

/// Returns what is shown up to the last line of the turn.
fn answer_of(terminal: &Terminal) -> &str {
    &terminal.seen[..terminal.seen.find("1 step").unwrap()]
}

#[test]
fn keys_during_an_answer_go_to_the_next_prompt_of_a_chat() {
    let (user, server) = (User::new(), HaltingServer::start());
    let mut terminal = server.terminal(&user, &["chat"]);
    terminal
        .wait_for("› ")
        .keys("go\r")
        .wait_for("The beginning")
        .keys("typed meanwhile");
    // Echo would be there by then.
    std::thread::sleep(Duration::from_millis(200));
    server.go_on.send(()).unwrap();
    terminal.wait_for("1 step");
    let answer = answer_of(&terminal);
    assert!(answer.contains("The beginning and the end."), "{answer}");
    assert!(!answer.contains("typed"), "{answer}");
    terminal.wait_for("› ").wait_for("typed meanwhile");
    terminal.keys("\u{15}/quit\r");
    assert_eq!(terminal.end(), Some(0));
    assert!(terminal.modes().local_modes.contains(LocalModes::ECHO));
}

#[test]
fn keys_that_arrive_with_enter_go_to_the_next_prompt_of_a_chat() {
    let user = User::new();
    let mut terminal = Terminal::start(&user, &["chat", "--provider", "offline"], "xterm", 100, 40);
    terminal.wait_for("› ").keys("/session\r/unknown\r/att");
    terminal.wait_for("unknown command `/unknown`");
    terminal.wait_for("› ").wait_for("/att").keys("ach\r");
    // At the prompt, because the terminal keeps the end of input to itself before.
    terminal
        .wait_for("nothing is attached")
        .wait_for("› ")
        .keys("\u{4}");
    assert_eq!(terminal.finish(), Some(0), "{}", terminal.seen);
}

#[test]
fn echo_is_restored_however_an_answer_ends() {
    let (user, server) = (User::new(), HaltingServer::start());
    let mut terminal = server.terminal(&user, &["run", "x"]);
    let before = terminal.modes().local_modes;
    terminal.wait_for("The beginning").keys("typed\n");
    assert!(!terminal.modes().local_modes.contains(LocalModes::ECHO));
    std::thread::sleep(Duration::from_millis(200));
    server.go_on.send(()).unwrap();
    assert_eq!(terminal.finish(), Some(0));
    assert!(!terminal.seen.contains("typed"), "{}", terminal.seen);
    assert_eq!(terminal.modes().local_modes, before);
    for (signals, code) in [
        (&[Signal::INT][..], 130),
        (&[Signal::INT, Signal::INT], 130),
        (&[Signal::TERM], 130),
        (&[Signal::HUP], 129),
        (&[Signal::QUIT], 131),
    ] {
        // The halted answer of this one keeps the server busy.
        let server = HaltingServer::start();
        let mut terminal = server.terminal(&user, &["run", "x"]);
        terminal.wait_for("The beginning");
        signals.iter().for_each(|signal| terminal.signal(*signal));
        assert_eq!(terminal.end(), Some(code), "{signals:?}");
        assert_eq!(terminal.modes().local_modes, before, "{signals:?}");
    }
}

#[test]
fn signal_at_the_prompt_of_a_chat_restores_the_terminal() {
    let user = User::new();
    for (signal, code) in [(Signal::TERM, 130), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        let mut terminal = Terminal::start(&user, &["chat", "--provider", "offline"], "xterm", 100, 40);
        let before = terminal.modes();
        terminal.wait_for("› ").keys("typed").wait_for("typed");
        assert!(!terminal.modes().local_modes.contains(LocalModes::ECHO));
        terminal.signal(signal);
        assert_eq!(terminal.end(), Some(code), "{signal:?}");
        let after = terminal.modes();
        assert_eq!(after.local_modes, before.local_modes, "{signal:?}");
        assert_eq!(after.input_modes, before.input_modes, "{signal:?}");
    }
}

#[test]
fn termination_during_an_answer_ends_a_chat() {
    let (user, server) = (User::new(), HaltingServer::start());
    let mut terminal = server.terminal(&user, &["chat"]);
    let before = terminal.modes().local_modes;
    terminal.wait_for("› ").keys("go\r").wait_for("The beginning");
    terminal.signal(Signal::TERM);
    assert_eq!(terminal.end(), Some(130));
    assert_eq!(terminal.modes().local_modes, before);
    // Ctrl-C cancels the turn alone.
    let server = HaltingServer::start();
    let mut terminal = server.terminal(&user, &["chat"]);
    terminal.wait_for("› ").keys("go\r").wait_for("The beginning");
    terminal.signal(Signal::INT);
    terminal.wait_for("› ").keys("/quit\r");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn stopped_answer_has_echo_and_goes_on_without() {
    let (user, server) = (User::new(), HaltingServer::start());
    let mut terminal = server.terminal(&user, &["run", "x"]);
    let before = terminal.modes().local_modes;
    terminal.wait_for("The beginning").signal(Signal::TSTP);
    terminal.wait_for_stop();
    assert_eq!(terminal.modes().local_modes, before);
    terminal.signal(Signal::CONT);
    while terminal.modes().local_modes.contains(LocalModes::ECHO) {
        std::thread::sleep(Duration::from_millis(10));
    }
    server.go_on.send(()).unwrap();
    assert_eq!(terminal.finish(), Some(0));
    assert_eq!(terminal.modes().local_modes, before);
}

#[test]
fn line_breaks_at_the_end_of_an_answer_end_its_line() {
    let user = User::new();
    for text in ["abc", "abc\\n", "abc\\n\\n"] {
        let steps = format!(
            r#"{{"steps":[{{"text":"{text}","calls":[{{"name":"text_count","arguments":{{"text":"x"}}}}]}},{{"text":"{text}"}}]}}"#
        );
        user.file("script.json", steps);
        let mut terminal = Terminal::start(&user, &SCRIPTED, "xterm", 100, 30);
        assert_eq!(terminal.finish(), Some(0), "{}", terminal.seen);
        let lines: Vec<&str> = terminal.seen.lines().map(str::trim_end).collect();
        assert!(lines.contains(&"│ abc"), "{}", terminal.seen);
        for own in ["● text_count", "2 steps"] {
            assert!(
                lines.iter().any(|line| line.starts_with(own)),
                "{}",
                terminal.seen
            );
        }
    }
}
