//! Answers, and input that does not answer.

use super::*;

#[test]
fn words_of_refusal_reach_the_model() {
    for (answer, words) in [
        ("no, use b.txt instead", Some("the user says: use b.txt instead")),
        ("n not now", Some("the user says: not now")),
        ("no", None),
    ] {
        let call = "TOOL_CALL: files_write\nARGUMENTS: {\"path\": \"out.txt\", \"content\": \"x\"}";
        let server = ModelServer::playing(vec![Answer::chat(call), Answer::chat("Done.")]);
        let user = hello();
        let url = server.url("/v1");
        let flags = [
            "run",
            "x",
            "--tool",
            "files",
            "--grant",
            "write=.",
            "--tool-calls",
            "labels",
        ];
        let command = [
            &flags[..],
            &["--provider", "openai", "--model", "m", "--base-url", &url],
        ]
        .concat();
        let mut terminal = Terminal::start(&user, &command, "xterm", 100, 40);
        terminal.wait_for("n no, or no and what to do instead");
        terminal.answer(answer).wait_for("1 call");
        assert_eq!(terminal.finish(), Some(0), "{}", terminal.seen);
        assert!(!wrote(&user));
        let requests = server.requests();
        let read = requests[1].body["messages"].to_string();
        assert_eq!(read.contains("the user says"), words.is_some(), "{read}");
        assert!(
            read.contains(words.unwrap_or("the user declined this call")),
            "{read}"
        );
    }
}

#[test]
fn confirmation_of_an_answer_for_always_takes_no_words() {
    let user = hello();
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
    terminal.answer("t").wait_for("never ask about");
    terminal.answer("no, never").wait_for("not one of the answers");
    terminal.answer("n").wait_for("wants to run");
    terminal.answer("no, never").wait_for("1 call");
    assert_eq!(terminal.end(), Some(0));
    assert!(!wrote(&user));
}

#[test]
fn answer_without_its_digits_is_told_so() {
    let user = hello();
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
    terminal.keys("x");
    terminal.wait_for("are not an answer; they are discarded");
    for (line, told) in [
        (
            "n",
            "this is not one of the answers without the digits of its prompt",
        ),
        (
            "y",
            "this is not one of the answers without the digits of its prompt",
        ),
        ("q", "this is not one of the answers\r\n"),
    ] {
        terminal
            .wait_for(PROMPT)
            .keys(line)
            .wait_for(line)
            .keys("\n")
            .wait_for(told);
    }
    terminal.answer("n").wait_for("1 call");
    assert_eq!(terminal.end(), Some(0));
    assert!(!wrote(&user));
}

#[test]
fn early_input_does_not_answer_question() {
    let user = hello();
    for early in ["y\n", "y\ny\ny\n", "a\ny\n", "yes", "\n", "no, use b\n"] {
        let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
        // Nothing stands there yet.
        terminal.keys(early);
        terminal.wait_for("are not an answer; they are discarded");
        // However slowly the rest of it comes: without the digits of the prompt nothing is an answer.
        terminal.wait_for(PROMPT).keys("y").wait_for("y").keys("\n");
        terminal
            .wait_for("not one of the answers")
            .answer("n")
            .wait_for("1 call");
        assert_eq!(terminal.end(), Some(0));
        assert!(!wrote(&user), "{early:?}");
    }
}

#[test]
fn paste_does_not_answer_question() {
    let user = hello();
    for paste in [
        "y\n",
        "yes\n",
        "\u{1b}[200~y\n\u{1b}[201~",
        "y\ny\n",
        "y\u{1b}[200~\n\u{1b}[201~",
        "yes please do\n",
    ] {
        let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
        terminal
            .wait_for(PROMPT)
            .keys(paste)
            .wait_for("are not an answer");
        terminal.wait_for(PROMPT).keys(paste).wait_for("no");
        terminal.answer("n").wait_for("1 call");
        assert!(!wrote(&user), "{}", terminal.seen);
    }
}

#[test]
fn refusal_may_be_typed_faster_than_key_by_key() {
    let user = hello();
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
    terminal.wait_for(PROMPT).keys("n").wait_for("n");
    terminal.keys("o, use b.txt").wait_for("b.txt");
    // Longer than the gap between the keys of a burst.
    std::thread::sleep(std::time::Duration::from_millis(200));
    terminal.keys("\n").wait_for("1 call");
    assert!(
        terminal.seen.contains("the user says: use b.txt"),
        "{}",
        terminal.seen
    );
    assert!(!wrote(&user));
}

#[test]
fn answer_after_paste_needs_digits_of_prompt() {
    let user = hello();
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
    terminal
        .wait_for(PROMPT)
        .keys("y\n")
        .wait_for("are not an answer");
    terminal
        .wait_for("your answer and ")
        .answer("y")
        .wait_for("1 call");
    assert!(wrote(&user), "{}", terminal.seen);
}

