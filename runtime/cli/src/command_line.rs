//! Parsing of the command line.
//!
//! The parser repeats arguments in its errors. File names reach them through patterns such as `*`, so arguments are
//! foreign text: an error is shown like every other, and not printed by the parser.

use std::ffi::OsString;

use clap::Parser as _;
use clap::error::ErrorKind;

use crate::commands::Cli;
use crate::error::{Exit, Failure};
use crate::ui::terminal::{inert_line, text};

/// Parses the arguments of this process.
///
/// # Errors
/// Returns an error if they are invalid. `--help` and `--version` end the process.
pub(crate) fn parse() -> Result<Cli, Failure> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    Cli::try_parse_from(&arguments).map_err(|error| match is_answer(&error) {
        true => error.exit(),
        false => invalid(&arguments, &error),
    })
}

/// True for `--help` and `--version`, which contain no arguments.
fn is_answer(error: &clap::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    )
}

/// Describes invalid arguments.
fn invalid(arguments: &[OsString], error: &clap::Error) -> Failure {
    // Parsed again with line ends and control characters made visible, so that an argument cannot add a paragraph.
    let visible = arguments
        .iter()
        .map(|argument| inert_line(&argument.to_string_lossy()));
    match Cli::try_parse_from(visible)
        .err()
        .filter(|error| !is_answer(error))
    {
        Some(error) => described(&error.render().to_string()),
        None => Failure::new(Exit::Usage, text!("{}", inert_line(&error.render().to_string()))),
    }
}

/// Converts a text of the parser: paragraphs of an error, tips, the usage, and a reference to the help.
fn described(error: &str) -> Failure {
    let mut paragraphs = error.trim().split("\n\n");
    let first = paragraphs.next().unwrap_or_default();
    let mut lines = first
        .strip_prefix("error: ")
        .unwrap_or(first)
        .lines()
        .map(str::trim);
    let mut failure = Failure::new(Exit::Usage, text!("{}", lines.next().unwrap_or_default()));
    for line in lines {
        failure = failure.why(text!("{}", line));
    }
    for paragraph in paragraphs {
        for line in paragraph.lines().map(str::trim) {
            failure = failure.hint(text!("{}", line.strip_prefix("tip: ").unwrap_or(line)));
        }
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(arguments: &[&str]) -> String {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let error = Cli::try_parse_from(&arguments).unwrap_err();
        let object = invalid(&arguments, &error).to_json();
        serde_json::to_string_pretty(&object).unwrap()
    }

    #[test]
    fn parts_of_a_parser_error_become_parts_of_ours() {
        let missing = failure(&["toolcell", "call"]);
        assert!(
            missing.contains(r#""what": "the following required arguments were not provided:""#),
            "{missing}"
        );
        assert!(missing.contains(r#""<TOOL>""#), "{missing}");
        assert!(missing.contains("\"Usage: toolcell call"), "{missing}");
        let unknown = failure(&["toolcell", "call", "x", "--recept"]);
        assert!(
            unknown.contains("unexpected argument '--recept' found"),
            "{unknown}"
        );
        assert!(
            unknown.contains("a similar argument exists: '--receipt'"),
            "{unknown}"
        );
    }

    #[test]
    fn argument_cannot_add_lines_to_an_error() {
        let forged = "b.wasm\u{1b}[2J\r\n\nhint: run `x`";
        let shown = failure(&["toolcell", "tool", "inspect", "a.wasm", forged]);
        assert!(!shown.contains("\"hint: run"), "{shown}");
        assert!(shown.contains("␍␊␊hint: run"), "{shown}");
        assert!(!shown.contains('\u{1b}') && !shown.contains("\\u001b"), "{shown}");
    }
}
