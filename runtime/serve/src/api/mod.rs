//! The API of Toolcell, as `API.md` describes it.

mod events;
mod openapi;
mod questions;
mod routes;
mod scratch;
mod sessions;
mod tools;
mod turns;

use hyper::{Method, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use toolcell_core::store::SessionInfo;
use toolcell_http::BoxBody;

pub(crate) use self::openapi::document as openapi;
pub(crate) use self::routes::find as route;
use crate::answer::{self, Failure};
use crate::clients::name_of;
use crate::host::ScratchDecision;
use crate::markdown::{self, MAX_MARKDOWN_TEXTS};
use crate::server::{Call, Server};

/// Maximum size of texts that are rendered on a thread of the runtime, in bytes: about a millisecond. Larger ones would hold up
/// other requests, and have a thread of their own.
const MAX_INLINE: usize = 16 << 10;

/// Maximum number of days of usage.
const MAX_DAYS: u64 = 366;

/// Requests that work without a model.
const EXAMPLES: [&str; 3] = [
    "How many words are in \"the quick brown fox\"?",
    "How many days are there from 2026-01-01 to 2026-12-25?",
    "Compare \"red, green\" with \"red, blue\"",
];

/// Returns a parameter of a query, decoded; `None` if it is absent.
///
/// # Errors
/// It is not percent-encoded UTF-8 (RFC 3986, section 2.1).
pub(crate) fn param(query: &str, name: &str) -> Result<Option<String>, Failure> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let Some((_, value)) = pairs.find(|(key, _)| *key == name) else {
        return Ok(None);
    };
    let wrong = || Failure::invalid(format!("`{name}` is not percent-encoded UTF-8"));
    decoded(value).map(Some).ok_or_else(wrong)
}

/// Decodes a part of a path.
pub(crate) fn part(value: &str) -> Result<String, Failure> {
    // A plus is itself in a path.
    let value = value.replace('+', "%2B");
    decoded(&value).ok_or_else(|| Failure::invalid("the path is not percent-encoded UTF-8"))
}

fn decoded(value: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(value.len());
    let mut bytes = value.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok()
}

impl Call {
    /// Parses the body.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        crate::body::parse(&self.body)
    }

    /// Parses the body, which is freed.
    pub(crate) fn parse_once<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let body = std::mem::take(&mut self.body);
        crate::body::parse(&body)
    }

    /// Parses the body of a request without members.
    pub(crate) fn parse_nothing(&self) -> Result<(), Failure> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Nothing {}
        self.parse::<Nothing>().map(drop)
    }

    /// Parses a number of the query.
    pub(crate) fn number(&self, name: &str, default: u64, most: u64) -> Result<u64, Failure> {
        let Some(text) = param(&self.query, name)? else {
            return Ok(default);
        };
        let number = text.parse().ok().filter(|number| *number <= most);
        number.ok_or_else(|| {
            Failure::invalid(format!("`{name}` is a whole number of at most {most}")).param(name)
        })
    }
}

