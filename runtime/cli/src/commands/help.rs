//! `toolcell help`: topics that concern several commands, and the help of each command.

use std::fmt::Write as _;
use std::io::Write as _;

use clap::{Args, Command};
use serde_json::Value;
use toolcell_core::Limits;
use toolcell_core::suggest::nearest;

use crate::config::file::schema;
use crate::config::{layers, limits};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::exit;
use crate::ui::terminal::{Size, text};

/// Explain a topic or a command.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell help grants
  toolcell help session resume

Topics:
  grants      every form of a grant and a denial
  limits      limits of a call and their defaults
  config      files, keys and variables of the configuration
  exit-codes  exit codes of every command")]
pub(crate) struct Help {
    /// A topic, or a command with its subcommands.
    #[arg(value_name = "TOPIC|COMMAND")]
    words: Vec<String>,
}

/// A topic.
struct Topic {
    name: &'static str,
    text: fn() -> String,
}

const TOPICS: [Topic; 4] = [
    Topic {
        name: "grants",
        text: grants,
    },
    Topic {
        name: "limits",
        text: limits_of_call,
    },
    Topic {
        name: "config",
        text: configuration,
    },
    Topic {
        name: "exit-codes",
        text: exit_codes,
    },
];

/// Returns the names of the topics.
pub(super) fn topics() -> impl Iterator<Item = &'static str> {
    TOPICS.iter().map(|topic| topic.name)
}

/// Forms of grants and denials with their meaning.
const GRANTS: [(&str, &str); 17] = [
    ("read=PATH", "list the directory and read the files below it"),
    ("write=PATH", "read, change, create and delete below it"),
    (
        "read+create=PATH",
        "any combination of read, modify, create, delete",
    ),
    (
        "read=PATH:/GUEST",
        "the same, seen by the tool at another absolute path",
    ),
    ("env=NAME", "the environment variable of that name"),
    ("env=NAME=VALUE", "a variable with this value"),
    ("http=example.com", "GET and HEAD over https on port 443"),
    (
        "http=GET,POST https://*.example.com:8443/api",
        "these methods, names below example.com, this port and path",
    ),
    (
        "http=http://127.0.0.1:8080",
        "a private address, because the grant names it",
    ),
    (
        "http-private=https://intranet.example",
        "a name that may resolve to a private address",
    ),
    ("http=*", "every public host"),
    ("keyvalue=NAME", "read and change the bucket of that name"),
    ("keyvalue-read=NAME", "read the bucket"),
    ("keyvalue=NAME:GUEST", "the same, under another name"),
    ("deny=PATH", "deny the file, or the directory and all below it"),
    ("deny-http=*.example.com", "deny matching requests"),
    ("deny-keyvalue=NAME", "deny the bucket"),
];

fn grants() -> String {
    let mut shown = String::from(
        "A tool has no access without a grant. Denials override every grant.\n\n\
         Grants are given with --grant, for every component, or for one as in\n\
         --grant files:read=. They are lines of `grants` in `[tools.NAME]`.\n\n",
    );
    for (line, meaning) in GRANTS {
        let _ = writeln!(shown, "  {line:44}  {meaning}");
    }
    shown.push_str("\n`toolcell policy explain` shows what tools can do with their grants.\n");
    shown
}

fn limits_of_call() -> String {
    let mut shown = String::from(
        "Limits of one call. Set them with --limit NAME=VALUE, for one component as in\n\
         --limit files:wall=60s, or in `[tools.NAME.limits]`.\n\n",
    );
    let schema = schema::json_schema();
    for name in limits::NAMES {
        let default = limits::shown(name, limits::get(&Limits::default(), name));
        let described = &schema["$defs"]["LimitsTable"]["properties"][name];
        let _ = writeln!(shown, "  {name:15}  {default:8}  {}", first_sentence(described));
    }
    shown.push_str("\nBudgets of a session are set with --budget, or in `[budget]`.\n");
    shown
}

fn configuration() -> String {
    let mut shown = String::from(
        "Your own configuration is read first, then the project's `toolcell.toml`, which\n\
         can only narrow, then the environment; flags win. `toolcell config show` lists\n\
         every setting with its origin.\n\nTables and keys:\n\n",
    );
    let schema = schema::json_schema();
    let keys = schema["properties"].as_object().into_iter().flatten();
    for (key, described) in keys {
        let _ = writeln!(shown, "  {key:10}  {}", first_sentence(described));
    }
    shown.push_str("\nVariables:\n\n");
    for (name, what) in layers::variables() {
        let _ = writeln!(shown, "  {name:21}  {what}");
    }
    shown
}

fn exit_codes() -> String {
    format!("{}\n", exit::TABLE)
}

/// Returns the first sentence of a description in the schema, on one line and without the default in parentheses.
fn first_sentence(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let sentence = text.split(". ").next().unwrap_or_default().trim_end_matches('.');
    sentence.split(" (default").next().unwrap_or_default().to_owned()
}

