//! Prompts of MCP servers, sent as messages of the user: `/SERVER:PROMPT NAME=VALUE …`.

use serde_json::{Map, Value, json};
use toolcell_agent::{TurnStart, Verdict};
use toolcell_core::suggest::nearest;
use toolcell_mcp::client::PromptInfo;

use super::command::Conversation;
use crate::error::{Exit, Failure};
use crate::mcp::servers::Running;
use crate::session::{prompt, resources};
use crate::ui::terminal::{FAINT, GUTTER, NAME, Name, Own, Text, text};

/// Maximum length of the words of a server in an error, in characters.
const MAX_ERROR: usize = 1_000;

impl Conversation<'_> {
    /// Lists the prompts of all servers.
    pub(super) async fn prompts(&self) -> Result<(), Failure> {
        let mut is_empty = true;
        for running in self.turns.setup().servers.iter() {
            for prompt in listed(running).await? {
                is_empty = false;
                let name = format!("/{}:{}", running.settings.name, prompt.name);
                self.console.write(|s| {
                    s.err.styled(NAME, text!("  {}", name))?;
                    s.err.text(text!(" {}", arguments_of(&prompt)))?;
                    // Words of the server, which must not pass for ours.
                    let first = prompt.description.lines().next().unwrap_or_default();
                    s.err.styled(FAINT, text!("  {}{}", Own(GUTTER), first))?;
                    s.err.end_line()?;
                    s.err.flush()
                })?;
            }
        }
        if is_empty {
            self.console.note("no MCP server in use has prompts");
        }
        Ok(())
    }

    /// Sends a prompt of a server.
    pub(super) async fn send_prompt(
        &mut self,
        server: &str,
        name: &str,
        written: &str,
    ) -> Result<Exit, Failure> {
        self.check_over()?;
        let setup = self.turns.setup();
        let running = setup.servers.find(server).ok_or_else(|| {
            let names: Vec<&str> = setup
                .servers
                .iter()
                .map(|one| one.settings.name.as_str())
                .collect();
            let failure = Failure::new(Exit::Usage, text!("there is no MCP server `{}` in use", server));
            match nearest(server, &names).first() {
                Some(near) => failure.hint(text!("did you mean `/{}:{}`?", near, name)),
                None => failure.hint("/prompts lists the prompts of all servers"),
            }
        })?;
        let known = listed(running).await?;
        let info = known.iter().find(|prompt| prompt.name == name);
        let (Some(reader), Some(info)) = (running.prompt_reader(), info) else {
            let names: Vec<&str> = known.iter().map(|prompt| prompt.name.as_str()).collect();
            let failure = Failure::new(
                Exit::Usage,
                text!("the MCP server `{}` has no prompt `{}`", server, name),
            );
            return Err(match nearest(name, &names).first() {
                Some(near) => failure.hint(text!("did you mean `/{}:{}`?", server, near)),
                None => failure.hint("/prompts lists the prompts of all servers"),
            });
        };
        let arguments = arguments(info, written).map_err(|why| {
            Failure::new(Exit::Usage, text!("the prompt `{}` was not sent", name))
                .why(why)
                .hint(text!(
                    "it is written: /{}:{} {}",
                    server,
                    name,
                    arguments_of(info)
                ))
        })?;
        let call = json!({ "name": name, "arguments": arguments });
        let places = reader.places(&call);
        if let (Verdict::Deny, Some(rule)) =
            setup
                .approvals
                .verdict(reader.spec().name.as_str(), &call, &places)
        {
            return Err(
                Failure::new(Exit::Usage, text!("the prompt `{}` was not sent", name))
                    .why(text!("the rule `{}` refuses it", rule.to_string())),
            );
        }
        let got = resources::read(&*reader, call, self.console).await?;
        if let Some(error) = got.error {
            return Err(
                Failure::new(Exit::Failed, text!("the prompt `{}` was not sent", name))
                    .why(text!("{}", error.to_string()).excerpt(MAX_ERROR)),
            );
        }
        if got.content.is_empty() {
            return Err(Failure::new(
                Exit::Failed,
                text!("the prompt `{}` is empty", name),
            ));
        }
        self.console.note(text!(
            "sending the prompt `{}` of the MCP server `{}`, {} bytes",
            name,
            server,
            got.byte_len()
        ));
        let flow = resources::of_content(running.settings.flow);
        let draft = prompt::of_content(got.content, &mut self.attached, self.environment, self.console)?;
        self.attached.clear();
        let message = draft.message();
        self.turns
            .turn(&mut self.session, TurnStart::Attached { message, flow })
            .await
    }
}

