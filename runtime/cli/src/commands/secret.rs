//! `toolcell secret`: values in the system keyring.

use std::io::{self, Read as _};

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use toolcell_core::Secrets;
use toolcell_core::secret::SecretValue;

use crate::components::keyring::{self, Keyring};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::escape;
use crate::ui::render::Console;
use crate::ui::terminal::text;

/// Store and delete values in the system keyring.
#[derive(Debug, Subcommand)]
pub(crate) enum Secret {
    Set(Set),
    Delete(Delete),
}

/// Store a value in the keyring, replacing the previous one.
///
/// The value is read without echo, or from standard input. It is never an argument, which other programs and the shell
/// history could expose. Surrounding white space is removed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell secret set github
  pass show github | toolcell secret set github

In your own configuration, `[secrets.NAME] keyring = \"github\"` makes it a secret for tools, and \
`[provider] api_key_keyring = \"openai\"` reads the key of a provider from it.

Exit codes:
    0   stored
    2   the value is not valid as a secret, or was given as an argument
    3   the keyring cannot be used
  130   cancelled")]
pub(crate) struct Set {
    /// Name of the entry, as used in the configuration.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    account: String,

    /// Accepted only to be refused without being printed.
    #[arg(hide = true)]
    rest: Vec<String>,
}

/// Delete a value from the keyring.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell secret delete github

Exit codes:
    0   deleted
    2   there is no such entry
    3   the keyring cannot be used")]
pub(crate) struct Delete {
    /// Name of the entry.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    account: String,
}

impl Secret {
    pub(crate) fn run(self, environment: &Environment, console: &Console) -> Result<Exit, Failure> {
        let keyring = Keyring::of_system();
        match self {
            Self::Set(Set { account, rest }) => {
                if !rest.is_empty() {
                    return Err(Failure::new(
                        Exit::Usage,
                        text!("the value of `{}` cannot be an argument", account),
                    )
                    .why("arguments are visible to other programs and in the shell history")
                    .hint(text!(
                        "enter it at the prompt of `toolcell secret set {}`, or pipe it to standard input",
                        escape::shell(&account)
                    )));
                }
                let value = checked(&account, &read(&account, environment)?)?;
                keyring.set(&account, value)?;
                console.note(text!("`{}` is stored in the keyring", account));
            }
            Self::Delete(Delete { account }) => {
                if !keyring.delete(&account)? {
                    return Err(keyring::no_entry(Exit::Usage, &account));
                }
                console.note(text!("`{}` is deleted from the keyring", account));
            }
        }
        Ok(Exit::Ok)
    }
}

/// Trims the value and checks that it is valid as a secret.
fn checked(account: &str, value: &str) -> Result<String, Failure> {
    let value = value.trim();
    Secrets::default().insert(account, value).map_err(|e| {
        Failure::new(Exit::Usage, text!("the value of `{}` is not valid", account)).because(e)
    })?;
    Ok(value.to_owned())
}

/// Reads the value from the terminal or from standard input.
fn read(account: &str, environment: &Environment) -> Result<String, Failure> {
    let fail = |e: io::Error| {
        Failure::new(Exit::Usage, text!("could not read the value of `{}`", account)).because(e)
    };
    if environment.terminals.stdin {
        return match hidden::line(&format!("Value of `{account}` (not shown): ")) {
            Ok(Some(line)) => Ok(line),
            Ok(None) => Err(Failure::new(Exit::Cancelled, "cancelled")),
            Err(e) => Err(fail(e)),
        };
    }
    // Surrounding white space is not part of a value; a much longer input is not a value.
    let most = 2 * SecretValue::MAX_LEN as u64;
    let mut text = String::new();
    io::stdin()
        .lock()
        .take(most)
        .read_to_string(&mut text)
        .map_err(fail)?;
    Ok(text)
}

/// Reads a line from a terminal without echo.
mod hidden {
    use std::io::{self, Read as _, Write as _};

    use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

    /// Previous terminal settings, restored on drop.
    struct Restore(Termios);

    impl Drop for Restore {
        fn drop(&mut self) {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
            let _ = writeln!(io::stderr());
        }
    }

    /// Prompts for a line; returns `None` if the user cancels. Signal keys are read as characters, so that Ctrl-C
    /// cannot end the process before the terminal is restored.
    pub(super) fn line(prompt: &str) -> io::Result<Option<String>> {
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        silent.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        let _restore = Restore(before);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        write!(io::stderr(), "{}", crate::ui::terminal::inert_line(prompt))?;
        io::stderr().flush()?;
        let mut line = Vec::new();
        for byte in io::stdin().lock().bytes() {
            match byte? {
                b'\n' | b'\r' | 0x04 => break,
                0x03 => return Ok(None),
                0x08 | 0x7f => erase(&mut line),
                byte => line.push(byte),
            }
        }
        String::from_utf8(line).map(Some).map_err(|_| {
            // The error of the standard library contains the bytes.
            io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8")
        })
    }

    /// Removes the last character.
    fn erase(line: &mut Vec<u8>) {
        while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn erase_key_removes_whole_character() {
            let mut line = "aé€".as_bytes().to_vec();
            super::erase(&mut line);
            assert_eq!(line, "aé".as_bytes());
            super::erase(&mut line);
            assert_eq!(line, b"a");
            super::erase(&mut line);
            super::erase(&mut line);
            assert_eq!(line, b"");
        }
    }
}
