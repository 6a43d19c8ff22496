//! Vertex AI: which project and place, and access tokens that somebody else makes.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use toolcell_providers::gemini::vertex_base_url;
use toolcell_providers::{ApiKey, Token, TokenSource};

use crate::config::{ProviderSettings, Sourced};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// The variable that usually holds an access token.
pub(super) const TOKEN: &str = "GOOGLE_OAUTH_ACCESS_TOKEN";

/// The variables that usually name project and location.
const PROJECT: &str = "GOOGLE_CLOUD_PROJECT";
const LOCATION: &str = "GOOGLE_CLOUD_LOCATION";

/// Where models are asked that need no place.
const GLOBAL: &str = "global";

/// How long the command may take that makes a token: it may ask a server.
const COMMAND_TIME: Duration = Duration::from_secs(60);

/// The address of the models of a Google Cloud project.
///
/// # Errors
/// When no project is named.
pub(super) fn base_url(settings: &ProviderSettings, environment: &Environment) -> Result<String, Failure> {
    let of = |setting: &Option<Sourced<String>>, variable| {
        let written = setting.as_ref().map(|setting| setting.value.clone());
        written.or_else(|| environment.var(variable).map(str::to_owned))
    };
    let location = of(&settings.location, LOCATION).unwrap_or_else(|| GLOBAL.to_owned());
    match of(&settings.project, PROJECT) {
        Some(project) => Ok(vertex_base_url(&project, &location)),
        None => Err(
            Failure::new(Exit::Config, "no project of Google Cloud is named for `vertex`").hint(text!(
                "name it: `[provider] project = \"…\"`, or export {}=…",
                PROJECT
            )),
        ),
    }
}

/// Tokens that a command prints. How long they hold is not known; one that the service refuses is made again.
pub(super) fn of_command(command: &[String]) -> TokenSource {
    let command = command.to_vec();
    TokenSource::new(move || printed_by(command.clone()))
}

async fn printed_by(command: Vec<String>) -> Result<Token, String> {
    let shown = command.join(" ");
    let fail = |why: String| Err(format!("`{shown}` gives no access token: {why}"));
    let Some((program, arguments)) = command.split_first() else {
        return fail("it is empty".into());
    };
    let mut running = Command::new(program);
    running.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(COMMAND_TIME, running.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return fail(error.to_string()),
        Err(_) => return fail(format!("not finished after {} s", COMMAND_TIME.as_secs())),
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said.lines().map(str::trim).find(|line| !line.is_empty());
        return fail(format!(
            "{}: {}",
            output.status,
            line.unwrap_or("it said nothing")
        ));
    }
    match String::from_utf8(output.stdout) {
        Ok(token) if !token.trim().is_empty() => Ok(Token {
            value: ApiKey::new(token),
            expires_in: None,
        }),
        Ok(_) => fail("it printed nothing".into()),
        Err(_) => fail("what it printed is no text".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn sh(script: &str) -> Result<Token, String> {
        printed_by(["sh", "-c", script].map(str::to_owned).to_vec()).await
    }

    #[tokio::test]
    async fn a_command_prints_a_token_or_the_reason_why_not() {
        assert!(sh("echo ya29.x").await.is_ok());
        for (script, why) in [
            ("echo log in first >&2; exit 3", "exit status: 3: log in first"),
            ("exit 1", "exit status: 1: it said nothing"),
            ("true", "it printed nothing"),
            ("printf '\\377'", "no text"),
        ] {
            let error = sh(script).await.unwrap_err();
            assert!(error.ends_with(why), "{error}");
        }
        let error = printed_by(vec!["no-such-program-here".into()]).await.unwrap_err();
        assert!(
            error.contains("`no-such-program-here` gives no access token"),
            "{error}"
        );
        assert!(printed_by(Vec::new()).await.is_err());
    }
}
