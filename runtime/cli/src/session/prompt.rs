//! Message of the user: a text, standard input, and attached files.
//!
//! Pictures and PDF files are recognised by their first bytes, everything else is UTF-8 text. A file is attached with
//! `--attach`, or by `@NAME` in the text, which is limited to the working directory: a script that passes the text of others
//! as a prompt must not send any file of the machine to a model.

use std::io;
use std::path::{Component, Path, PathBuf};

use clap::Args;
use toolcell_core::denial::DeniedUse;
use toolcell_core::{Blob, Content, Grant, Message};
use toolcell_fs::Rules;

use crate::config::own_directories::denials_of_all;
use crate::config::units::Bytes;
use crate::config::user_files::because;
use crate::config::{self, Overrides};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::session::standard_input::{all_of_input, piped, read_at_most};
use crate::ui::render::Console;
use crate::ui::terminal::{Own, Text, text};

/// Maximum size of a text, in bytes: a prompt, standard input, a file. About a million tokens, more than models accept.
const MAX_TEXT: u64 = 4 << 20;

/// Maximum size of a picture or PDF file, in bytes. Providers accept 5 to 50 MB.
pub(super) const MAX_BINARY: u64 = 20 << 20;

/// Maximum number of attachments of a message. They count together as one of [`MAX_BINARY`] bytes.
const MAX_ATTACHMENTS: usize = 32;

/// Name of standard input as an attachment.
const STANDARD_INPUT: &str = "standard input";

/// Files to attach to the message.
#[derive(Debug, Default, Args)]
pub(crate) struct Attach {
    /// Attach a text, a picture (PNG, JPEG, GIF, WebP) or a PDF file (repeatable); `-` is standard input. In the text,
    /// `@NAME` attaches a file of the working directory.
    #[arg(long = "attach", value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Message under construction.
pub(crate) struct Draft {
    pub(super) content: Vec<Content>,
    bytes: u64,
    /// Real paths of the attached files: each is attached once.
    attached: Vec<PathBuf>,
    /// Resources of MCP servers that the text names, by server and URI.
    pub(super) resources: Vec<(String, String)>,
    /// True if the user typed the text, so that nobody else wrote the names in it.
    pub(super) is_typed: bool,
}

impl Attach {
    /// Builds the message of a command: its text, or standard input for `-`; otherwise with what is piped to it.
    ///
    /// # Errors
    /// Returns an error if the text is empty, or if something attached cannot be sent.
    pub(crate) fn message(
        &self,
        prompt: &str,
        overrides: &Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Draft, Failure> {
        self.check_input(prompt)?;
        let mut draft = Draft::new(false);
        if prompt == "-" {
            let fail = || Failure::new(Exit::Usage, "could not read the prompt from standard input");
            let bytes = read_at_most(io::stdin(), MAX_TEXT).map_err(|e| fail().because(e))?;
            let bytes = bytes.ok_or_else(|| fail().why(text!("it has more than {} MiB", MAX_TEXT >> 20)))?;
            let prompt = String::from_utf8(bytes).map_err(|e| fail().because(e))?;
            draft.prompt(prompt)?;
        } else {
            draft.prompt(prompt.to_owned())?;
            let mut attachable = Attachable::Unread(overrides);
            draft.named_in(prompt, &mut attachable, environment, console)?;
            let is_named = self.files.iter().any(|file| file.as_os_str() == "-");
            if !is_named && let Some(bytes) = piped(console)? {
                draft.attach(STANDARD_INPUT, bytes, console)?;
            }
        }
        self.add_to(&mut draft, environment, console)?;
        Ok(draft)
    }

    /// Checks that standard input is used once: nothing is left of it afterwards.
    fn check_input(&self, prompt: &str) -> Result<(), Failure> {
        let attached = self.files.iter().filter(|file| file.as_os_str() == "-").count();
        let why = match attached + usize::from(prompt == "-") {
            0 | 1 => return Ok(()),
            _ if prompt == "-" => "it is the prompt, and is to be attached as well",
            _ => "it is to be attached more than once",
        };
        Err(Failure::new(Exit::Usage, "standard input can be sent only once")
            .why(why)
            .hint("give the prompt as an argument, or attach a file"))
    }

    fn add_to(&self, draft: &mut Draft, environment: &Environment, console: &Console) -> Result<(), Failure> {
        for file in &self.files {
            if file.as_os_str() == "-" {
                draft.attach(STANDARD_INPUT, all_of_input()?, console)?;
                continue;
            }
            draft.file(&environment.cwd.join(file), &environment.shown(file), console)?;
        }
        Ok(())
    }
}

/// Builds the message of a line that the user typed, with further files.
///
/// # Errors
/// Returns an error if a file that it names cannot be sent. Of the further files, one that cannot be sent is removed.
pub(crate) fn of_line(
    line: &str,
    files: &mut Vec<PathBuf>,
    environment: &Environment,
    console: &Console,
) -> Result<Draft, Failure> {
    let mut draft = Draft::new(true);
    draft.prompt(line.to_owned())?;
    draft.named_in(line, &mut Attachable::Any, environment, console)?;
    draft.files(files, environment, console)?;
    Ok(draft)
}

/// Builds a message of the parts of a prompt, with further files.
///
/// # Errors
/// Returns an error if a file cannot be sent, and removes it.
pub(crate) fn of_content(
    content: Vec<Content>,
    files: &mut Vec<PathBuf>,
    environment: &Environment,
    console: &Console,
) -> Result<Draft, Failure> {
    let mut draft = Draft::new(true);
    for part in content {
        match part {
            Content::Text { .. } => draft.content.push(part),
            Content::Blob(blob) => draft.attach("prompt", blob.data, console)?,
            Content::Link(link) => draft
                .content
                .push(Content::text(format!("[a link to {}]", link.uri))),
        }
    }
    draft.files(files, environment, console)?;
    Ok(draft)
}

impl Draft {
    fn new(is_typed: bool) -> Self {
        Self {
            content: Vec::new(),
            bytes: 0,
            attached: Vec::new(),
            resources: Vec::new(),
            is_typed,
        }
    }

