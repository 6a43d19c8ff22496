//! `toolcell mcp login` and `toolcell mcp logout`: tokens for a server over HTTP.

use std::process::{Command, Stdio};

use clap::Args;
use toolcell_mcp::Identity;
use toolcell_mcp::client::{Challenge, McpServer, Options, Remote, ServerError};
use url::Url;

use super::test::unknown;
use crate::components::secrets;
use crate::config::mcp::Transport;
use crate::config::{self, McpSettings, Overrides, Settings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::mcp::oauth::{self, LOGIN_TIME, NoLogin, Revoked, TokenStore, Wishes};
use crate::mcp::{servers, start};
use crate::ui::render::Console;
use crate::ui::terminal::{ShownUrl, Text, text};

/// Program that opens an address in the browser.
const OPENER: &str = if cfg!(target_os = "macos") {
    "open"
} else {
    "xdg-open"
};

/// Log in to an MCP server over HTTP, by OAuth in your browser.
///
/// The address to open is printed to standard output, and the command waits for at most ten minutes. The tokens are stored in the keyring, or in the file that `[mcp.NAME.oauth] file` names, and sent to this server only. A login replaces the one before.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell mcp login docs
  toolcell mcp login docs --no-browser

{}", crate::exit::TABLE))]
pub(crate) struct Login {
    /// Name of the server in the configuration.
    server: String,

    /// Only print the address.
    #[arg(long)]
    no_browser: bool,
}

/// Remove the tokens of an MCP server.
///
/// They are removed from this machine, and then revoked at the authorization server (RFC 7009). One that revokes no tokens is not told; its own pages can end the access.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell mcp logout docs

{}", crate::exit::TABLE))]
pub(crate) struct Logout {
    /// Name of the server in the configuration.
    server: String,
}

/// Finds a server over HTTP, and the place of its tokens.
fn find<'a>(name: &str, settings: &'a Settings) -> Result<(&'a McpSettings, TokenStore), Failure> {
    let server = settings.mcp.get(name).ok_or_else(|| unknown(name, settings))?;
    let store = TokenStore::of(server).ok_or_else(|| {
        Failure::new(
            Exit::Usage,
            text!("there is no login to the MCP server `{}`", name),
        )
        .why("it is not reached over HTTP")
        .hint("give it a key as a secret in its environment, or in its bindings")
    })?;
    Ok((server, store))
}

impl Login {
    pub(super) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let settings = config::load(environment, overrides)?;
        let (server, store) = find(&self.server, &settings)?;
        let fail = || {
            Failure::new(
                Exit::Config,
                text!("the login to the MCP server `{}` failed", self.server),
            )
        };
        if server.has_authorization() {
            return Err(fail()
                .why("its table sets the header `authorization`")
                .hint("remove the header, or replace its secret by a valid one"));
        }
        let Transport::Http { url, oauth, .. } = &server.transport else {
            return Err(fail());
        };
        let known = secrets::read(&settings, environment)?;
        let known = start::secrets_of(server, &known, &settings)?;
        let work = async {
            let last = store.load().await?;
            let challenge = {
                let _activity = console.activity("asking the MCP server");
                challenge(server, url, &known)
                    .await
                    .map_err(|error| fail().because(error))?
            };
            let wishes = Wishes {
                issuer: oauth.issuer.as_deref(),
                scopes: oauth.scopes.as_deref(),
                client: oauth::client_of(server, &known),
                challenge,
                last: last.as_ref(),
            };
            let begun = {
                let _activity = console.activity("asking the authorization server");
                oauth::Login::begin(url, wishes).await
            };
            let login = begun.map_err(|reason| match reason {
                NoLogin::Failed(reason) => fail().why(reason),
                NoLogin::NoClient(reason) => fail().why(reason).hints(hint(server)),
                NoLogin::NotAsked => fail()
                    .why("it asks for no login: it has no metadata of OAuth")
                    .hint(text!("to see its tools: toolcell mcp test {}", self.server))
                    .hint(text!(
                        "if it needs a login all the same, name its authorization server: [mcp.{}.oauth] issuer = \"URL\"",
                        self.server
                    )),
            })?;
            self.show(&login, url, environment, console)?;
            let tokens = {
                let _activity = console.activity("waiting for the browser");
                login.finish(LOGIN_TIME).await
            };
            let tokens = tokens.map_err(|reason| fail().why(reason))?;
            store.save(&tokens).await?;
            console.note(text!(
                "logged in; the tokens are in {}; to see the tools: toolcell mcp test {}",
                store.shown(),
                self.server
            ));
            Ok(Exit::Ok)
        };
        tokio::select! {
            done = work => done,
            () = servers::interrupted() => Err(Failure::new(Exit::Cancelled, "cancelled during the login")),
        }
    }

    /// Shows the address, and who is involved.
    fn show(
        &self,
        login: &oauth::Login,
        url: &str,
        environment: &Environment,
        console: &Console,
    ) -> Result<(), Failure> {
        console.note(text!(
            "you log in at {}, for the authorization server {}; the tokens are for {}",
            ShownUrl(&login.page()),
            ShownUrl(login.issuer()),
            ShownUrl(url)
        ));
        if login.is_elsewhere() {
            console.note("warning: these are different hosts; go on only if you expect that the server uses this login");
        }
        if !login.scopes().is_empty() {
            let scopes = login.scopes().join(" ");
            console.note(text!("requested scopes: {}", Text::of_others(scopes)));
        }
        console.note("open this address in a browser:");
        console.write(|s| {
            s.out.data(&format!("{}\n", login.url()))?;
            s.out.flush()
        })?;
        if !self.no_browser && environment.terminals.can_ask() && !open(login.url(), environment) {
            console.note("the browser could not be opened");
        }
        Ok(())
    }
}

