//! Headers of HTTP requests that nobody can add to those of a client: they belong to the connection or describe the body.

/// Names of these headers, in lower case.
const OF_CLIENT: [&str; 13] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// True if the HTTP client sets a header of this name, in any case, for each request, or if it would break the connection.
pub fn is_of_client(name: &str) -> bool {
    OF_CLIENT.iter().any(|own| own.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_connection_are_known_in_any_case() {
        for name in ["Content-Length", "HOST", "te", "Transfer-Encoding"] {
            assert!(is_of_client(name), "{name}");
        }
        for name in ["Authorization", "X-Host", "Accept", "User-Agent", ""] {
            assert!(!is_of_client(name), "{name}");
        }
    }
}