async fn listed(running: &Running) -> Result<Vec<PromptInfo>, Failure> {
    running.prompts().await.map_err(|error| {
        Failure::new(
            Exit::Failed,
            text!(
                "could not list the prompts of the MCP server `{}`",
                running.settings.name
            ),
        )
        .why(text!("{}", error.to_string()).excerpt(MAX_ERROR))
    })
}

/// Arguments of a prompt as they are written.
fn arguments_of(prompt: &PromptInfo) -> Text {
    let arguments = prompt
        .arguments
        .iter()
        .map(|(name, is_required)| match is_required {
            true => text!("{}=…", Name(name)),
            false => text!("[{}=…]", Name(name)),
        });
    Text::join(arguments, " ")
}

/// Reads the arguments of a prompt: `NAME=VALUE`, with quotation marks around values with blanks. Without a name, everything
/// is the value of the only argument.
///
/// # Errors
/// The reason, if one is missing, unknown or repeated.
fn arguments(prompt: &PromptInfo, written: &str) -> Result<Map<String, Value>, Text> {
    let mut arguments = Map::new();
    let is_named = |word: &str| {
        let name = word.split_once('=').map(|(name, _)| name);
        prompt
            .arguments
            .iter()
            .any(|(known, _)| Some(known.as_str()) == name)
    };
    match prompt.arguments.as_slice() {
        [(only, _)] if !written.is_empty() && !is_named(written) => {
            arguments.insert(only.clone(), written.into());
        }
        _ => {
            for word in words(written) {
                let (name, value) = match word.split_once('=') {
                    Some(pair) if is_named(&word) => pair,
                    _ => return Err(text!("`{}` is not one of its arguments", word.as_str())),
                };
                if arguments.insert(name.to_owned(), value.into()).is_some() {
                    return Err(text!("`{}` is given twice", name));
                }
            }
        }
    }
    let missing = prompt
        .arguments
        .iter()
        .find(|(name, is_required)| *is_required && !arguments.contains_key(name));
    match missing {
        Some((name, _)) => Err(text!("`{}` is missing", name.as_str())),
        None => Ok(arguments),
    }
}

/// Words of a line. Between quotation marks, blanks belong to a word.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut is_open, mut is_quoted) = (String::new(), false, false);
    for c in line.chars() {
        match c {
            '"' => (is_quoted, is_open) = (!is_quoted, true),
            c if c.is_whitespace() && !is_quoted => {
                if std::mem::take(&mut is_open) {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => {
                word.push(c);
                is_open = true;
            }
        }
    }
    if is_open {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(arguments: &[(&str, bool)]) -> PromptInfo {
        PromptInfo {
            name: "p".into(),
            description: String::new(),
            arguments: arguments
                .iter()
                .map(|(name, is)| ((*name).to_owned(), *is))
                .collect(),
        }
    }

    #[test]
    fn arguments_of_a_prompt_are_named_or_the_only_one() {
        let two = prompt(&[("file", true), ("by", false)]);
        let read = |prompt: &PromptInfo, written: &str| {
            let read = arguments(prompt, written);
            read.map(|read| Value::Object(read).to_string())
                .map_err(|why| why.plain())
        };
        let ok = |json: &str| Ok(json.to_owned());
        assert_eq!(
            read(&two, r#"file="a b.rs" by=Ada"#),
            ok(r#"{"by":"Ada","file":"a b.rs"}"#)
        );
        assert_eq!(read(&two, "file="), ok(r#"{"file":""}"#));
        let one = prompt(&[("topic", true)]);
        assert_eq!(
            read(&one, "all that x=1 is"),
            ok(r#"{"topic":"all that x=1 is"}"#)
        );
        assert_eq!(read(&one, "topic=\"a b\""), ok(r#"{"topic":"a b"}"#));
        assert_eq!(read(&prompt(&[]), ""), ok("{}"));
        for (prompt, written, why) in [
            (&two, "", "`file` is missing"),
            (&two, "file=a file=b", "`file` is given twice"),
            (&two, "file=a to=b", "`to=b` is not one of its arguments"),
            (&prompt(&[]), "x", "`x` is not one of its arguments"),
            (&one, "", "`topic` is missing"),
        ] {
            assert_eq!(read(prompt, written), Err(why.to_owned()));
        }
    }
}
