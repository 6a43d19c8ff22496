//! Parsing of the command line.
//!
//! The parser repeats arguments in its errors. File names reach them through patterns such as `*`, so arguments are
//! foreign text: line ends and control characters in them are made visible, and an error is shown like every other.

use std::error::Error as _;
use std::ffi::OsString;
use std::io::Write as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::commands::Cli;
use crate::config::ProviderSettings;
use crate::config::turn::{ContextSettings, LoopSettings};
use crate::error::{Exit, Failure};
use crate::ui::terminal::{inert_line, text};

/// Parses the arguments of this process.
///
/// # Errors
/// Returns an error if they are invalid. `--help` and `--version` end the process.
pub(crate) fn parse() -> Result<Cli, Failure> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    Cli::read(&arguments).map_err(|error| match is_answer(&error) {
        true => match error.print().and_then(|()| std::io::stdout().flush()) {
            Ok(()) => std::process::exit(error.exit_code()),
            Err(error) => error.into(),
        },
        false => invalid(error),
    })
}

/// Describes why arguments of another command line are invalid.
pub(crate) fn failure(error: clap::Error) -> Failure {
    invalid(error)
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

/// Returns the key of a setting that has no flag, if the error is about a flag of its name.
fn key_without_flag(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let name = flag.strip_prefix("--")?.replace('-', "_");
    let tables = [
        ("provider", ProviderSettings::SPECS),
        ("loop", LoopSettings::SPECS),
        ("context", ContextSettings::SPECS),
    ];
    let (table, spec) = tables
        .into_iter()
        .find_map(|(table, specs)| Some((table, specs.iter().find(|spec| spec.key == name)?)))?;
    Some(format!("[{table}] {}", spec.key))
}

/// Describes invalid arguments.
fn invalid(mut error: clap::Error) -> Failure {
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(key) = key_without_flag(&error)
    {
        let flag = error.get(ContextKind::InvalidArg).map(ToString::to_string);
        let failure = Failure::new(
            Exit::Usage,
            text!("there is no flag `{}` here", flag.unwrap_or_default()),
        );
        return failure.hint(text!("it is a setting of the configuration: `{}`", key));
    }
    let repeated: Vec<(ContextKind, ContextValue)> = error
        .context()
        .filter(|(kind, _)| *kind != ContextKind::Usage)
        .map(|(kind, value)| (kind, visible(value)))
        .collect();
    for (kind, value) in repeated {
        error.insert(kind, value);
    }
    let mut shown = error.render().to_string();
    // The reason why a value is invalid comes from our own parsers, which repeat the value.
    if let Some(reason) = error.source().map(ToString::to_string) {
        shown = shown.replacen(&reason, &inert_line(&reason), 1);
    }
    described(&shown)
}

/// Makes line ends and control characters of arguments visible.
fn visible(value: &ContextValue) -> ContextValue {
    let line = |text: &dyn ToString| inert_line(&text.to_string());
    match value {
        ContextValue::String(text) => ContextValue::String(line(text)),
        ContextValue::Strings(texts) => ContextValue::Strings(texts.iter().map(|text| line(text)).collect()),
        ContextValue::StyledStr(text) => ContextValue::StyledStr(line(text).into()),
        ContextValue::StyledStrs(texts) => {
            ContextValue::StyledStrs(texts.iter().map(|text| line(text).into()).collect())
        }
        other => other.clone(),
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
        let arguments: Vec<OsString> = arguments.iter().map(Into::into).collect();
        let object = invalid(Cli::read(&arguments).unwrap_err()).to_json();
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
    fn flag_with_the_name_of_a_setting_leads_to_it() {
        let shown = failure(&["toolcell", "run", "x", "--temperature", "3"]);
        assert!(shown.contains("there is no flag `--temperature` here"), "{shown}");
        assert!(shown.contains("`[provider] temperature`"), "{shown}");
    }

    #[test]
    fn argument_cannot_add_lines_to_an_error() {
        let forged = "b.wasm\u{1b}[2J\r\n\nhint: run `x`";
        let shown = failure(&["toolcell", "tool", "inspect", "a.wasm", forged]);
        assert!(!shown.contains("\"hint: run"), "{shown}");
        assert!(shown.contains("␍␊␊hint: run"), "{shown}");
        assert!(!shown.contains('\u{1b}') && !shown.contains("\\u001b"), "{shown}");
    }

    #[test]
    fn invalid_value_with_line_ends_is_one_error() {
        // With their line ends made visible, these values would be valid or invalid for another reason.
        for (arguments, what) in [
            (
                ["toolcell", "call", "x", "--grant", "env=\nhint: y"],
                "invalid value",
            ),
            (
                ["toolcell", "call", "x", "--grant", "read=.\n\nhint: y"],
                "invalid value",
            ),
            (
                ["toolcell", "call", "x", "--limit", "fuel=1\n\nhint: y"],
                "invalid value",
            ),
            (
                ["toolcell", "tool", "--x\n\nhint: y", "a", "b"],
                "unexpected argument",
            ),
            (
                ["toolcell", "cal\n\nhint: y", "x", "a", "b"],
                "unrecognized subcommand",
            ),
        ] {
            let shown = failure(&arguments);
            assert!(shown.contains(&format!("\"what\": \"{what} ")), "{shown}");
            assert!(shown.contains("␊") && !shown.contains("\"hint: y"), "{shown}");
            assert!(!shown.contains("error:"), "{shown}");
        }
    }
}
