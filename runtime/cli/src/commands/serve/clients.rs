//! Clients with tokens: their names, and the limits that stand beside their tokens.

use std::collections::BTreeSet;

use toolcell_http::Token;
use toolcell_serve::ClientLimits;

use crate::commands::mcp::serve::ClientToken;
use crate::config::units::Count;
use crate::config::units::money::Money;
use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// Maximum length of a name, in bytes: it names a directory.
const MAX_NAME: usize = 32;

/// Names of the settings of a client.
const SETTINGS: &str = "`name`, `agents`, `requests`, `turns`, `calls`, `tokens` and `cost`";

/// Client with a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClientSettings {
    /// Name, by which its sessions and memories are its own.
    pub(super) name: String,
    pub(super) token: Token,
    /// Limits that the server keeps.
    pub(super) limits: ClientLimits,
    /// Calls at one time.
    pub(super) calls: Option<usize>,
    /// Use in a day of UTC.
    pub(super) daily: Daily,
}

/// Use of a model by a client in a day of UTC; `None` means unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Daily {
    /// Tokens, input and output combined.
    pub(super) tokens: Option<u64>,
    /// Cost in millionths of the currency unit of the prices.
    pub(super) cost_micros: Option<u64>,
}

/// Reads the settings of all clients.
///
/// # Errors
/// Returns an error if a setting is unknown or wrong, or two clients have one name.
pub(super) fn read(tokens: Vec<ClientToken>) -> Result<Vec<ClientSettings>, Failure> {
    let mut clients = Vec::new();
    let mut names = BTreeSet::new();
    for token in tokens {
        let place = token.place.clone();
        let failed = || Failure::new(Exit::Config, text!("the client in {} cannot be used", place));
        let client = one(token).map_err(|why| {
            failed().why(why).hint(
                "example: TOKEN name=ada agents=default,writer requests=60 turns=4 calls=8 tokens=1m cost=5",
            )
        })?;
        if !names.insert(client.name.clone()) {
            return Err(failed()
                .why(text!("another client has the name `{}`", client.name))
                .hint("give each client a name of its own"));
        }
        clients.push(client);
    }
    Ok(clients)
}

fn one(ClientToken { token, settings, .. }: ClientToken) -> Result<ClientSettings, String> {
    let mut client = ClientSettings {
        name: format!("token-{}", token.fingerprint()),
        token,
        limits: ClientLimits::default(),
        calls: None,
        daily: Daily::default(),
    };
    let mut known = BTreeSet::new();
    for setting in settings.split_whitespace() {
        let (key, value) = setting
            .split_once('=')
            .ok_or_else(|| format!("`{}` is not of the form KEY=VALUE", setting.escape_debug()))?;
        if !known.insert(key) {
            return Err(format!("`{}` occurs twice", key.escape_debug()));
        }
        let wrong = |why: String| format!("`{}` is wrong: {why}", key.escape_debug());
        let number = || -> Result<u64, String> {
            let number = value.parse::<Count>().map_err(wrong)?.0;
            match number {
                0 => Err(wrong("it must be at least 1".into())),
                number => Ok(number),
            }
        };
        let few = || number().map(|number| usize::try_from(number).unwrap_or(usize::MAX).min(MAX_PLACES));
        match key {
            "name" => client.name = name(value).map_err(wrong)?,
            "agents" => {
                let agents = value.split(',').map(str::to_owned).collect::<Vec<_>>();
                if agents.iter().any(String::is_empty) {
                    return Err(wrong("it is a list of agents, such as `default,writer`".into()));
                }
                client.limits.agents = Some(agents);
            }
            "requests" => client.limits.requests = Some(number()?),
            "turns" => client.limits.turns = Some(few()?),
            "calls" => client.calls = Some(few()?),
            "tokens" => client.daily.tokens = Some(number()?),
            "cost" => {
                let cost = value.parse::<Money>().map_err(wrong)?.0;
                client.daily.cost_micros = Some(cost);
            }
            other => {
                return Err(format!(
                    "there is no setting `{}`; there are {SETTINGS}",
                    other.escape_debug()
                ));
            }
        }
    }
    Ok(client)
}

/// Maximum number of places of a limit: more are as good as none, and a semaphore has no more.
const MAX_PLACES: usize = 1 << 20;

fn name(value: &str) -> Result<String, String> {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    if value.is_empty() || value.len() > MAX_NAME || !value.bytes().all(is_allowed) {
        return Err(format!(
            "a name has 1 to {MAX_NAME} lower-case letters, digits, `-` and `_`"
        ));
    }
    // The names of others: of clients without a name, and of the page.
    if value.starts_with("token-") || value == "page" {
        return Err("the name is reserved".into());
    }
    Ok(value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8, settings: &str) -> ClientToken {
        ClientToken {
            token: Token::new(&format!("{number:032}")).unwrap(),
            settings: settings.into(),
            place: format!("line {number}"),
        }
    }

    fn refused(settings: &str) -> String {
        let failure = read(vec![client(1, settings)]).unwrap_err();
        failure.to_json()["why"].to_string()
    }

    #[test]
    fn settings_of_a_client_are_read() {
        let line = "name=ada agents=default,writer requests=60 turns=4 calls=8 tokens=1m cost=2.50";
        let clients = read(vec![client(1, line), client(2, "")]).unwrap();
        let ada = &clients[0];
        assert_eq!(ada.name, "ada");
        assert_eq!(ada.limits.agents, Some(vec!["default".into(), "writer".into()]));
        assert_eq!(
            (ada.limits.requests, ada.limits.turns, ada.calls),
            (Some(60), Some(4), Some(8))
        );
        assert_eq!(ada.daily.tokens, Some(1_000_000));
        assert_eq!(ada.daily.cost_micros, Some(2_500_000));
        assert!(clients[1].name.starts_with("token-"));
        assert_eq!(clients[1].limits, ClientLimits::default());
    }

    #[test]
    fn wrong_settings_are_refused() {
        for (settings, why) in [
            ("admin", "KEY=VALUE"),
            ("grants=read=/", "there is no setting"),
            ("name=ada name=eve", "occurs twice"),
            ("name=../x", "a name has"),
            ("name=page", "reserved"),
            ("name=token-00000000", "reserved"),
            ("turns=0", "at least 1"),
            ("tokens=many", "tokens"),
            ("cost=-1", "cost"),
            ("agents=a,,b", "a list of agents"),
        ] {
            assert!(
                refused(settings).contains(why),
                "{settings}: {}",
                refused(settings)
            );
        }
        let long = |length: usize| format!("name={}", "x".repeat(length));
        assert!(refused(&long(MAX_NAME + 1)).contains("a name has"));
        assert!(read(vec![client(1, &long(MAX_NAME))]).is_ok());
        assert!(read(vec![client(1, "name=ada"), client(2, "name=ada")]).is_err());
    }
}