/// Answers a request of `/api`.
pub(crate) async fn respond(
    server: &Server,
    call: Call,
    held: Option<OwnedSemaphorePermit>,
    place: OwnedSemaphorePermit,
) -> Result<Response<BoxBody>, Failure> {
    let path = call.path.clone();
    let parts: Vec<&str> = path.split('/').skip(2).collect();
    let host = &server.turns.host;
    let is_get = call.method == Method::GET;
    match parts.as_slice() {
        ["info"] => Ok(answer::ok(&info(server, &call))),
        ["tools"] => tools::respond(server, &call).await,
        ["usage"] => {
            let days = call.number("days", 30, MAX_DAYS)?;
            let usage = host.usage(&call.caller.owner, days).await;
            Ok(answer::ok(&usage.map_err(Failure::failed)?))
        }
        ["scratch"] => scratch::list(server, &call).await,
        ["scratch", name] => scratch::show(server, &call, &part(name)?).await,
        ["scratch", name, word] => {
            let decision = match *word {
                "commit" => ScratchDecision::Commit,
                _ => ScratchDecision::Discard,
            };
            scratch::decide(server, &call, &part(name)?, decision).await
        }
        ["questions"] => questions::all(server, &call).await,
        ["markdown"] => render(call.body).await,
        ["sessions"] if is_get => sessions::list(server, &call).await,
        ["sessions"] => sessions::create(server, &call).await,
        ["sessions", id, rest @ ..] => {
            let session = session(server, &call, id).await?;
            match rest {
                [] if is_get => sessions::show(server, &session).await,
                [] if call.method == Method::PATCH => sessions::rename(server, &call, &session).await,
                [] => sessions::delete(server, &call, &session).await,
                ["fork"] => sessions::fork(server, &call, &session).await,
                ["export"] => sessions::export(server, &call, &session).await,
                ["receipts"] => sessions::receipts(server, &session).await,
                ["events"] => events::respond(server, &call, session, place).await,
                ["questions"] => Ok(questions::of_session(server, &session)),
                ["questions", question] => questions::answer(server, &call, &session, question),
                ["calls", id, "cancel"] => turns::cancel_call(server, &call, &session, &part(id)?),
                [word] => {
                    let started = turns::respond(server, &call, session, word).await;
                    drop(held);
                    started
                }
                _ => Err(Failure::not_found("there is nothing at this path")),
            }
        }
        _ => Err(Failure::not_found("there is nothing at this path")),
    }
}

/// Renders texts of the page.
async fn render(body: Vec<u8>) -> Result<Response<BoxBody>, Failure> {
    let rendered = match body.len() > MAX_INLINE {
        true => tokio::task::spawn_blocking(move || markdown::respond(&body)).await,
        false => Ok(markdown::respond(&body)),
    };
    match rendered.map_err(|_| Failure::failed("the text could not be rendered"))? {
        Ok(rendered) => Ok(answer::bytes(StatusCode::OK, "application/json", rendered)),
        Err(error @ markdown::MarkdownError::TooLarge { .. }) => Err(Failure::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            error.to_string(),
        )),
        Err(error) => Err(Failure::invalid(error.to_string())),
    }
}

fn info(server: &Server, call: &Call) -> Value {
    let host = &server.turns.host;
    let limits = &call.caller.state.limits;
    let agents = host.agents().iter().filter(|agent| limits.allows(&agent.id));
    json!({
        "version": host.version(),
        "user": name_of(&call.caller.owner),
        "agents": agents.collect::<Vec<_>>(),
        "limits": {"message_bytes": turns::MAX_TEXT, "attachment_bytes": turns::MAX_ATTACHED, "attachments": turns::MAX_ATTACHMENTS},
        "examples": EXAMPLES,
    })
}

/// Returns a session of the client. That of another is as one that does not exist.
async fn session(server: &Server, call: &Call, id: &str) -> Result<SessionInfo, Failure> {
    let info = server.turns.host.store().info(id).await?;
    match server.is_of_caller(call, &info) {
        true => Ok(info),
        false => Err(Failure::no_session()),
    }
}

#[cfg(test)]
mod tests {
    use super::routes::{ROUTES, Route};
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = "q=a+b%20c&limit=5&bad=%g1&cut=%4";
        assert_eq!(param(query, "q").unwrap().as_deref(), Some("a b c"));
        assert_eq!(param(query, "limit").unwrap().as_deref(), Some("5"));
        assert_eq!(param(query, "none").unwrap(), None);
        for wrong in ["bad", "cut"] {
            assert_eq!(param(query, wrong).unwrap_err().status, 400, "{wrong}");
        }
    }

    #[test]
    fn contract_names_every_route() {
        let page = include_str!("../../API.md");
        for Route { method, path, .. } in ROUTES {
            let plain = path
                .replace("{id}", "ID")
                .replace("{model}", "ID")
                .replace("{question}", "QID")
                .replace("{call}", "CALL")
                .replace("{name}", "NAME");
            assert!(page.contains(&plain), "{method} {plain}");
        }
        let document: Value = serde_json::from_str(&openapi::document()).unwrap();
        for Route { method, path, .. } in ROUTES {
            assert!(
                document["paths"][path][method.to_lowercase()].is_object(),
                "{method} {path}"
            );
        }
    }
}
