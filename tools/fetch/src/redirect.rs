//! Follows redirects. Each hop is a request of its own, which the host checks like any other.

use toolcell_sdk::{Result, ToolError, show};
use url::Url;

use crate::response::Response;

/// Maximum number of redirects.
pub(crate) const MAX_REDIRECTS: usize = 5;

/// Parses a URL.
pub(crate) fn parse_url(text: &str) -> Result<Url> {
    let text = text.trim();
    let invalid = |error| {
        let url = show::quoted(text);
        ToolError::invalid(format_args!("`url`: invalid URL {url}: {error}"))
    };
    let url = match Url::parse(text) {
        Ok(url) => url,
        // URLs without a scheme, as typed into a browser.
        Err(url::ParseError::RelativeUrlWithoutBase) => {
            Url::parse(&format!("https://{text}")).map_err(invalid)?
        }
        Err(error) => return Err(invalid(error)),
    };
    if !matches!(url.scheme(), "http" | "https") {
        return Err(ToolError::invalid(format_args!(
            "`url`: {} has the scheme {}; only http and https are supported",
            show::quoted(text),
            show::quoted(url.scheme())
        )));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(ToolError::invalid(
            "`url`: user names and passwords in URLs are not supported",
        ));
    }
    Ok(url)
}

/// Requests a URL and follows redirects up to the final response.
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
                "more than {MAX_REDIRECTS} redirects, the last one from {} to {}",
                show::quoted(url.as_str()),
                show::quoted(location)
            )));
        }
        redirects += 1;
        let next = url.join(&location).map_err(|error| {
            ToolError::failed(format_args!(
                "{} redirects to the invalid URL {}: {error}",
                show::quoted(url.as_str()),
                show::quoted(&location)
            ))
        })?;
        url = parse_url(next.as_str()).map_err(|error| {
            let url = show::quoted(url.as_str());
            ToolError::failed(format_args!("{url} redirects to an unsupported URL: {error}"))
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

    /// Follows redirects from `https://a.example/x/y`; the last response is a plain 200.
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
    fn each_redirect_is_a_request_of_its_own() {
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
    fn redirects_beyond_the_limit_are_not_followed() {
        assert!(follow_all(&[(302, "a"); MAX_REDIRECTS]).0.is_ok());
        let (end, asked) = follow_all(&[(302, "a"); MAX_REDIRECTS + 1]);
        assert!(end.unwrap_err().message().starts_with("more than 5 redirects"));
        assert_eq!(asked.len(), MAX_REDIRECTS + 1);
    }

    #[test]
    fn redirect_to_another_scheme_is_refused() {
        for to in [
            "file:///etc/passwd",
            "ftp://a.example/",
            "javascript:1",
            "https://u:p@a.example/",
        ] {
            let (end, asked) = follow_all(&[(302, to)]);
            assert!(end.unwrap_err().message().contains("unsupported URL"), "{to}");
            assert_eq!(asked.len(), 1);
        }
    }

    #[test]
    fn urls_without_a_scheme_are_accepted() {
        assert_eq!(
            parse_url(" example.com/a b ").unwrap().as_str(),
            "https://example.com/a%20b"
        );
        for bad in ["", "ftp://a", "http://", "mailto:a@b.c", "https://u@a.example"] {
            assert!(parse_url(bad).is_err(), "{bad}");
        }
    }
}
