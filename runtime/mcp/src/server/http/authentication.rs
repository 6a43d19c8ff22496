//! The client of a request, known by its bearer token.

use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use toolcell_http::access_token::InvalidToken;

use super::client::Client;
use super::refused::{Refused, unauthorized};
use super::{Authorization, KnownBy};

/// Returns the client whose token the request carries.
///
/// # Errors
/// The answer to a request without a token, or with one that is not accepted.
pub(super) async fn client<'c>(
    clients: &'c [Client],
    authorization: Option<&Authorization>,
    headers: &HeaderMap,
) -> Result<&'c Client, Refused> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let header = values.next().filter(|_| values.next().is_none());
    let header = header.map_or(&b""[..], HeaderValue::as_bytes);
    let mut found = None;
    // All of them are compared, so that the time tells nothing about which it is.
    for client in clients {
        let is_known = match &client.known_by {
            KnownBy::Nothing => true,
            KnownBy::Token(token) => token.is_in(header),
            KnownBy::Subject(_) => false,
        };
        if is_known {
            found = Some(client);
        }
    }
    match (found, authorization) {
        (Some(client), _) => Ok(client),
        (None, Some(own)) => of_subject(clients, own, header).await,
        (None, None) => Err(unauthorized(
            "Bearer".into(),
            "the request needs a valid bearer token",
        )),
    }
}

/// Returns the client whose access token the request carries.
async fn of_subject<'c>(
    clients: &'c [Client],
    own: &Authorization,
    header: &[u8],
) -> Result<&'c Client, Refused> {
    let verifier = &own.verifier;
    let subject = match verifier.subject(header).await {
        None => {
            let reason = "the request needs an access token";
            return Err(unauthorized(verifier.challenge(None), reason));
        }
        Some(Err(InvalidToken::NoKeys)) => {
            let reason = format!("the access token cannot be checked: {}", InvalidToken::NoKeys);
            return Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, &reason));
        }
        Some(Err(InvalidToken::Scope)) => {
            let reason = format!("the access token is not accepted: {}", InvalidToken::Scope);
            let refused = Refused::new(StatusCode::FORBIDDEN, &reason);
            return Err(refused.challenging(verifier.challenge(Some("insufficient_scope"))));
        }
        Some(Err(invalid)) => {
            let reason = format!("the access token is not accepted: {invalid}");
            return Err(unauthorized(verifier.challenge(Some("invalid_token")), &reason));
        }
        Some(Ok(subject)) => subject,
    };
    let mut clients = clients.iter();
    let found = clients.find(|client| matches!(&client.known_by, KnownBy::Subject(own) if *own == subject));
    found.ok_or_else(|| {
        (own.on_unknown)(&subject);
        let reason = "the subject of the access token is not a client of this server";
        Refused::new(StatusCode::FORBIDDEN, reason)
    })
}
