//! `toolcell secret`: values in the keyring of this system.

use std::io::{self, Read as _};

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use toolcell_core::Secrets;
use toolcell_core::secret::SecretValue;

use crate::components::keyring::{self, Keyring};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::render::Console;
use crate::ui::terminal::text;

/// Store and delete values in the keyring of this system.
#[derive(Debug, Subcommand)]
pub(crate) enum Secret {
    Set(Set),
    Delete(Delete),
}

/// Store a value in the keyring, in the place of the one that was there.
///
/// The value is asked for without showing it, or read from standard input; it is never an argument, which other programs
/// and the history of the shell could see. White space around it is cut off.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell secret set github
  pass show github | toolcell secret set github

In your own configuration, `[secrets.NAME] keyring = \"github\"` makes it a secret for tools, and \
`[provider] api_key_keyring = \"openai\"` takes the key of a provider from there.

Exit codes:
    0   it is stored
    2   the value cannot be a secret, or was given as an argument
    3   there is no keyring that can be used
  130   cancelled")]
pub(crate) struct Set {
    /// Name of the entry, as the configuration uses it.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    account: String,

    /// Taken only to refuse it without showing it.
    #[arg(hide = true)]
    rest: Vec<String>,
}

/// Delete a value from the keyring.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell secret delete github

Exit codes:
    0   it is deleted
    2   there is no such entry
    3   there is no keyring that can be used")]
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
                    .why("other programs and the history of the shell can see arguments")
                    .hint(text!(
                        "type it where `toolcell secret set {}` asks, or give it on standard input",
                        account
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

/// The value without white space around it, when it can be a secret.
fn checked(account: &str, value: &str) -> Result<String, Failure> {
    let value = value.trim();
    Secrets::default().insert(account, value).map_err(|e| {
        Failure::new(Exit::Usage, text!("the value of `{}` cannot be stored", account)).because(e)
    })?;
    Ok(value.to_owned())
}

/// The value, from a person who is asked, or from standard input.
fn read(account: &str, environment: &Environment) -> Result<String, Failure> {
    let fail = |e: io::Error| {
        Failure::new(Exit::Usage, text!("the value of `{}` cannot be read", account)).because(e)
    };
    #[cfg(unix)]
    if environment.terminals.stdin {
        return match hidden::line(&format!("Value of `{account}` (not shown): ")) {
            Ok(Some(line)) => Ok(line),
            Ok(None) => Err(Failure::new(Exit::Cancelled, "cancelled")),
            Err(e) => Err(fail(e)),
        };
    }
    // White space around a value is not part of it; a file that is much longer is no value.
    let most = 2 * SecretValue::MAX_LEN as u64;
    let mut text = String::new();
    io::stdin()
        .lock()
        .take(most)
        .read_to_string(&mut text)
        .map_err(fail)?;
    Ok(text)
}

/// A line from a terminal that does not show it.
#[cfg(unix)]
mod hidden {
    use std::io::{self, Read as _, Write as _};

    use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

    /// The terminal as it was, restored at the end, however that comes.
    struct Restore(Termios);

    impl Drop for Restore {
        fn drop(&mut self) {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
            let _ = writeln!(io::stderr());
        }
    }

    /// Asks for a line; `None` when the person cancels. Signals from the keyboard are read as keys, so that Ctrl-C cannot
    /// end the process before the terminal is as it was.
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
            // The error of the standard library carries the bytes.
            io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8")
        })
    }

    /// Takes the last character away.
    fn erase(line: &mut Vec<u8>) {
        while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn the_key_for_erasing_takes_a_whole_character() {
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
