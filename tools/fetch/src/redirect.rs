//! Follows redirections. Each hop is a request of its own, which the host checks like any other.

use toolcell_sdk::{Result, ToolError};
use url::Url;

use crate::response::Response;

/// Most redirections that are followed.
pub(crate) const MAX_REDIRECTS: usize = 5;

/// Reads an address.
pub(crate) fn parse_url(text: &str) -> Result<Url> {
    let text = text.trim();
    let url = match Url::parse(text) {
        Ok(url) => url,
        // What people type into a browser.
        Err(url::ParseError::RelativeUrlWithoutBase) => Url::parse(&format!("https://{text}"))
            .map_err(|error| ToolError::invalid(format_args!("`url`: `{text}` is no address: {error}")))?,
        Err(error) => {
            return Err(ToolError::invalid(format_args!(
                "`url`: `{text}` is no address: {error}"
            )));
        }
    };
    if !matches!(url.scheme(), "http" | "https") {
        return Err(ToolError::invalid(format_args!(
            "`url`: `{text}` has the scheme `{}`; only http and https are read",
            url.scheme()
        )));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(ToolError::invalid(
            "`url`: a name or password in an address is not sent",
        ));
    }
    Ok(url)
}

/// Requests an address and what it redirects to, up to the answer.
pub(crate) fn follow(mut url: Url, get: &mut dyn FnMut(&Url) -> Result<Response>) -> Result<(Url, Response)> {
    let mut redirects = 0;
    loop {
        let response = get(&url)?;
        let location = match response.status {
            301 | 302 | 303 | 307 | 308 => response.header("location"),
            _ => None,
        };
        let Some(location) = location else {
            return Ok((url, response));
        };
        if redirects == MAX_REDIRECTS {
            return Err(ToolError::failed(format_args!(
                "more than {MAX_REDIRECTS} redirections, the last one from `{url}` to `{location}`"
            )));
        }
        redirects += 1;
        let next = url.join(&location).map_err(|error| {
            ToolError::failed(format_args!(
                "`{url}` redirects to `{location}`, which is no address: {error}"
            ))
        })?;
        url = parse_url(next.as_str()).map_err(|error| {
            ToolError::failed(format_args!(
                "`{url}` redirects to an address that is not read: {error}"
            ))
        })?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirect(status: u16, to: &str) -> Response {
        Response {
            status,
            headers: vec![("location".into(), to.into())],
            ..Response::default()
        }
    }

    /// Follows from `https://a.example/x/y`; the last response is a plain 200.
    fn follow_all(responses: &[(u16, &str)]) -> (Result<String>, Vec<String>) {
        let mut asked = Vec::new();
        let result = follow(parse_url("https://a.example/x/y").unwrap(), &mut |url| {
            let response = responses
                .get(asked.len())
                .map(|(status, to)| redirect(*status, to));
            asked.push(url.to_string());
            Ok(response.unwrap_or(Response {
                status: 200,
                ..Response::default()
            }))
        });
        (result.map(|(url, _)| url.to_string()), asked)
    }

    #[test]
    fn each_kind_of_location_is_a_request_of_its_own() {
        let (end, asked) = follow_all(&[
            (301, "z"),
            (302, "/top"),
            (307, "//b.example/c"),
            (308, "http://c.example/"),
        ]);
        assert_eq!(end.unwrap(), "http://c.example/");
        assert_eq!(
            asked,
            [
                "https://a.example/x/y",
                "https://a.example/x/z",
                "https://a.example/top",
                "https://b.example/c",
                "http://c.example/"
            ]
        );
    }

    #[test]
    fn redirections_are_followed_up_to_the_limit_and_not_beyond() {
        assert!(follow_all(&[(302, "a"); MAX_REDIRECTS]).0.is_ok());
        let (end, asked) = follow_all(&[(302, "a"); MAX_REDIRECTS + 1]);
        assert!(end.unwrap_err().message().starts_with("more than 5 redirections"));
        assert_eq!(asked.len(), MAX_REDIRECTS + 1);
    }

    #[test]
    fn a_redirection_cannot_leave_the_web() {
        for to in [
            "file:///etc/passwd",
            "ftp://a.example/",
            "javascript:1",
            "https://u:p@a.example/",
        ] {
            let (end, asked) = follow_all(&[(302, to)]);
            assert!(end.unwrap_err().message().contains("is not read"), "{to}");
            assert_eq!(asked.len(), 1);
        }
    }

    #[test]
    fn addresses_are_read_as_people_write_them() {
        assert_eq!(
            parse_url(" example.com/a b ").unwrap().as_str(),
            "https://example.com/a%20b"
        );
        for bad in ["", "ftp://a", "http://", "mailto:a@b.c", "https://u@a.example"] {
            assert!(parse_url(bad).is_err(), "{bad}");
        }
    }
}