    fn files(
        &mut self,
        files: &mut Vec<PathBuf>,
        environment: &Environment,
        console: &Console,
    ) -> Result<(), Failure> {
        for i in 0..files.len() {
            let shown = environment.shown(&files[i]);
            if let Err(failure) = self.file(&files[i], &shown, console) {
                files.remove(i);
                return Err(failure.hint("the file is no longer attached; send the message again without it"));
            }
        }
        Ok(())
    }

    fn prompt(&mut self, prompt: String) -> Result<(), Failure> {
        if prompt.trim().is_empty() {
            return Err(
                Failure::new(Exit::Usage, "the prompt is empty").hint("give a task: toolcell run \"…\"")
            );
        }
        self.content.push(Content::text(prompt));
        Ok(())
    }

    /// Attaches the files that a text names as `@NAME`. A name without a file stays text, such as `@ada`.
    fn named_in(
        &mut self,
        text: &str,
        attachable: &mut Attachable<'_>,
        environment: &Environment,
        console: &Console,
    ) -> Result<(), Failure> {
        for written in names(text) {
            let is_file = |name: &&str| environment.cwd.join(name).is_file();
            let Some(name) = written.iter().copied().find(is_file) else {
                if let Some(resource) = written.last().and_then(|name| resource(name)) {
                    self.resources.push(resource);
                } else if let Some(name) = written.last() {
                    let path = environment.cwd.join(name);
                    let why = if path.is_dir() {
                        "it is a directory"
                    } else {
                        "there is no such file"
                    };
                    console.note(text!("`@{}` is sent as text, because {}", *name, Own(why)));
                }
                continue;
            };
            let path = environment.cwd.join(name);
            let real = path.canonicalize().unwrap_or_default();
            let why = match real.strip_prefix(&environment.cwd) {
                Err(_) => Some("the file lies outside of the working directory"),
                Ok(below) => attachable.refuses(&real, below, environment)?,
            };
            if let Some(why) = why {
                console.note(text!(
                    "`@{}` is not attached, because {}; --attach attaches any file",
                    name,
                    Own(why)
                ));
                continue;
            }
            self.file(&path, name, console)?;
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, name: &str, console: &Console) -> Result<(), Failure> {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if self.attached.contains(&real) {
            return Ok(());
        }
        self.attach(name, read(path, name)?, console)?;
        self.attached.push(real);
        Ok(())
    }

    /// Attaches bytes, and tells the user what is sent.
    pub(super) fn attach(&mut self, name: &str, bytes: Vec<u8>, console: &Console) -> Result<(), Failure> {
        let fail = || not_attached(name);
        let size = bytes.len() as u64;
        self.bytes += size;
        if self.content.len() > MAX_ATTACHMENTS {
            return Err(fail().why(text!("a message has at most {} attachments", MAX_ATTACHMENTS)));
        }
        if self.bytes > MAX_BINARY {
            return Err(fail().why(text!(
                "the attachments of a message have at most {} MiB together",
                MAX_BINARY >> 20
            )));
        }
        let shown = Bytes(size);
        let (kind, content) = attachment(name, bytes).map_err(|why| fail().why(why))?;
        console.note(text!("attached `{}`, {}, {}", name, Own(kind), shown));
        self.content.extend(content);
        Ok(())
    }

    pub(crate) fn message(self) -> Message {
        Message::User {
            content: self.content,
        }
    }
}

/// Checks that a file can be attached.
///
/// # Errors
/// Returns an error if it cannot be read, or is of a kind or size that cannot be sent.
pub(crate) fn check_file(path: &Path, name: &str) -> Result<(), Failure> {
    let checked = attachment(name, read(path, name)?);
    checked.map(drop).map_err(|why| not_attached(name).why(why))
}

fn read(path: &Path, name: &str) -> Result<Vec<u8>, Failure> {
    toolcell_fs::read(path, &Rules::named(MAX_BINARY)).map_err(|error| because(not_attached(name), error))
}

fn not_attached(name: &str) -> Failure {
    Failure::new(Exit::Usage, text!("could not attach `{}`", name))
}

/// Returns the parts of a message for a file, with its media type.
///
/// # Errors
/// The reason for which a file of this kind or size cannot be sent.
pub(crate) fn attachment(name: &str, bytes: Vec<u8>) -> Result<(&'static str, Vec<Content>), Text> {
    let size = bytes.len() as u64;
    match media_type(&bytes) {
        Some(media_type) => {
            let title = Content::text(format!("Attached file {}:", quoted(name)));
            let blob = Content::Blob(Blob {
                media_type: media_type.to_owned(),
                data: bytes,
            });
            Ok((media_type, vec![title, blob]))
        }
        None if size > MAX_TEXT => Err(text!("it has more than {} MiB of text", MAX_TEXT >> 20)),
        None => {
            let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
            let text = text.ok_or_else(|| {
                Text::from("it is neither UTF-8 text, nor a PNG, JPEG, GIF or WebP picture, nor a PDF file")
            })?;
            let content = format!("Attached file {}, {size} bytes of text:\n\n{text}", quoted(name));
            Ok(("text", vec![Content::text(content)]))
        }
    }
}

/// Files that `@NAME` attaches. In the text of a command, which a script may have from others, neither hidden nor denied
/// ones.
enum Attachable<'a> {
    /// All those in the working directory: the user typed the name.
    Any,
    /// The denials are not read yet.
    Unread(&'a Overrides),
    /// All but those in these places.
    Except(Vec<PathBuf>),
}

impl Attachable<'_> {
    /// Returns the reason for which a file is not attached.
    fn refuses(
        &mut self,
        real: &Path,
        below: &Path,
        environment: &Environment,
    ) -> Result<Option<&'static str>, Failure> {
        if let Self::Unread(overrides) = self {
            let settings = config::load(environment, overrides.clone())?;
            let denied = denials_of_all(&settings, true, environment)?.paths.into_iter();
            let denied = denied.filter(|denial| denial.uses == DeniedUse::All);
            let flags = overrides.grants.iter().filter_map(|flag| match &flag.grant {
                Grant::Deny { host } => Some(environment.path(host, &environment.cwd)),
                _ => None,
            });
            let denied = denied.map(|denial| denial.host).chain(flags);
            let places = denied.flat_map(|host| host.canonicalize().into_iter().chain([host]));
            *self = Self::Except(places.collect());
        }
        let Self::Except(places) = self else {
            return Ok(None);
        };
        let is_hidden = |part: Component<'_>| part.as_os_str().as_encoded_bytes().starts_with(b".");
        Ok(if below.components().any(is_hidden) {
            Some("the file is hidden, or in a hidden directory")
        } else if places.iter().any(|place| real.starts_with(place)) {
            Some("no tool may read the file")
        } else {
            None
        })
    }
}

/// The server and the URI of a resource, if a name is `SERVER:URI`.
fn resource(name: &str) -> Option<(String, String)> {
    let (server, uri) = name.split_once(':')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let is_one = !server.is_empty() && server.chars().all(is_name) && !uri.is_empty();
    is_one.then(|| (server.to_owned(), uri.to_owned()))
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.escape_debug())
}

