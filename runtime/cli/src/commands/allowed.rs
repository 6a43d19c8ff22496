//! Hosts and origins that the user allows, in the form in which requests name them.

use url::Url;

/// Warning for a server that listens on all addresses, none of whose names is allowed.
pub(super) const NO_NAMES: &str = "warning: only requests to an address of this machine, such as `192.0.2.1:8080`, are accepted: allow a name of it with --allow-host HOST:PORT";

/// Returns a host as the header `Host` has it: with its port if that is not the default of the scheme.
///
/// # Errors
/// The form of a host: any other text would match no request.
pub(super) fn host(text: &str) -> Result<String, String> {
    let form = "it is a host, such as `tools.example` or `tools.example:8443`";
    let url = Url::parse(&format!("https://{text}")).map_err(|_| form)?;
    let has_more = text.contains(['/', '\\', '?', '#', '@', '*']) || text.contains(char::is_whitespace);
    let name = url
        .host_str()
        .filter(|name| !has_more && !name.is_empty())
        .ok_or(form)?;
    // The port as it is written: a proxy may have the default one of either scheme.
    let port = text
        .rsplit_once(':')
        .map(|(_, port)| port)
        .filter(|port| !port.ends_with(']'));
    Ok(match port {
        Some("") => return Err(form.into()),
        Some(port) => format!("{name}:{port}"),
        None => name.to_owned(),
    })
}

/// Returns an origin as browsers write it in the header `Origin`: without a path, and without the default port.
///
/// # Errors
/// The form of an origin: any other text would match no request.
pub(super) fn origin(text: &str) -> Result<String, String> {
    let form = "it is an origin, such as `https://example.com`";
    let url = Url::parse(text).map_err(|_| form)?;
    let is_bare = matches!(url.path(), "" | "/")
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    let name = url
        .host_str()
        .filter(|name| is_bare && !name.is_empty() && !name.contains('*'));
    let name = name.ok_or(form)?;
    // Those of extensions and applications have schemes of their own, which the standard for URLs knows no origin of.
    Ok(match url.port() {
        Some(port) => format!("{}://{name}:{port}", url.scheme()),
        None => format!("{}://{name}", url.scheme()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_one_that_requests_can_name() {
        for (text, expected) in [
            ("tools.example", "tools.example"),
            ("Tools.Example:8443", "tools.example:8443"),
            ("tools.example:443", "tools.example:443"),
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("[2001:db8::1]", "[2001:db8::1]"),
            ("[2001:db8::1]:80", "[2001:db8::1]:80"),
            ("bücher.example", "xn--bcher-kva.example"),
        ] {
            assert_eq!(host(text), Ok(expected.to_owned()), "{text}");
        }
        for text in [
            "",
            "*",
            "*.example",
            "a b",
            "https://tools.example",
            "tools.example/mcp",
            "tools.example?",
            "tools.example#",
            "me@tools.example",
            "tools.example:",
            "tools.example:x",
            "tools.example:65536",
            ":80",
        ] {
            assert!(host(text).is_err(), "{text}");
        }
    }

    #[test]
    fn origin_is_one_that_browsers_send() {
        for (text, expected) in [
            ("https://example.com", "https://example.com"),
            ("https://Example.com:443/", "https://example.com"),
            ("http://localhost:5173", "http://localhost:5173"),
            ("chrome-extension://abcdef", "chrome-extension://abcdef"),
        ] {
            assert_eq!(origin(text), Ok(expected.to_owned()), "{text}");
        }
        for text in [
            "",
            "*",
            "null",
            "example.com",
            "https://*",
            "https://*.example.com",
            "https://example.com/app",
            "https://example.com/?",
            "https://example.com#",
            "https://me@example.com",
            "file:///x",
        ] {
            assert!(origin(text).is_err(), "{text}");
        }
    }
}
