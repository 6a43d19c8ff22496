//! Start of one MCP server: a process, an address, or a component in a cell.

use std::ffi::OsString;
use std::sync::Arc;

use toolcell_core::Secrets;
use toolcell_core::suggest::nearest;
use toolcell_mcp::Identity;
use toolcell_mcp::client::{Elicitor, Launch, McpServer, Options, Remote, ServerError, StartError};
use toolcell_sandbox::Digest;

use crate::components::keyring::Keyring;
use crate::components::loader::ComponentLoader;
use crate::components::secrets;
use crate::config::mcp::{EnvValue, Process, Transport};
use crate::config::{McpSettings, Settings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::mcp::{cell, oauth};
use crate::ui::hints::AllowHints;
use crate::ui::terminal::{Own, Text, text};

/// Variables that every server gets: without them most programs do not find their parts.
const INHERITED: [&str; 2] = ["PATH", "HOME"];

/// Headers for a token, as they are written in the configuration.
const BEARER: &str = "{ Authorization = { secret = \"NAME\", template = \"Bearer {}\" } }";

/// Maximum length of the output of a failed server that is shown, in characters.
const MAX_OUTPUT: usize = 1_000;

/// A server that was started.
pub(crate) struct Started {
    pub(crate) server: Arc<McpServer>,
    /// Digest of its component, if it runs in a cell.
    pub(super) digest: Option<Digest>,
}

/// Starts a server, or connects to it. Its questions go to `elicitor`, and are refused without one.
///
/// # Errors
/// Returns an error that says what the server lacks or did, with a hint for the user.
pub(crate) async fn start(
    server: &McpSettings,
    known: &Secrets,
    loader: &ComponentLoader<'_>,
    elicitor: Option<Arc<dyn Elicitor>>,
) -> Result<Started, Failure> {
    let (settings, environment) = (loader.settings, loader.environment);
    let secrets = secrets_of(server, known, settings)
        .map_err(|failure| failure.why(text!("it is for the MCP server `{}`", server.name)))?;
    let options = Options {
        only: server.only.clone(),
        except: server.except.clone(),
        start_timeout: server.start_timeout,
        call_timeout: server.call_timeout,
        trusts_annotations: server.trusts_annotations,
        in_cell: matches!(server.transport, Transport::Cell { .. }),
        redactor: secrets.redactor(),
        elicitor,
        ..Options::new(server.name.as_str())
    };
    let identity = Identity {
        name: "toolcell".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        instructions: None,
    };
    let mut digest = None;
    let server = match &server.transport {
        Transport::Cell { component, arguments } => {
            let program = loader.program(component).await?;
            digest = Some(program.component.digest());
            let started = cell::start(program, arguments.clone(), options, identity).await;
            started.map_err(|failed| {
                let StartError {
                    error,
                    output,
                    accessed,
                } = failed;
                let fail = Failure::new(
                    Exit::Config,
                    text!("the MCP server `{}` did not start", server.name),
                );
                let denials = AllowHints::of_user(environment).of_server_at_start(&server.name, &accessed);
                wrote(fail.because(error), &output).hints(denials)
            })
        }
        Transport::Process(process) => {
            let fail = || {
                Failure::new(
                    Exit::Config,
                    text!("the MCP server `{}` did not start", server.name),
                )
            };
            let program = process.program.clone().ok_or_else(|| {
                fail()
                    .why(text!("there is no program `{}` in PATH", process.command))
                    .hint("install it, or set `command` to its path")
            })?;
            let launch = Launch {
                program,
                new_session: environment.session_child(),
                arguments: process.arguments.iter().map(OsString::from).collect(),
                environment: variables(process, &secrets, environment),
                directory: process.directory.clone(),
            };
            let started = McpServer::start(launch, options, identity).await;
            started.map_err(|StartError { error, output, .. }| {
                let failure = wrote(fail().because(error), &output);
                failure.hint(text!("to see it alone: {}", process.command_line()))
            })
        }
        Transport::Http {
            url, headers, plain, ..
        } => {
            let fail = || {
                Failure::new(
                    Exit::Config,
                    text!("the MCP server `{}` cannot be used", server.name),
                )
            };
            let values = headers.iter().filter_map(|(name, value)| {
                let value = value.with(|secret| secrets.get(secret).map(|value| value.expose()));
                Some((name.clone(), value?))
            });
            let mut remote = Remote::new(url, values).map_err(|error| fail().because(error))?;
            if *plain {
                remote = remote.plain();
            }
            if let Some(tokens) = oauth::tokens_of(server, &secrets) {
                remote = remote.authorized_by(Arc::new(tokens));
            }
            let connected = McpServer::over_http(remote, options, identity).await;
            connected.map_err(|StartError { error, .. }| {
                let hints = hints_over_http(&error, server);
                fail().because(error).hints(hints)
            })
        }
    };
    let server = server?;
    Ok(Started { server, digest })
}

/// Adds the end of what a server wrote to its standard error.
fn wrote(failure: Failure, output: &str) -> Failure {
    match output {
        "" => failure,
        output => failure.why(text!("it wrote: {}", Text::of_others(output)).excerpt(MAX_OUTPUT)),
    }
}

/// Actions of the user after a server over HTTP refused the client.
fn hints_over_http(error: &ServerError, server: &McpSettings) -> Vec<Text> {
    let login = text!("log in: toolcell mcp login {}", server.name);
    vec![match error {
        ServerError::Unauthorized(_) if server.has_authorization() => text!(
            "replace the secret by a valid one; if the server wants it after a word: headers = {}",
            Own(BEARER)
        ),
        ServerError::Unauthorized(_) => {
            let token = text!(
                "or store a token as a secret, and add to [mcp.{}]: headers = {}",
                server.name,
                Own(BEARER)
            );
            return vec![login, token];
        }
        ServerError::InsufficientScope(_) if !server.has_authorization() => login,
        ServerError::Redirected(_) => "set `url` to the address that the operator of the server gives".into(),
        ServerError::Unreachable(_) => "check `url`, and the connection to its host".into(),
        ServerError::Status {
            status: 404 | 405, ..
        } if server.transport.kind() == "plain" => {
            "check the path of `url`: the plain endpoints are `tools/list` and `tools/call` below it".into()
        }
        ServerError::Status {
            status: 404 | 405, ..
        } => "check the path of `url`, which often ends with /mcp".into(),
        _ => return Vec::new(),
    }]
}

/// Adds the secrets of the server that are in the keyring, and refuses one without a value.
pub(crate) fn secrets_of(
    server: &McpSettings,
    known: &Secrets,
    settings: &Settings,
) -> Result<Secrets, Failure> {
    let secrets = secrets::with_keyring(known, settings, server.secrets(), &Keyring::of_system())?;
    let Some(missing) = server.secrets().find(|name| secrets.get(name).is_none()) else {
        return Ok(secrets);
    };
    let failure = Failure::new(Exit::Config, text!("the secret `{}` has no value", missing));
    let names: Vec<&str> = settings.secrets.keys().map(String::as_str).collect();
    Err(
        match (names.contains(&missing), nearest(missing, &names).first()) {
            (false, Some(near)) => failure.hint(text!("did you mean `{}`?", near)),
            (false, None) => failure.hint(text!("say where it is: [secrets.{}] env = \"VARIABLE\"", missing)),
            (true, _) => failure.hint("set its variable, or store it in its file"),
        },
    )
}

/// The whole environment of a server.
fn variables(server: &Process, secrets: &Secrets, environment: &Environment) -> Vec<(String, OsString)> {
    let inherited = INHERITED
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), environment.var_os(name)?)));
    let own = server.env.iter().filter_map(|(name, value)| {
        let value = match value {
            EnvValue::Text(text) => text.as_str(),
            EnvValue::Secret(name) => secrets.get(&name.secret)?.expose(),
        };
        Some((name.clone(), OsString::from(value)))
    });
    inherited.chain(own).collect()
}