#[test]
fn fifth_invalid_answer_denies_call() {
    for (invalid, is_allowed) in [(4, true), (5, false)] {
        let user = hello();
        let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
        for _ in 0..invalid {
            terminal.answer("x").wait_for("not one of the answers");
        }
        if is_allowed {
            terminal.answer("y");
        }
        terminal.wait_for("1 call");
        assert_eq!(terminal.end(), Some(0));
        assert_eq!(wrote(&user), is_allowed, "{invalid}: {}", terminal.seen);
        let is_told = terminal.seen.contains("the question was not answered");
        assert_eq!(is_told, !is_allowed, "{}", terminal.seen);
    }
}

#[test]
fn refusal_counts_in_any_form_and_after_a_mistyped_answer() {
    let user = hello();
    for answer in ["No", "NO", "nope"] {
        let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
        terminal.answer(answer).wait_for("1 call");
    }
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
    terminal.answer("yep").wait_for("not one of the answers");
    // Without the digits.
    terminal.wait_for(PROMPT).keys("n").wait_for("n").keys("\n");
    terminal.wait_for("1 call");
    assert_eq!(
        terminal.seen.matches("your answer").count(),
        2,
        "{}",
        terminal.seen
    );
    assert!(!wrote(&user));
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
    terminal.answer("YES").wait_for("1 call");
    assert!(wrote(&user));
}

#[test]
fn always_is_confirmed_after_delay() {
    let user = hello();
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
    terminal.answer("t");
    terminal
        .wait_for("never ask about `files_write` again?")
        .wait_for("with any arguments");
    let shown = Instant::now();
    // Too early to be an answer.
    terminal.keys("y\n");
    terminal
        .wait_for("are not an answer")
        .wait_for("your answer and ");
    assert!(shown.elapsed() >= Duration::from_millis(900));
    terminal
        .answer("n")
        .wait_for("wants to run")
        .answer("y")
        .wait_for("1 call");
    assert!(wrote(&user));
    let listed = user.run(&["approval", "list", "--json"]).ended(0).json();
    assert_eq!(listed, json!([]));
}

#[test]
fn question_is_drawn_anew_when_terminal_is_resized() {
    let user = hello();
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
    terminal.wait_for(PROMPT).resize(40, 20);
    terminal.wait_for("wants to run").answer("y").wait_for("1 call");
    assert!(wrote(&user));
}

#[test]
fn terminal_state_is_restored_after_question() {
    let user = hello();
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
    let before = terminal.modes().local_modes;
    assert!(before.contains(LocalModes::ICANON | LocalModes::ECHO));
    terminal.wait_for(PROMPT);
    assert!(!terminal.modes().local_modes.contains(LocalModes::ICANON));
    terminal.keys("\u{4}").wait_for("1 call");
    assert_eq!(terminal.end(), Some(0));
    assert_eq!(terminal.modes().local_modes, before);
    for (signal, code) in [
        (Signal::INT, 130),
        (Signal::TERM, 130),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
        (Signal::USR1, 138),
        (Signal::ALARM, 142),
    ] {
        let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
        terminal.wait_for(PROMPT).signal(signal);
        assert_eq!(terminal.end(), Some(code), "{signal:?}");
        assert_eq!(terminal.modes().local_modes, before, "{signal:?}");
        // Pastes are not marked any more.
        terminal.wait_for("\u{1b}[?2004l");
    }
    assert!(!wrote(&user));
}

#[test]
fn stopped_question_restores_terminal_and_returns() {
    let user = hello();
    let mut terminal = Terminal::start(&user, &RUN, "xterm", 100, 40);
    let before = terminal.modes().local_modes;
    terminal.wait_for(PROMPT).signal(Signal::TSTP);
    terminal.wait_for_stop();
    assert_eq!(terminal.modes().local_modes, before);
    terminal.wait_for("\u{1b}[?2004l").signal(Signal::CONT);
    terminal
        .wait_for("\u{1b}[?2004h")
        .wait_for("wants to run")
        .answer("y")
        .wait_for("1 call");
    assert_eq!(terminal.end(), Some(0));
    assert_eq!(terminal.modes().local_modes, before);
    assert!(wrote(&user));
}

#[test]
fn early_input_is_kept_for_next_chat_prompt() {
    let user = hello();
    let mut chat = RUN.to_vec();
    chat.splice(..2, ["chat", "--no-session"]);
    let mut terminal = Terminal::start(&user, &chat, "xterm", 100, 40);
    terminal
        .wait_for("› ")
        .keys("go\r")
        .wait_for("wants to run")
        .keys("and then this");
    terminal
        .wait_for("are not an answer; they are kept for the next")
        .answer("n");
    terminal
        .wait_for("1 call")
        .wait_for("› ")
        .wait_for("and then this");
    terminal.keys("\u{15}/quit\r");
    assert_eq!(terminal.end(), Some(0));
}