impl Help {
    /// Prints the help of a topic, of a command of `cli`, or of `cli` itself.
    pub(crate) fn run(self, mut cli: Command, environment: &Environment) -> Result<Exit, Failure> {
        let topic = match self.words.as_slice() {
            [word] => TOPICS.iter().find(|topic| topic.name == word),
            _ => None,
        };
        let shown = match topic {
            Some(topic) => match Size::of_output(environment).now() {
                Some((columns, _)) => wrapped(&(topic.text)(), columns),
                None => (topic.text)(),
            },
            None => of_command(&mut cli, &self.words)?,
        };
        let mut out = std::io::stdout();
        out.write_all(shown.as_bytes())?;
        out.flush()?;
        Ok(Exit::Ok)
    }
}

/// Wraps lines at words. The second part of a row, after two blanks, keeps its column if there is room, and else stands on
/// lines of its own.
fn wrapped(text: &str, columns: usize) -> String {
    let mut shown = String::new();
    for line in text.lines() {
        if line.chars().count() <= columns {
            let _ = writeln!(shown, "{line}");
            continue;
        }
        let lead = line.len() - line.trim_start().len();
        let second = line[lead..].rfind("  ").map_or(lead, |at| lead + at + 2);
        let has_room = second + MIN_COLUMN <= columns;
        let (first, rest) = line.split_at(second);
        let hang = if has_room { second } else { lead + 4 };
        let mut column = first.chars().count();
        shown.push_str(if has_room { first } else { first.trim_end() });
        if !has_room && !first.trim().is_empty() {
            let _ = write!(shown, "\n{:hang$}", "");
            column = hang;
        } else if !has_room {
            let _ = write!(shown, "{:lead$}", "");
        }
        for (i, word) in rest.split_whitespace().enumerate() {
            let width = word.chars().count();
            if i > 0 && column + 1 + width > columns {
                let _ = write!(shown, "\n{:hang$}", "");
                column = hang;
            } else if i > 0 {
                shown.push(' ');
                column += 1;
            }
            shown.push_str(word);
            column += width;
        }
        shown.push('\n');
    }
    shown
}

/// Minimum width of the second part of a row beside the first one, in columns.
const MIN_COLUMN: usize = 24;

fn of_command(cli: &mut Command, words: &[String]) -> Result<String, Failure> {
    if let [topic, more, ..] = words
        && topics().any(|name| name == topic)
    {
        let failure = Failure::new(
            Exit::Usage,
            text!("there is no help for `{}` in the topic `{}`", more, topic),
        );
        return Err(failure.hint(text!("to read the topic: toolcell help {}", topic)));
    }
    cli.build();
    let mut command = cli;
    for word in words {
        let names: Vec<String> = command
            .get_subcommands()
            .map(|command| command.get_name().to_owned())
            .collect();
        let Some(found) = command.find_subcommand_mut(word) else {
            let topics = TOPICS.iter().map(|topic| topic.name);
            let known: Vec<&str> = names.iter().map(String::as_str).chain(topics).collect();
            let failure = Failure::new(Exit::Usage, text!("there is no help for `{}`", word));
            return Err(match nearest(word, &known).first() {
                Some(near) => failure.hint(text!("did you mean `{}`?", near)),
                None => failure.hint("`toolcell help help` lists the topics, `toolcell --help` the commands"),
            });
        };
        command = found;
    }
    Ok(command.render_long_help().to_string())
}

#[cfg(test)]
mod tests {
    use toolcell_core::Grant;

    use super::*;

    #[test]
    fn every_form_of_a_grant_in_the_help_is_valid() {
        for (line, _) in GRANTS {
            assert!(line.parse::<Grant>().is_ok(), "{line}");
        }
    }

    #[test]
    fn word_after_a_topic_is_what_is_wrong() {
        let words = ["grants".to_owned(), "x".to_owned()];
        let failure = of_command(&mut Command::new("toolcell"), &words).unwrap_err();
        assert_eq!(
            failure.to_string(),
            "there is no help for `x` in the topic `grants`"
        );
    }

    #[test]
    fn topics_break_between_words_at_any_width() {
        for topic in TOPICS {
            let whole = (topic.text)();
            for columns in [60, 80, 200] {
                let shown = wrapped(&whole, columns);
                let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
                assert_eq!(words(&shown), words(&whole), "{} {columns}", topic.name);
                for line in shown.lines() {
                    let is_one_word = line.split_whitespace().count() == 1;
                    assert!(
                        line.chars().count() <= columns || is_one_word,
                        "{columns}: {line}"
                    );
                }
            }
        }
    }

    #[test]
    fn limits_and_keys_in_the_help_are_described() {
        for (topic, count) in [(limits_of_call(), limits::NAMES.len()), (configuration(), 18)] {
            let rows = topic.lines().filter(|line| line.starts_with("  "));
            let rows: Vec<&str> = rows.collect();
            assert!(rows.len() >= count, "{topic}");
            for row in rows {
                assert!(row.split_whitespace().count() >= 2, "{row}");
            }
        }
        assert!(limits_of_call().contains("wall             30 s      Wall time, including waiting\n"));
    }
}