impl Logout {
    pub(super) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let settings = config::load(environment, overrides)?;
        let (server, store) = find(&self.server, &settings)?;
        // Also ones that cannot be read, or are for another server, are removed, whatever becomes of the rest.
        let tokens = store.load().await.ok().flatten();
        let removed = store.remove().await?;
        let name = &self.server;
        console.note(match removed {
            true => text!("the tokens for the MCP server `{}` are removed", name),
            false => text!("there are no tokens for the MCP server `{}`", name),
        });
        let Transport::Http { oauth, .. } = &server.transport else {
            return Ok(Exit::Ok);
        };
        if !removed {
            return Ok(Exit::Ok);
        }
        let Some(tokens) = tokens else {
            console.note("the authorization server was not told: the tokens were damaged, or for another `url` or `issuer`");
            return Ok(Exit::Ok);
        };
        let fail = || {
            Failure::new(
                Exit::Failed,
                text!("the tokens for the MCP server `{}` were not revoked", name),
            )
            .hint("they are removed from this machine; to end the access, use the pages of the authorization server")
        };
        let known = secrets::read(&settings, environment)
            .and_then(|known| start::secrets_of(server, &known, &settings));
        let known = known.map_err(|error| fail().why(text!("{}", error.to_string())))?;
        let client = oauth::client_of(server, &known);
        let revoked = {
            let _activity = console.activity("asking the authorization server");
            oauth::revoke(&tokens, oauth.issuer.as_deref(), &client).await
        };
        match revoked.map_err(|reason| fail().why(reason))? {
            Revoked::Yes => console.note("they are revoked at the authorization server"),
            Revoked::Unsupported => {
                console.note("the authorization server was not told: it revokes no tokens; its own pages can end the access");
            }
        }
        Ok(Exit::Ok)
    }
}

/// Asks a server without tokens. Returns its requirements; empty ones if it answers.
async fn challenge(
    server: &McpSettings,
    url: &str,
    known: &toolcell_core::Secrets,
) -> Result<Challenge, anyhow::Error> {
    let Transport::Http { headers, plain, .. } = &server.transport else {
        return Ok(Challenge::default());
    };
    let values = headers.iter().filter_map(|(name, value)| {
        let value = value.with(|secret| known.get(secret).map(|value| value.expose()));
        Some((name.clone(), value?))
    });
    let mut remote = Remote::new(url, values)?;
    if *plain {
        remote = remote.plain();
    }
    let options = Options {
        start_timeout: server.start_timeout,
        redactor: known.redactor(),
        ..Options::new(server.name.as_str())
    };
    let identity = Identity {
        name: "toolcell".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        instructions: None,
    };
    match McpServer::over_http(remote, options, identity).await {
        Ok(started) => {
            started.stop().await;
            Ok(Challenge::default())
        }
        Err(failed) => match failed.error {
            ServerError::Unauthorized(refused) | ServerError::InsufficientScope(refused) => {
                Ok(refused.challenge)
            }
            // A server that ends the connection otherwise would do so after a login as well.
            error => Err(error.into()),
        },
    }
}

/// Action for the user where the authorization server registers no clients.
fn hint(server: &McpSettings) -> Option<Text> {
    let Transport::Http { oauth, .. } = &server.transport else {
        return None;
    };
    oauth.client_id.is_none().then(|| {
        text!(
            "if it needs a client that you register there, with the redirect address http://127.0.0.1/callback: [mcp.{}.oauth] client_id = \"ID\"",
            server.name
        )
    })
}

/// Opens an address, which begins with `http`, in the browser. Returns false if there is no program for that.
fn open(url: &Url, environment: &Environment) -> bool {
    let Some(program) = environment.program_file(OPENER.as_ref()) else {
        return false;
    };
    let started = Command::new(program)
        .arg(url.as_str())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        Ok(mut child) => {
            // It ends at once, or with the browser.
            std::thread::spawn(move || child.wait());
            true
        }
        Err(_) => false,
    }
}
