//! Responses.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

use crate::{Result, ResultExt as _, ToolError, show};

/// Maximum length of the start of a body in an error, in characters.
const SHOWN: usize = 200;

/// A response with its body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    pub(super) url: String,
    pub(super) status: u16,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    pub(super) body: Vec<u8>,
    pub(super) is_cut: bool,
}

impl Response {
    /// Status code, such as 200.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Headers in the order of the server, with their names in lower case.
    pub fn headers(&self) -> &[(String, Vec<u8>)] {
        &self.headers
    }

    /// Value of a header, the first one of this name, without blanks around it. Invalid UTF-8 is replaced.
    pub fn header(&self, name: &str) -> Option<String> {
        let mut headers = self.headers.iter();
        let (_, value) = headers.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Some(String::from_utf8_lossy(value).trim().to_owned())
    }

    /// The response itself if its status is 200 to 299.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) for 408, 425, 429 and 500 to 599, otherwise
    /// [`ErrorKind::Failed`](crate::ErrorKind::Failed), with the status and the start of the body.
    pub fn ok(self) -> Result<Self> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        let text = self.text();
        let mut message = format!("{} answered with status {}", show::quoted(&self.url), self.status);
        if let Some(location) = self.header("location") {
            message.push_str(&format!(" and leads to {}", show::quoted(location)));
        }
        let start: String = text.trim().chars().take(SHOWN).collect();
        if !start.is_empty() {
            message.push_str(": ");
            message.push_str(&start);
        }
        Err(match self.status {
            408 | 425 | 429 | 500..=599 => ToolError::unavailable(message),
            _ => ToolError::failed(message),
        })
    }

    /// Body.
    pub fn bytes(&self) -> &[u8] {
        &self.body
    }

    /// Body, and nothing else.
    pub fn into_bytes(self) -> Vec<u8> {
        self.body
    }

    /// Body as UTF-8 text, with what is invalid replaced.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }

    /// Body as JSON.
    ///
    /// # Errors
    /// Fails if the body is no JSON of this type.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.body)
            .context(format_args!("{}: unexpected response", show::quoted(&self.url)))
    }

    /// True if the body is longer than [`Request::cut_body`](super::Request::cut_body) lets it be.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::http::testing::response;

    #[test]
    fn status_decides_the_kind_of_error() {
        for (status, expected) in [
            (200, None),
            (299, None),
            (199, Some(ErrorKind::Failed)),
            (300, Some(ErrorKind::Failed)),
            (404, Some(ErrorKind::Failed)),
            (408, Some(ErrorKind::Unavailable)),
            (429, Some(ErrorKind::Unavailable)),
            (500, Some(ErrorKind::Unavailable)),
            (599, Some(ErrorKind::Unavailable)),
        ] {
            let kind = response(status, "x").ok().err().map(|error| error.kind());
            assert_eq!(kind, expected, "{status}");
        }
    }

    #[test]
    fn error_shows_the_start_of_the_body_and_the_redirect() {
        let long = "é".repeat(SHOWN + 1);
        let error = response(302, long)
            .with_header("Location", "/there")
            .ok()
            .unwrap_err();
        assert!(
            error.message().contains("status 302 and leads to `/there`: é"),
            "{error}"
        );
        assert_eq!(error.message().matches('é').count(), SHOWN);
    }

    #[test]
    fn json_of_another_form_is_an_error() {
        assert_eq!(response(200, "[1, 2]").json::<Vec<u8>>().unwrap(), [1, 2]);
        let error = response(200, "<html>").json::<Vec<u8>>().unwrap_err();
        assert!(error.message().contains("unexpected response"), "{error}");
    }
}
