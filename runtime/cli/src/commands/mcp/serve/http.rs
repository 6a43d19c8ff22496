//! `toolcell mcp serve --http`: the address, and the clients.

use std::io::Read as _;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use clap::Args;
use tokio::net::TcpListener;
use toolcell_fs::{Owner, Rules};
use toolcell_http::Token;
use toolcell_mcp::{Authorization, KnownBy, PATH, Reached};

use super::oauth::OAuth;
use crate::commands::allowed;
use crate::components::keyring::{self, Keyring};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::escape;
use crate::ui::render::Console;
use crate::ui::terminal::{Own, text};

/// Maximum size of a file with tokens, in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// Maximum number of clients. Each has tools, a budget and a log of its own.
const MAX_CLIENTS: usize = 64;

/// Permissions of others than the owner of a file.
const OF_OTHERS: u32 = 0o077;

/// Serve over HTTP instead of standard input and output.
#[derive(Debug, Args)]
pub(super) struct Http {
    /// Serve many clients over HTTP at this address, such as 127.0.0.1:8080, instead of one over standard input and output.
    #[arg(long = "http", value_name = "ADDRESS")]
    pub(super) address: Option<SocketAddr>,

    /// Accept the bearer tokens in this file, one on each line. It must be readable by you alone.
    #[arg(long, value_name = "FILE", requires = "address")]
    token_file: Option<String>,

    /// Accept the bearer token in this account of the keyring (repeatable). `toolcell secret set` stores it.
    #[arg(long = "token-keyring", value_name = "ACCOUNT", requires = "address")]
    token_accounts: Vec<String>,

    /// Accept requests to this host, with its port, beside the address (repeatable).
    #[arg(long = "allow-host", value_name = "HOST", value_parser = allowed::host, requires = "address")]
    hosts: Vec<String>,

    /// Accept requests from web pages of this origin, such as `https://example.com` (repeatable).
    #[arg(long = "allow-origin", value_name = "ORIGIN", value_parser = allowed::origin, requires = "address")]
    origins: Vec<String>,

    /// Offer the plain endpoints `POST /tools/list` and `POST /tools/call` as well, for clients without JSON-RPC.
    #[arg(long, requires = "address")]
    plain: bool,

    #[command(flatten)]
    oauth: OAuth,
}

impl Http {
    /// Ways in which clients reach the server.
    pub(super) fn reached(&self) -> Reached {
        Reached {
            from: toolcell_http::Reached {
                hosts: self.hosts.iter().cloned().chain(self.oauth.host()).collect(),
                origins: self.origins.clone(),
            },
            plain: self.plain,
        }
    }

    /// Reads by what the clients are known; none if the address is one that other machines do not reach, and none are
    /// configured.
    pub(super) fn clients(
        &self,
        address: SocketAddr,
        environment: &Environment,
        keyring: &Keyring,
    ) -> Result<Vec<KnownBy>, Failure> {
        let tokens = read_tokens(
            self.token_file.as_deref(),
            &self.token_accounts,
            environment,
            keyring,
        )?;
        let subjects = self.oauth.subjects()?;
        if tokens.is_empty() && subjects.is_empty() && !address.ip().is_loopback() {
            return Err(Failure::new(
                Exit::Usage,
                text!(
                    "cannot listen on `{}` without authentication",
                    address.to_string()
                ),
            )
            .why("other machines reach this address, and all of them could call the tools")
            .hint("add --token-file FILE or --oauth-issuer URL, or listen on 127.0.0.1"));
        }
        if let Some(client) = tokens.iter().find(|client| !client.settings.is_empty()) {
            return Err(Failure::new(Exit::Config, "the tokens cannot be used")
                .why(text!("{} has settings of a client", client.place))
                .hint("`toolcell serve` has clients with settings; here, write one token on each line"));
        }
        let tokens = tokens.into_iter().map(|client| KnownBy::Token(client.token));
        let subjects = subjects.iter().cloned().map(KnownBy::Subject);
        let clients: Vec<KnownBy> = tokens.chain(subjects).collect();
        if clients.len() > MAX_CLIENTS {
            return Err(too_many("clients"));
        }
        Ok(clients)
    }

    /// Prepares to check access tokens. `None` if no client has one.
    pub(super) async fn authorization(&self, console: &Console) -> Result<Option<Authorization>, Failure> {
        self.oauth.authorization(console).await
    }
}

fn too_many(what: &'static str) -> Failure {
    Failure::new(Exit::Config, text!("there are too many {}", Own(what))).why(text!(
        "each is a client with a budget of its own, and there can be {}",
        MAX_CLIENTS
    ))
}

/// Token of a client, with the settings that stand behind it.
pub(in crate::commands) struct ClientToken {
    pub(in crate::commands) token: Token,
    /// Settings as written: `KEY=VALUE`, separated by spaces.
    pub(in crate::commands) settings: String,
    /// Place of the token, for messages.
    pub(in crate::commands) place: String,
}

