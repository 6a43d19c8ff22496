//! HTTP response.

/// Response with its body, possibly cut.
#[derive(Debug, Clone, Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    /// True if the body was longer than the part that was read.
    pub(crate) cut: bool,
}

impl Response {
    /// Value of a header as text; `None` if there is none.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let (_, value) = self
            .headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Some(String::from_utf8_lossy(value).trim().to_owned())
    }

    /// Media type in lower case, without parameters, and the charset if there is one.
    pub(crate) fn media_type(&self) -> (Option<String>, Option<String>) {
        let Some(value) = self.header("content-type") else {
            return (None, None);
        };
        let mut parts = value.split(';');
        let media_type = parts
            .next()
            .map(|part| part.trim().to_lowercase())
            .filter(|part| !part.is_empty());
        let charset = parts.find_map(|part| {
            let (name, value) = part.split_once('=')?;
            name.trim()
                .eq_ignore_ascii_case("charset")
                .then(|| value.trim().trim_matches('"').to_owned())
        });
        (media_type, charset)
    }

    /// Status code with its reason phrase.
    pub(crate) fn status_text(&self) -> String {
        let reason = match self.status {
            200 => " OK",
            201 => " Created",
            202 => " Accepted",
            204 => " No Content",
            400 => " Bad Request",
            401 => " Unauthorized",
            402 => " Payment Required",
            403 => " Forbidden",
            404 => " Not Found",
            405 => " Method Not Allowed",
            406 => " Not Acceptable",
            408 => " Request Timeout",
            410 => " Gone",
            409 => " Conflict",
            415 => " Unsupported Media Type",
            422 => " Unprocessable Content",
            418 => " I'm a teapot",
            429 => " Too Many Requests",
            451 => " Unavailable For Legal Reasons",
            500 => " Internal Server Error",
            502 => " Bad Gateway",
            503 => " Service Unavailable",
            504 => " Gateway Timeout",
            _ => "",
        };
        format!("{}{reason}", self.status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_type_is_parsed() {
        let with = |value: &str| Response {
            headers: vec![("Content-Type".into(), value.into())],
            ..Response::default()
        };
        assert_eq!(
            with("Text/HTML; a=b; Charset=\"ISO-8859-1\"").media_type(),
            (Some("text/html".into()), Some("ISO-8859-1".into()))
        );
        assert_eq!(with("").media_type(), (None, None));
        assert_eq!(Response::default().media_type(), (None, None));
    }
}
