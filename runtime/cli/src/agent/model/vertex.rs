//! Vertex AI: project, location, and access tokens from a command.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use toolcell_providers::gemini::vertex_base_url;
use toolcell_providers::{ApiKey, Token, TokenSource};

use crate::config::{ProviderSettings, Sourced};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// Variable that usually contains an access token.
pub(super) const TOKEN: &str = "GOOGLE_OAUTH_ACCESS_TOKEN";

/// Variables that usually contain project and location.
const PROJECT: &str = "GOOGLE_CLOUD_PROJECT";
const LOCATION: &str = "GOOGLE_CLOUD_LOCATION";

/// Default location.
const GLOBAL: &str = "global";

/// Timeout of the token command, which may contact a server.
const COMMAND_TIME: Duration = Duration::from_secs(60);

/// Returns the base URL of the models of a Google Cloud project.
///
/// # Errors
/// Returns an error if no project is set.
pub(super) fn base_url(settings: &ProviderSettings, environment: &Environment) -> Result<String, Failure> {
    let of = |setting: &Option<Sourced<String>>, variable| {
        let written = setting.as_ref().map(|setting| setting.value.clone());
        written.or_else(|| environment.var(variable).map(str::to_owned))
    };
    let location = of(&settings.location, LOCATION).unwrap_or_else(|| GLOBAL.to_owned());
    match of(&settings.project, PROJECT) {
        Some(project) => Ok(vertex_base_url(&project, &location)),
        None => Err(
            Failure::new(Exit::Config, "no Google Cloud project is set for `vertex`").hint(text!(
                "set it: `[provider] project = \"…\"`, or export {}=…",
                PROJECT
            )),
        ),
    }
}

/// Creates a source of tokens printed by a command. Their lifetime is unknown; a token refused by the service is
/// replaced.
pub(super) fn of_command(command: &[String]) -> TokenSource {
    let command = command.to_vec();
    TokenSource::new(move || printed_by(command.clone()))
}

async fn printed_by(command: Vec<String>) -> Result<Token, String> {
    let shown = command.join(" ");
    let fail = |why: String| Err(format!("`{shown}` printed no access token: {why}"));
    let Some((program, arguments)) = command.split_first() else {
        return fail("it is empty".into());
    };
    let mut running = Command::new(program);
    running.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(COMMAND_TIME, running.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return fail(error.to_string()),
        Err(_) => return fail(format!("it did not finish within {} s", COMMAND_TIME.as_secs())),
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said.lines().map(str::trim).find(|line| !line.is_empty());
        return fail(format!(
            "{}: {}",
            output.status,
            line.unwrap_or("no error message")
        ));
    }
    match String::from_utf8(output.stdout) {
        Ok(token) if !token.trim().is_empty() => Ok(Token {
            value: ApiKey::new(token),
            expires_in: None,
        }),
        Ok(_) => fail("it printed nothing".into()),
        Err(_) => fail("its output is not UTF-8".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn sh(script: &str) -> Result<Token, String> {
        printed_by(["sh", "-c", script].map(str::to_owned).to_vec()).await
    }

    #[tokio::test]
    async fn token_command_prints_token_or_reason() {
        assert!(sh("echo ya29.x").await.is_ok());
        for (script, why) in [
            ("echo log in first >&2; exit 3", "exit status: 3: log in first"),
            ("exit 1", "exit status: 1: no error message"),
            ("true", "it printed nothing"),
            ("printf '\\377'", "not UTF-8"),
        ] {
            let error = sh(script).await.unwrap_err();
            assert!(error.ends_with(why), "{error}");
        }
        let error = printed_by(vec!["no-such-program-here".into()]).await.unwrap_err();
        assert!(
            error.contains("`no-such-program-here` printed no access token"),
            "{error}"
        );
        assert!(printed_by(Vec::new()).await.is_err());
    }
}