/// Returns the names after `@` at the start of words: up to the next blank, or between quotation marks. Each is as written,
/// and without the end of a sentence if it has one.
fn names(text: &str) -> Vec<Vec<&str>> {
    let mut found = Vec::new();
    let mut rest = text;
    let mut is_start = true;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        if c == '@' && is_start {
            let (name, next) = match after.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
                None => {
                    let end = after.find(char::is_whitespace).unwrap_or(after.len());
                    after.split_at(end)
                }
            };
            // A sentence may end with a name.
            let plain = name.trim_end_matches(['.', ',', ';', ':', '?', '!', ')']);
            let forms = [name, plain].into_iter().filter(|name| !name.is_empty());
            let forms: Vec<&str> = forms.take(1 + usize::from(plain != name)).collect();
            if !forms.is_empty() {
                found.push(forms);
            }
            rest = next;
            continue;
        }
        is_start = c.is_whitespace() || c == '(';
        rest = after;
    }
    found.dedup();
    found
}

/// Returns the media type of a picture or PDF file by its first bytes (RFC 2083, ISO 10918-1, GIF89a, RFC 9649, RFC 8118).
fn media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        [b'%', b'P', b'D', b'F', b'-', ..] => Some("application/pdf"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_command_attaches_neither_hidden_nor_denied_files() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        for name in ["private", ".ssh", "notes", "secrets"] {
            std::fs::create_dir(dir.join(name)).unwrap();
        }
        for name in [
            "private/key",
            ".ssh/id",
            ".env",
            "notes/a.md",
            "secrets/b",
            "config.toml",
        ] {
            std::fs::write(dir.join(name), "text").unwrap();
        }
        std::os::unix::fs::symlink("private/key", dir.join("link")).unwrap();
        std::fs::write(dir.join("config.toml"), "deny = [\"private\"]\n").unwrap();
        let environment = Environment::for_tests(&dir, &[]);
        let overrides = Overrides {
            config: Some(dir.join("config.toml")),
            grants: vec!["deny=secrets".parse().unwrap()],
            ..Overrides::default()
        };
        let mut attachable = Attachable::Unread(&overrides);
        for (name, is_attached) in [
            ("private/key", false),
            ("link", false),
            (".ssh/id", false),
            ("secrets/b", false),
            (".env", false),
            ("config.toml", false),
            ("notes/a.md", true),
        ] {
            let real = dir.join(name).canonicalize().unwrap();
            let below = real.strip_prefix(&dir).unwrap();
            let refuses = attachable.refuses(&real, below, &environment).unwrap();
            assert_eq!(refuses.is_none(), is_attached, "{name}: {refuses:?}");
            let typed = Attachable::Any.refuses(&real, below, &environment).unwrap();
            assert_eq!(typed, None);
        }
    }

    #[test]
    fn names_begin_with_at_sign_at_start_of_words() {
        for (text, expected) in [
            ("describe @a.png", vec!["a.png"]),
            (
                "@a.png, and (@b/c.txt)",
                vec!["a.png,", "a.png", "b/c.txt)", "b/c.txt"],
            ),
            ("see @\"two words.txt\" now", vec!["two words.txt"]),
            ("mail ada@example.com", vec![]),
            ("@ alone, @", vec![]),
            ("@ä\u{a0}x", vec!["ä"]),
        ] {
            assert_eq!(names(text).concat(), expected, "{text}");
        }
    }

    #[test]
    fn media_types_are_recognised_by_first_bytes() {
        for (bytes, expected) in [
            (&b"\x89PNG\r\n\x1a\n...."[..], Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a", Some("image/gif")),
            (b"RIFF\0\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"RIFF\0\0\0\0WAVE", None),
            (b"%PDF-1.7", Some("application/pdf")),
            (b"%PNG", None),
            (b"", None),
        ] {
            assert_eq!(media_type(bytes), expected, "{bytes:?}");
        }
    }
}
