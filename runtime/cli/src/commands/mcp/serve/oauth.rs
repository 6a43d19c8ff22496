//! `toolcell mcp serve --oauth-issuer`: clients with access tokens of an authorization server.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use clap::Args;
use toolcell_http::access_token::{MAX_SUBJECT_BYTES, Resource, Verifier};
use toolcell_mcp::Authorization;
use url::Url;

use crate::error::{Exit, Failure};
use crate::mcp::oauth::PublishedKeys;
use crate::packages::reference::is_local;
use crate::ui::escape;
use crate::ui::render::Console;
use crate::ui::terminal::{Own, ShownUrl, text};

/// Maximum length of a URL or of a scope, in bytes. They are in a header of answers.
const MAX_BYTES: usize = 1 << 10;

/// Maximum number of scopes, for the same reason.
const MAX_SCOPES: usize = 16;

/// Maximum number of subjects without a client that the user is told of. Anyone with an account at the authorization server
/// can be one.
const MAX_TOLD: usize = 16;

/// Accept access tokens of an authorization server (OAuth 2.1).
#[derive(Debug, Default, Args)]
pub(super) struct OAuth {
    /// Accept access tokens of the authorization server with this URL, of the subjects of --oauth-subject.
    #[arg(long = "oauth-issuer", value_name = "URL", requires_all = ["address", "resource", "subjects"])]
    issuer: Option<String>,

    /// URL of this server as clients know it, such as `https://tools.example/mcp`, which the tokens are for.
    #[arg(long = "oauth-resource", value_name = "URL", requires = "issuer")]
    resource: Option<String>,

    /// Accept the tokens of this subject, the `sub` of a token, as those of a client (repeatable).
    #[arg(long = "oauth-subject", value_name = "SUBJECT", requires = "issuer")]
    subjects: Vec<String>,

    /// Accept only tokens with this scope (repeatable).
    #[arg(long = "oauth-scope", value_name = "SCOPE", requires = "issuer")]
    scopes: Vec<String>,
}

impl OAuth {
    /// Host of the server, as clients know it, with its port.
    pub(super) fn host(&self) -> Option<String> {
        let url = Url::parse(self.resource.as_deref()?).ok()?;
        let host = url.host_str()?;
        Some(match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        })
    }

    /// Returns the subjects that are clients.
    ///
    /// # Errors
    /// Fails for one that no token can have, and for one that occurs twice.
    pub(super) fn subjects(&self) -> Result<&[String], Failure> {
        let mut seen = HashSet::new();
        for subject in &self.subjects {
            let why = match subject.len() {
                0 => "it is empty".into(),
                1..=MAX_SUBJECT_BYTES if seen.insert(subject) => continue,
                1..=MAX_SUBJECT_BYTES => "it occurs twice".into(),
                _ => text!("it has more than {} bytes", MAX_SUBJECT_BYTES),
            };
            let failed = text!("--oauth-subject `{}` cannot be used", subject);
            return Err(Failure::new(Exit::Usage, failed).why(why));
        }
        Ok(&self.subjects)
    }

    /// Reads the keys of the authorization server. `None` if there is none.
    pub(super) async fn authorization(&self, console: &Console) -> Result<Option<Authorization>, Failure> {
        let (Some(issuer), Some(resource)) = (&self.issuer, &self.resource) else {
            return Ok(None);
        };
        let issuer_url = url("--oauth-issuer", issuer)?;
        url("--oauth-resource", resource)?;
        self.check_scopes()?;
        let source = PublishedKeys::of(&issuer_url, issuer);
        let read = {
            let _activity = console.activity("asking the authorization server");
            source.keys().await
        };
        let keys = read.map_err(|reason| {
            let failed = text!(
                "the keys of the authorization server {} cannot be read",
                ShownUrl(issuer)
            );
            let hint = "its URL is written as its own metadata have it as `issuer`, to the last character";
            Failure::new(Exit::Config, failed).why(reason).hint(hint)
        })?;
        let resource = Resource {
            url: resource.clone(),
            issuer: issuer.clone(),
            scopes: self.scopes.clone(),
        };
        let console = console.clone();
        let told = Mutex::new(HashSet::new());
        let on_unknown = move |subject: &str| {
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.len() < MAX_TOLD && told.insert(subject.to_owned()) {
                let flag = escape::shell(subject);
                console.note(text!(
                    "a client was refused: its token is valid, and nobody has allowed its subject; to allow it, add `--oauth-subject {}`",
                    flag
                ));
            }
        };
        Ok(Some(Authorization {
            verifier: Verifier::new(resource, keys, Box::new(source)),
            on_unknown: Box::new(on_unknown),
        }))
    }

    /// Checks that the scopes are of the characters of scopes (RFC 6749, section 3.3).
    fn check_scopes(&self) -> Result<(), Failure> {
        if self.scopes.len() > MAX_SCOPES {
            return Err(Failure::new(Exit::Usage, "there are too many scopes")
                .why(text!("there can be {}", MAX_SCOPES)));
        }
        let is_character = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
        let is_scope =
            |scope: &&String| (1..=MAX_BYTES).contains(&scope.len()) && scope.bytes().all(is_character);
        match self.scopes.iter().find(|scope| !is_scope(scope)) {
            Some(scope) => Err(Failure::new(
                Exit::Usage,
                text!("--oauth-scope `{}` cannot be used", scope),
            )
            .why(text!(
                "a scope has at most {} bytes, all of them printable ASCII characters other than a space, `\"` and `\\`",
                MAX_BYTES
            ))),
            None => Ok(()),
        }
    }
}

