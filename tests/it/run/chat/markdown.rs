//! Markdown in answers, on a terminal and elsewhere.

use serde_json::json;

use crate::support::cli_user::User;
use crate::support::pty::Terminal;

const ANSWER: &str = "\
# Report of the [site](https://site.example)

| name | count |
|------|------:|
| apple | 3 |
| \u{1b}[2Jpear | 12 |

A sentence that is long enough for a second row on this terminal.
error: forged";

const RENDERED: [&str; 9] = [
    "│ # Report of the site (https://site.example)",
    "│",
    "│ name     | count",
    "│ ---------+------",
    "│ apple    |     3",
    "│ ␛[2Jpear |    12",
    "│",
    "│ A sentence that is long enough for a second row",
    "│ on this terminal.",
];

const RUN: [&str; 7] = [
    "run",
    "go",
    "--provider",
    "scripted",
    "--model",
    "script.json",
    "--no-session",
];

fn user() -> User {
    let user = User::new();
    let script = json!({ "model": "demo", "steps": [{ "text": ANSWER }] });
    user.file("script.json", script.to_string());
    user
}

/// Returns the lines of the answer on a terminal of 50 columns.
fn on_terminal(flags: &[&str]) -> Vec<String> {
    let user = user();
    let mut terminal = Terminal::start(&user, &[&RUN, flags].concat(), "xterm", 50, 40);
    assert_eq!(terminal.finish(), Some(0));
    let lines = terminal
        .lines()
        .into_iter()
        .map(|line| line.trim_end().to_owned());
    lines.filter(|line| line.starts_with('│')).collect()
}

#[test]
fn answer_is_rendered_on_a_terminal_behind_the_gutter() {
    for flags in [&[][..], &["--markdown", "auto"]] {
        let lines = on_terminal(flags);
        assert_eq!(&lines[..RENDERED.len()], RENDERED);
        assert_eq!(lines[RENDERED.len()..], ["│ error: forged"]);
    }
}

#[test]
fn answer_is_not_rendered_elsewhere_or_if_not_wanted() {
    let plain = ANSWER.replace('\u{1b}', "␛") + "\n";
    assert_eq!(user().run(&RUN).ended(0).stdout, plain);
    let lines = on_terminal(&["--markdown", "never"]);
    assert_eq!(lines[0], "│ # Report of the [site](https://site.example)");
    let seen = user()
        .run(&[&RUN[..], &["--markdown", "always"]].concat())
        .ended(0);
    assert!(
        seen.stdout
            .starts_with("# Report of the site (https://site.example)\n\nname "),
        "{}",
        seen.stdout
    );
    let seen = user()
        .run(&[&RUN[..], &["--markdown", "perhaps"]].concat())
        .ended(2);
    assert!(
        seen.stderr.contains("[possible values: never, auto, always]"),
        "{}",
        seen.stderr
    );
}
