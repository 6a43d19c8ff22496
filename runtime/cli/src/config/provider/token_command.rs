//! `[provider] token_command`, and the files that it may start or read.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::environment::Environment;

/// Characters between the parts of a word: blanks and operators of a shell, and those of options such as `--file=x`,
/// `-d@x` and `a:b`.
const SEPARATORS: &[char] = &[
    '=', ';', '&', '|', '(', ')', '<', '>', '{', '}', '$', ',', ':', '@',
];

/// Quotes of a shell.
const QUOTES: &[char] = &['\'', '"', '`'];

/// A program that prints an access token, with its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(crate) struct TokenCommand(pub(crate) Vec<String>);

impl TokenCommand {
    /// Returns the files that the command may start or read, existing or not: its program, and each word and part of a
    /// word that can be a path. A shell can build further paths, which are unknown here.
    pub(crate) fn files(&self, environment: &Environment) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let program = self.0.first().map(Path::new);
        files.extend(program.and_then(|program| environment.program_file(program)));
        for word in &self.0 {
            let mut word = word.clone();
            for (variable, path) in [("PWD", "."), ("HOME", "~")] {
                word = word.replace(&format!("${{{variable}}}"), path);
                word = word.replace(&format!("${variable}"), path);
            }
            // A shell joins what it finds quoted and unquoted, and quotes can hold blanks.
            let joined = word.replace(QUOTES, "");
            let all = std::iter::once(word.as_str())
                .chain(word.split(QUOTES))
                .chain(word.split_once('=').map(|(_, value)| value))
                .chain(split(&word))
                .chain(split(&joined));
            files.extend(all.filter_map(|part| file(part, environment)));
        }
        files.sort_unstable();
        files.dedup();
        files
    }
}

fn split(word: &str) -> impl Iterator<Item = &str> {
    word.split(|c: char| c.is_whitespace() || SEPARATORS.contains(&c) || QUOTES.contains(&c))
}

/// Returns the path that a part of a word may be: it has a slash, it is the name of a file, or it looks like one. The
/// working directory and those above it are left out, because denying them would deny everything.
fn file(part: &str, environment: &Environment) -> Option<PathBuf> {
    // The value of a short option, such as `-f./x`.
    let part = match part.strip_prefix('-') {
        Some(option) => option.trim_start_matches(|c: char| c.is_alphabetic()),
        None => part,
    };
    if part.is_empty() || part.contains('\0') {
        return None;
    }
    let path = environment.path(part, &environment.cwd);
    let is_path = part.contains('/') || path.is_file() || path.is_symlink();
    let is_new = part.contains('.') && !path.is_dir();
    let is_above = || {
        path.canonicalize()
            .is_ok_and(|real| environment.cwd.starts_with(real))
    };
    ((is_path || is_new) && !is_above()).then_some(path)
}

/// Words separated by spaces; quoting is not supported.
impl FromStr for TokenCommand {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.split_whitespace().map(str::to_owned).collect()))
    }
}

impl fmt::Display for TokenCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_words_of_token_command_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path().canonicalize().unwrap();
        std::fs::create_dir(cwd.join("auth")).unwrap();
        std::fs::create_dir(cwd.join("bin")).unwrap();
        for name in ["script", "bin/tok"] {
            std::fs::write(cwd.join(name), "").unwrap();
        }
        let environment = Environment::for_tests(&cwd, &[("PATH", "bin")]);
        for (words, expected) in [
            (&["./tok.sh"][..], &["tok.sh"][..]),
            (&["sh", "-c", "./tok.sh --audience x"], &["tok.sh"]),
            (&["sh", "-c", "exec ./a|lib/b&&(c.sh)"], &["a", "c.sh", "lib/b"]),
            (&["sh", "--rcfile=./tok.sh"], &["tok.sh"]),
            (&["sh", "-f./tok.sh", "-d@x.json"], &["tok.sh", "x.json"]),
            (&["sh", "-c", "\"$PWD\"/tok.sh ${PWD}/b"], &["b", "tok.sh"]),
            (&["sh", "my tok.sh"], &["my tok.sh", "tok.sh"]),
            (&["sh", "tok.sh", "script"], &["script", "tok.sh"]),
            (&["tok"], &["bin/tok"]),
            // Words that are no paths, and directories that hold everything.
            (&["gcloud", "auth", "print-access-token", "-v"], &[]),
            (&["sh", "-C.", ".", "..", "./", "/"], &[]),
            (&["", "-", "="], &[]),
        ] {
            let command = TokenCommand(words.iter().map(|word| (*word).to_owned()).collect());
            let files = command.files(&environment);
            let below = |file: &PathBuf| {
                let below = file.strip_prefix(&cwd).ok()?;
                Some(
                    below
                        .components()
                        .filter(|part| part.as_os_str() != ".")
                        .collect::<PathBuf>(),
                )
            };
            let mut found: Vec<PathBuf> = files.iter().filter_map(below).collect();
            found.sort_unstable();
            found.dedup();
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert!(
                expected.iter().all(|file| found.contains(file)),
                "{words:?}: {found:?}"
            );
            // Whole words with blanks are candidates as well, and deny nothing that exists.
            let more = found.iter().filter(|file| !expected.contains(file));
            for file in more {
                assert!(
                    file.to_string_lossy().contains([' ', '=', '-', '"', '@']),
                    "{words:?}: {file:?}"
                );
            }
        }
    }
}