/// Reads the tokens of a file and of accounts of the keyring.
///
/// # Errors
/// Returns an error if one cannot be read, is too weak, or occurs twice.
pub(in crate::commands) fn read_tokens(
    token_file: Option<&str>,
    token_accounts: &[String],
    environment: &Environment,
    keyring: &Keyring,
) -> Result<Vec<ClientToken>, Failure> {
    let mut tokens: Vec<ClientToken> = Vec::new();
    if let Some(file) = token_file {
        let failed = || Failure::new(Exit::Config, text!("the tokens in `{}` cannot be used", file));
        let content = read(&environment.path(file, &environment.cwd), failed)?;
        let lines = content.lines().map(str::trim).enumerate();
        for (index, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let (token, settings) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let token = Token::new(token).map_err(|error| {
                let place = format!("line {}: {error}", index + 1);
                failed()
                    .why(place)
                    .hint("`head -c 32 /dev/urandom | base64` prints a token")
            })?;
            tokens.push(ClientToken {
                token,
                settings: settings.trim().to_owned(),
                place: format!("line {} of the tokens", index + 1),
            });
        }
        if tokens.is_empty() {
            return Err(failed().why("it has none").hint("write one token on each line"));
        }
    }
    for account in token_accounts {
        let hint = || {
            text!(
                "to store one: head -c 32 /dev/urandom | base64 | toolcell secret set {}",
                escape::shell(account)
            )
        };
        let value = keyring
            .get(account)?
            .ok_or_else(|| keyring::no_entry(Exit::Config, account).hint(hint()))?;
        let token = Token::new(value.trim()).map_err(|error| {
            Failure::new(Exit::Config, text!("the token `{}` cannot be used", account))
                .because(error)
                .hint(hint())
        })?;
        tokens.push(ClientToken {
            token,
            settings: String::new(),
            place: "the keyring".into(),
        });
    }
    if (1..tokens.len()).any(|index| {
        tokens[..index]
            .iter()
            .any(|other| other.token == tokens[index].token)
    }) {
        return Err(Failure::new(Exit::Config, "a token occurs twice")
            .why("each is a client with a budget of its own, and one of them would never be used")
            .hint("give each client a token of its own"));
    }
    if tokens.len() > MAX_CLIENTS {
        return Err(too_many("tokens"));
    }
    Ok(tokens)
}

fn read(path: &Path, failed: impl Fn() -> Failure) -> Result<String, Failure> {
    let rules = Rules {
        owner: Owner::UserOrRoot,
        follow: true,
        max_bytes: MAX_BYTES,
    };
    let file = toolcell_fs::open(path, &rules).map_err(|error| failed().because(error))?;
    let mode = file.metadata().map_err(|error| failed().because(error))?.mode();
    if mode & OF_OTHERS != 0 {
        return Err(failed()
            .why("other users can read or change it")
            .hint(text!("chmod 600 {}", escape::shell(&path.to_string_lossy()))));
    }
    let mut content = String::new();
    file.take(MAX_BYTES)
        .read_to_string(&mut content)
        .map_err(|error| failed().because(error))?;
    Ok(content)
}

/// Begins to listen, and tells the user where. `has_names` is true if requests to some name are accepted.
pub(super) async fn listen(
    address: SocketAddr,
    has_names: bool,
    console: &Console,
) -> Result<TcpListener, Failure> {
    let failed = || Failure::new(Exit::Failed, text!("cannot listen on `{}`", address.to_string()));
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| failed().because(error))?;
    let address = listener.local_addr().map_err(|error| failed().because(error))?;
    let url = format!("http://{address}{PATH}");
    console.note(text!("serving MCP clients at `{}`", url));
    if !address.ip().is_loopback() {
        console
            .note("warning: tokens and results are not encrypted; put a proxy with TLS before this address");
    }
    if address.ip().is_unspecified() && !has_names {
        console.note(allowed::NO_NAMES);
    }
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(content: &str) -> Result<usize, String> {
        let dir = tempfile::tempdir().unwrap();
        toolcell_fs::replace(
            &dir.path().join("tokens"),
            content.as_bytes(),
            toolcell_fs::PRIVATE,
        )
        .unwrap();
        let http = Http {
            address: None,
            token_file: Some("tokens".into()),
            token_accounts: vec!["mcp".into()],
            hosts: Vec::new(),
            origins: Vec::new(),
            plain: false,
            oauth: OAuth::default(),
        };
        let environment = Environment::for_tests(dir.path(), &[]);
        let keyring = Keyring::in_memory();
        let missing = http.clients("127.0.0.1:1".parse().unwrap(), &environment, &keyring);
        keyring.set("mcp", "k".repeat(44)).unwrap();
        let found = http.clients("127.0.0.1:1".parse().unwrap(), &environment, &keyring);
        assert!(missing.is_err());
        found
            .map(|clients| clients.len())
            .map_err(|failure| format!("{failure:?}"))
    }

    #[test]
    fn tokens_are_limited_in_number() {
        let lines = |count: usize| (0..count).map(|n| format!("{n:032}\n")).collect::<String>();
        assert_eq!(tokens(&lines(MAX_CLIENTS - 1)), Ok(MAX_CLIENTS));
        assert!(
            tokens(&lines(MAX_CLIENTS))
                .unwrap_err()
                .contains("too many tokens")
        );
        assert_eq!(tokens(&format!("# one\n\n{}", lines(1))), Ok(2));
        let named = lines(1).replace('\n', " name=ada\n");
        assert!(tokens(&named).unwrap_err().contains("settings of a client"));
        assert!(tokens("# none\n").unwrap_err().contains("it has none"));
    }
}