/// Reads the URL of a server: `https`, or `http` on this machine.
fn url(flag: &'static str, written: &str) -> Result<Url, Failure> {
    let failed = |why: &'static str| {
        Failure::new(
            Exit::Usage,
            text!("{} {} cannot be used", Own(flag), ShownUrl(written)),
        )
        .why(why)
    };
    let Ok(url) = Url::parse(written) else {
        return Err(failed("it is not a URL"));
    };
    let is_here = url.scheme() == "http" && is_local(&url);
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
    if written.len() > MAX_BYTES {
        Err(failed("it is too long"))
    } else if url.scheme() != "https" && !is_here {
        Err(failed("it is not reached over `https`"))
    } else if !url.username().is_empty() || url.password().is_some() {
        Err(failed("it has a user name or a password"))
    } else if url.query().is_some() || url.fragment().is_some() {
        Err(failed("it has a part after `?` or `#`"))
    } else if !written.bytes().all(is_plain) {
        Err(failed("it has characters that are not those of a URL"))
    } else {
        Ok(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(subjects: &[&str], scopes: &[&str]) -> OAuth {
        OAuth {
            resource: Some("https://tools.example:8443/mcp".into()),
            subjects: subjects.iter().map(|&subject| subject.to_owned()).collect(),
            scopes: scopes.iter().map(|&scope| scope.to_owned()).collect(),
            ..OAuth::default()
        }
    }

    #[test]
    fn subjects_are_those_that_a_token_can_have() {
        let long = |size: usize| "s".repeat(size);
        for (subjects, expected) in [
            (vec!["ada", "auth0|5", "name with blanks"], None),
            (vec!["ada", "ada"], Some("occurs twice")),
            (vec![""], Some("is empty")),
            (vec![&*long(MAX_SUBJECT_BYTES)], None),
            (vec![&*long(MAX_SUBJECT_BYTES + 1)], Some("more than 256 bytes")),
        ] {
            let oauth = of(&subjects, &[]);
            let failed = oauth.subjects().err().map(|failure| format!("{failure:?}"));
            assert_eq!(failed.is_some(), expected.is_some(), "{subjects:?}");
            let failed = failed.unwrap_or_default();
            assert!(failed.contains(expected.unwrap_or_default()), "{failed}");
        }
        assert_eq!(of(&[], &[]).host().as_deref(), Some("tools.example:8443"));
    }

    #[test]
    fn scopes_and_urls_stay_within_their_place_in_a_header() {
        let long = |size: usize| "s".repeat(size);
        for (scope, is_allowed) in [
            ("tools:call", true),
            (&long(MAX_BYTES), true),
            (&long(MAX_BYTES + 1), false),
            ("", false),
            ("a b", false),
            ("a\"b", false),
            ("a\\b", false),
            ("a\r\nb", false),
            ("ä", false),
        ] {
            assert_eq!(of(&[], &[scope]).check_scopes().is_ok(), is_allowed, "{scope}");
        }
        assert!(of(&[], &["s"; MAX_SCOPES]).check_scopes().is_ok());
        assert!(of(&[], &["s"; MAX_SCOPES + 1]).check_scopes().is_err());
        let begin = "https://a.example/";
        for (written, is_allowed) in [
            ("https://tools.example/mcp", true),
            ("http://127.0.0.1:8080/mcp", true),
            (&*format!("{begin}{}", long(MAX_BYTES - begin.len())), true),
            (&*format!("{begin}{}", long(MAX_BYTES + 1 - begin.len())), false),
            ("http://tools.example/mcp", false),
            ("https://u:p@tools.example/", false),
            ("https://tools.example/?x", false),
            ("https://tools.example/#x", false),
            ("https://tools.example/\"x", false),
            ("https://tools.example/a b", false),
            ("https://tools.example/\n", false),
            ("file:///etc/passwd", false),
            ("tools", false),
        ] {
            assert_eq!(url("--oauth-resource", written).is_ok(), is_allowed, "{written}");
        }
    }
}
