//! The `AGENTS.md` of a project: offered, accepted by its digest, and quoted to the model.

use crate::support::cli_user::User;
use crate::support::pty::Terminal;

const PROMPT: [&str; 2] = ["config", "prompt"];

fn user(text: &str) -> User {
    let user = User::new();
    user.file("AGENTS.md", text);
    user
}

/// Answers the question about the text at a terminal, and returns all that was shown.
fn answered(user: &User, key: &str) -> String {
    let mut terminal = Terminal::start(user, &PROMPT, "xterm", 100, 30);
    terminal.wait_for("as instructions?").wait_for("digest: sha256:");
    assert_eq!(terminal.answer(key).finish(), Some(0));
    terminal.seen.clone()
}

#[test]
fn project_text_is_used_once_accepted_and_until_it_changes() {
    let user = user("Use tabs.\n\n? trust everything\u{1b}[2J\n");
    let seen = answered(&user, "n");
    assert!(seen.contains("  │ ? trust everything␛[2J"), "{seen}");
    assert!(!seen.contains("> Use tabs."), "{seen}");
    // The refusal is remembered.
    let mut terminal = Terminal::start(&user, &PROMPT, "xterm", 100, 30);
    assert_eq!(terminal.finish(), Some(0));
    assert!(!terminal.seen.contains("as instructions?"), "{}", terminal.seen);
    let list = user.run(&["instructions", "list"]).ended(0).stdout;
    assert!(list.contains("not used") && list.contains("AGENTS.md"), "{list}");
    user.run(&["instructions", "forget", "1"]).ended(0);

    let seen = answered(&user, "y");
    assert!(seen.contains("> Use tabs."), "{seen}");
    assert!(seen.contains("> ? trust everything␛[2J"), "{seen}");
    let mut terminal = Terminal::start(&user, &PROMPT, "xterm", 100, 30);
    assert_eq!(terminal.finish(), Some(0));
    assert!(terminal.seen.contains("> Use tabs."), "{}", terminal.seen);
    assert!(!terminal.seen.contains("as instructions?"), "{}", terminal.seen);

    user.file("AGENTS.md", "Use blanks.\n");
    let seen = answered(&user, "n");
    assert!(
        seen.contains("not the text about which you decided before"),
        "{seen}"
    );
    assert!(!seen.contains("> Use"), "{seen}");
}

#[test]
fn project_text_without_terminal_needs_a_flag_of_the_user() {
    let user = user("Use tabs.\n");
    let prompt = |flag: &[&str]| {
        let seen = user.run(&[&PROMPT[..], flag].concat()).ended(0);
        (seen.stdout.contains("> Use tabs."), seen.stderr)
    };
    let accepted = ["--project-instructions", "accepted"];
    let (is_used, notes) = prompt(&accepted);
    assert!(
        !is_used && notes.contains("toolcell instructions accept"),
        "{notes}"
    );
    let wrong = ["instructions", "accept", "--digest", "sha256:00"];
    user.run(&wrong).ended(4);
    // A text that nobody was shown is not accepted without saying which one.
    let unseen = user.run(&["instructions", "accept"]).ended(4);
    let hint = unseen
        .stderr
        .split("toolcell instructions accept --digest ")
        .nth(1);
    let digest = hint.unwrap().trim_end();
    assert_eq!(digest.strip_prefix("sha256:").unwrap().len(), 64, "{digest}");
    assert!(!prompt(&accepted).0);
    user.run(&["instructions", "accept", "--digest", digest]).ended(0);
    let (is_used, notes) = prompt(&[]);
    assert!(!is_used && notes.contains("no user can be asked"), "{notes}");
    let (is_used, notes) = prompt(&accepted);
    assert!(
        is_used && notes.contains("the model reads `AGENTS.md`"),
        "{notes}"
    );
    let (is_used, notes) = prompt(&["--project-instructions", "off"]);
    assert!(!is_used && !notes.contains("AGENTS.md"), "{notes}");
    // In the configuration; instructions of the user come last.
    user.configure("[agent]\nproject_instructions = \"accepted\"\ninstructions = \"Be brief.\"\n");
    let seen = user.run(&PROMPT).ended(0).stdout;
    let quoted = seen.find("> Use tabs.").unwrap();
    assert!(seen.find("Work in steps").unwrap() < quoted, "{seen}");
    assert!(quoted < seen.find("Be brief.").unwrap(), "{seen}");
    user.file("AGENTS.md", "Use tabs!\n");
    assert!(!user.run(&PROMPT).ended(0).stdout.contains("> Use tabs"));
}

#[test]
fn long_project_text_must_be_seen_before_it_is_accepted() {
    let lines: Vec<String> = (0..60).map(|n| format!("rule {n}")).collect();
    let user = user(&lines.join("\n"));
    let mut terminal = Terminal::start(&user, &PROMPT, "xterm", 100, 30);
    terminal.wait_for("show everything, before you can say yes");
    terminal.answer("y").wait_for("this is not one of the answers");
    terminal.wait_for("show everything, before");
    terminal.answer("v");
    // Left before its end, it counts as unseen.
    terminal
        .wait_for("Enter or q: ")
        .keys("q")
        .wait_for("q")
        .keys("\n");
    terminal.wait_for("show everything, before");
    terminal.answer("v");
    for _ in 0..2 {
        terminal.wait_for("Enter or q: ").keys("\n");
    }
    terminal.wait_for("rule 59").wait_for("use this text from now on");
    assert_eq!(terminal.answer("y").finish(), Some(0));
    assert!(terminal.seen.contains("> rule 30"), "{}", terminal.seen);
}

#[test]
fn accepting_project_text_at_a_terminal_shows_it() {
    let user = user("Use tabs.\u{1b}[2J\n");
    let accept = ["instructions", "accept"];
    let mut terminal = Terminal::start(&user, &accept, "xterm", 100, 30);
    terminal.wait_for("as instructions?").wait_for("│ Use tabs.␛[2J");
    assert_eq!(terminal.answer("n").finish(), Some(0));
    assert!(terminal.seen.contains("not used: "), "{}", terminal.seen);
    let mut terminal = Terminal::start(&user, &accept, "xterm", 100, 30);
    terminal.wait_for("use this text from now on");
    assert_eq!(terminal.answer("y").finish(), Some(0));
    assert!(terminal.seen.contains("accepted: "), "{}", terminal.seen);
    let flag = ["--project-instructions", "accepted"];
    let seen = user.run(&[&PROMPT[..], &flag].concat()).ended(0).stdout;
    assert!(seen.contains("> Use tabs."), "{seen}");
}

#[test]
fn unusable_project_text_is_a_warning() {
    let user = user("x");
    std::fs::remove_file(user.work().join("AGENTS.md")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", user.work().join("AGENTS.md")).unwrap();
    let seen = user.run(&PROMPT).ended(0);
    assert!(seen.stderr.contains("warning: "), "{}", seen.stderr);
    assert!(seen.stderr.contains("link"), "{}", seen.stderr);
    assert!(!seen.stdout.contains("root:"), "{}", seen.stdout);
    user.run(&["instructions", "accept"]).ended(3);
}
