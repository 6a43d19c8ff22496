//! The editor of the user, for long messages. What comes back is the text of the next prompt: it is sent when the user
//! presses Enter there.

use std::io::Write as _;
use std::process::Command;

use toolcell_fs::Rules;

use crate::config::user_files::because;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// Maximum size of a text, in bytes: what the line editor of a chat handles at once. Longer texts are attached as files.
const MAX_TEXT: u64 = 256 << 10;

/// Opens a text in the editor, and returns it as it was saved.
///
/// # Errors
/// Returns an error without a terminal or an editor, and if the editor fails.
pub(super) fn edit(begin: &str, environment: &Environment) -> Result<String, Failure> {
    let terminals = environment.terminals;
    if !(terminals.can_ask() && terminals.stdout) {
        return Err(Failure::new(Exit::Usage, "an editor needs a terminal")
            .hint("a line that ends in a backslash goes on with the next one"));
    }
    let set = |name| environment.var(name).filter(|editor| !editor.trim().is_empty());
    let Some(editor) = set("VISUAL").or_else(|| set("EDITOR")) else {
        return Err(Failure::new(Exit::Usage, "no editor is set")
            .hint("set VISUAL or EDITOR, such as `export EDITOR=nano`"));
    };
    let failed = || Failure::new(Exit::Io, text!("could not edit the message with `{}`", editor));
    // Only the user can read it, and it is deleted afterwards.
    let mut file = (tempfile::Builder::new().prefix("message-").suffix(".md"))
        .tempfile()
        .map_err(|error| failed().because(error))?;
    let written = file.write_all(begin.as_bytes()).and_then(|()| file.flush());
    written.map_err(|error| failed().because(error))?;
    // The variable can contain arguments, such as `code --wait`.
    let ended = Command::new("sh")
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(file.path())
        .status()
        .map_err(|error| failed().because(error))?;
    if !ended.success() {
        return Err(failed().why(text!("it ended with `{}`", ended.to_string())));
    }
    let saved = toolcell_fs::read_text(file.path(), &Rules::named(MAX_TEXT))
        .map_err(|error| because(failed(), error))?;
    Ok(as_prompt(&saved))
}

/// Returns a text without characters that a line editor would obey.
fn as_prompt(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\t', "    ");
    let text: String = text.chars().filter(|c| *c == '\n' || !c.is_control()).collect();
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_editor_has_lines_and_no_control_characters() {
        assert_eq!(as_prompt("one\r\n\ttwo\u{1b}[2J\u{7f}\n\n"), "one\n    two[2J");
        assert_eq!(as_prompt("\n"), "");
    }
}
