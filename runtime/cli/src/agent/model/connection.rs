//! Connection to a provider: host and proxy.

use toolcell_providers::HttpOptions;

use crate::environment::Environment;

/// Returns the host that a request to a URL goes to (WHATWG URL, section 4.4), in lower case; empty if there is none.
fn host_of(url: &str) -> String {
    let url = url::Url::parse(url).ok();
    let host = url.as_ref().and_then(|url| url.host_str()).unwrap_or_default();
    host.trim_start_matches('[').trim_end_matches(']').to_owned()
}

pub(super) fn is_loopback(url: &str) -> bool {
    let host = host_of(url);
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Returns the connection options, with a proxy if the usual variables name one.
pub(super) fn http(environment: &Environment, base_url: &str) -> HttpOptions {
    let mut options = HttpOptions::default();
    let of = |upper: &str, lower: &str| {
        environment
            .var(lower)
            .or_else(|| environment.var(upper))
            .map(str::to_owned)
    };
    let excluded = of("NO_PROXY", "no_proxy").unwrap_or_default();
    let host = host_of(base_url);
    let is_excluded = is_loopback(base_url)
        || excluded
            .split(',')
            .map(|entry| entry.trim().trim_start_matches('.'))
            .any(|entry| {
                entry == "*"
                    || (!entry.is_empty() && (host == *entry || host.ends_with(&format!(".{entry}"))))
            });
    if !is_excluded {
        let by_scheme = if base_url.starts_with("https://") {
            of("HTTPS_PROXY", "https_proxy")
        } else {
            // Upper case is not read here: a CGI server sets HTTP_PROXY from a request header (httpoxy.org).
            environment.var("http_proxy").map(str::to_owned)
        };
        options.proxy = by_scheme.or_else(|| of("ALL_PROXY", "all_proxy"));
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_found_in_every_form_of_url() {
        for (url, host) in [
            ("https://api.openai.com/v1", "api.openai.com"),
            ("http://user:pw@a.b:80/x@y", "a.b"),
            ("http://[::1]:8080/v1", "::1"),
            ("http://EVIL.example\\@127.0.0.1/v1", "evil.example"),
            ("http://127.1/v1", "127.0.0.1"),
            ("localhost:1", ""),
        ] {
            assert_eq!(host_of(url), host);
        }
    }

    #[test]
    fn proxy_comes_from_environment_and_never_applies_to_loopback() {
        let cwd = std::path::Path::new("/");
        let proxy = |vars: &[(&str, &str)], url: &str| http(&Environment::for_tests(cwd, vars), url).proxy;
        let https = [("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", "x.org, .intern")];
        assert_eq!(
            proxy(&https, "https://a.example/v1").as_deref(),
            Some("http://p:1")
        );
        assert_eq!(proxy(&https, "http://a.example/v1"), None);
        assert_eq!(proxy(&https, "https://x.org/v1"), None);
        assert_eq!(proxy(&https, "https://a.intern/v1"), None);
        assert_eq!(proxy(&https, "https://ax.org/v1").as_deref(), Some("http://p:1"));
        assert_eq!(
            proxy(&[("ALL_PROXY", "http://p:1")], "http://localhost:11434/v1"),
            None
        );
        assert_eq!(proxy(&[("HTTP_PROXY", "http://p:1")], "http://a.example"), None);
    }
}
