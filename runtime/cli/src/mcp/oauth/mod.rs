//! OAuth 2.1 for MCP over HTTP: the login to servers, by authorization code with PKCE, for a public client on this machine; and
//! the keys with which the tokens of our own clients are checked.
//!
//! The server and its authorization server are not trusted. A server names only documents of its own origin; the authorization
//! server must have the identifier under which it was found; every other address is public and reached over TLS, unless the
//! user named it; documents are small and have a time limit; redirects are not followed. Tokens belong to one server, and to
//! the authorization server that issued them: they are sent to no other.
//!
//! | concept | module |
//! |---|---|
//! | requests, with limits of size and time | `fetch` |
//! | metadata of the server and of the authorization server (RFC 9728, RFC 8414) | `metadata` |
//! | identifier of the client: configured, or registered (RFC 7591) | `client` |
//! | the browser's answer, on this machine | `callback` |
//! | one login | `login` |
//! | tokens: requested, refreshed (RFC 6749), revoked (RFC 7009) | `token` |
//! | tokens that are kept | `store` |
//! | tokens for the requests to a server, and the end of a login | `source` |
//! | keys of an authorization server whose tokens we accept | `keys` |

mod callback;
mod client;
mod fetch;
mod keys;
mod login;
mod metadata;
mod source;
mod store;
mod token;

pub(crate) use client::OwnClient;
pub(crate) use keys::PublishedKeys;
pub(crate) use login::{LOGIN_TIME, Login, NoLogin, Wishes};
pub(crate) use source::{Revoked, StoredTokens, revoke};
pub(crate) use store::TokenStore;

use toolcell_core::Secrets;

use crate::config::McpSettings;
use crate::config::mcp::Transport;
use crate::ui::terminal::Text;

/// Reason of a failure: own words, with words of others in their places.
type Reason = Text;

/// Maximum size of a text of an authorization server that is kept or shown, in bytes: an identifier, an address, scopes.
const MAX_TEXT_BYTES: usize = 2 << 10;

/// Client that the user has registered for a server.
pub(crate) fn client_of(server: &McpSettings, secrets: &Secrets) -> OwnClient {
    let Transport::Http { oauth, .. } = &server.transport else {
        return OwnClient::default();
    };
    let secret = oauth.client_secret.as_deref().and_then(|name| secrets.get(name));
    OwnClient {
        id: oauth.client_id.clone(),
        secret: secret.map(|secret| secret.expose().to_owned()),
    }
}

/// Tokens for the requests to a server; `None` if there is no login to it.
pub(crate) fn tokens_of(server: &McpSettings, secrets: &Secrets) -> Option<StoredTokens> {
    let Transport::Http { oauth, .. } = &server.transport else {
        return None;
    };
    if server.has_authorization() {
        return None;
    }
    let store = TokenStore::of(server)?;
    StoredTokens::new(store, oauth.issuer.as_deref(), client_of(server, secrets))
}
