//! Grants for HTTP, made ready for matching.

use std::net::IpAddr;

use toolcell_core::Grant;
use toolcell_core::policy::HttpGrant;

use super::address::{self, Reach};
use super::path::PathPrefix;
use super::target::{Host, Scheme, Target};

/// All HTTP grants of one policy. What no grant allows is denied.
#[derive(Debug, Default)]
pub(crate) struct Rules(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    host: HostPattern,
    ports: Vec<u16>,
    schemes: Vec<String>,
    methods: Vec<String>,
    path: PathPrefix,
    private: bool,
}

#[derive(Debug)]
enum HostPattern {
    /// `*`.
    Any,
    /// `*.example.com`, kept as `.example.com`.
    Below(String),
    /// One host.
    One(Host),
    /// Nothing: what stands in the grant is no host.
    None,
}

/// Which addresses a request may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// Public ones.
    Public,
    /// Also private ones, by a grant with a pattern.
    Private,
    /// Also private ones and metadata services, by a grant for exactly this host.
    Named,
}

impl Scope {
    /// Whether an address may be connected to.
    pub(crate) fn permits(self, ip: IpAddr) -> bool {
        match address::reach(ip) {
            Reach::Public => true,
            Reach::Private => self >= Self::Private,
            Reach::Metadata => self >= Self::Named,
            Reach::Nowhere => false,
        }
    }
}

impl Rules {
    pub(crate) fn new(grants: &[HttpGrant]) -> Self {
        Self(grants.iter().map(Rule::new).collect())
    }

    /// The widest scope in which a grant allows the request; `None` if no grant does. Looks nothing up: whether the
    /// addresses of a name lie in the scope is checked after the look-up.
    pub(crate) fn scope(&self, method: &str, target: &Target) -> Option<Scope> {
        let scope = self
            .0
            .iter()
            .filter(|rule| rule.allows(method, target))
            .map(Rule::scope)
            .max()?;
        let in_scope = match &target.host {
            Host::Ip(ip) => scope.permits(*ip),
            Host::Name(name) => scope >= Scope::Private || address::is_public_name(name),
        };
        in_scope.then_some(scope)
    }
}

impl Rule {
    fn new(grant: &HttpGrant) -> Self {
        Self {
            host: HostPattern::new(&grant.host),
            ports: grant.ports.clone(),
            schemes: grant.schemes.clone(),
            methods: grant.methods.clone(),
            path: PathPrefix::new(&grant.path),
            private: grant.private,
        }
    }

    fn scope(&self) -> Scope {
        match (self.private, &self.host) {
            (false, _) => Scope::Public,
            (true, HostPattern::One(_)) => Scope::Named,
            (true, _) => Scope::Private,
        }
    }

    fn allows(&self, method: &str, target: &Target) -> bool {
        let scheme = target.scheme;
        let method_fits = match self.methods.as_slice() {
            [] => matches!(method, "GET" | "HEAD"),
            methods => methods.iter().any(|m| m == method),
        };
        let scheme_fits = match self.schemes.as_slice() {
            [] => scheme == Scheme::Https,
            schemes => schemes.iter().any(|s| s.eq_ignore_ascii_case(scheme.as_str())),
        };
        let port_fits = match self.ports.as_slice() {
            [] => target.port == scheme.default_port(),
            ports => ports.contains(&target.port),
        };
        method_fits
            && scheme_fits
            && port_fits
            && self.host.fits(&target.host)
            && self.path.covers(&target.path)
    }
}

impl HostPattern {
    fn new(pattern: &str) -> Self {
        if pattern == "*" {
            return Self::Any;
        }
        let (below, name) = match pattern.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, pattern),
        };
        // An IPv6 address may stand without its brackets in a grant that is built in code.
        let host = name
            .parse::<IpAddr>()
            .map(Host::Ip)
            .or_else(|_| url::Host::parse(name).map(Host::from));
        match (below, host) {
            (false, Ok(host)) => Self::One(host),
            (true, Ok(Host::Name(name))) => Self::Below(format!(".{name}")),
            _ => Self::None,
        }
    }

    fn fits(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Any, _) => true,
            (Self::One(one), host) => one == host,
            (Self::Below(suffix), Host::Name(name)) => {
                name.len() > suffix.len() && name.ends_with(suffix.as_str())
            }
            _ => false,
        }
    }
}

/// The shortest grant that would allow a request; `private` if the name leads to an address that is not public.
pub(crate) fn grant_for(method: &str, target: &Target, private: bool) -> Option<Grant> {
    let private = private
        || match &target.host {
            Host::Ip(ip) => address::reach(*ip) != Reach::Public,
            Host::Name(name) => !address::is_public_name(name),
        };
    let never = matches!(&target.host, Host::Ip(ip) if address::reach(*ip) == Reach::Nowhere);
    let nameable = method.bytes().all(|b| b.is_ascii_uppercase());
    (nameable && !never).then(|| {
        Grant::Http(HttpGrant {
            host: target.host.to_string(),
            ports: (target.port != target.scheme.default_port())
                .then_some(target.port)
                .into_iter()
                .collect(),
            schemes: vec![target.scheme.to_string()],
            methods: match method {
                "GET" | "HEAD" => Vec::new(),
                other => vec![other.to_owned()],
            },
            path: String::new(),
            private,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(lines: &[&str]) -> Rules {
        let grants: Vec<HttpGrant> = lines
            .iter()
            .map(|line| match line.parse().unwrap() {
                Grant::Http(grant) => grant,
                other => panic!("{other}"),
            })
            .collect();
        Rules::new(&grants)
    }

    fn allowed(line: &str, method: &str, url: &str) -> bool {
        let target = Target::parse(url).unwrap();
        rules(&[line]).scope(method, &target).is_some()
    }

    #[test]
    fn an_empty_policy_allows_nothing() {
        let target = Target::parse("https://example.com/").unwrap();
        assert_eq!(Rules::default().scope("GET", &target), None);
    }

    #[test]
    fn a_plain_grant_is_get_and_head_over_https_on_its_port() {
        let grant = "http=example.com";
        for (method, url, expected) in [
            ("GET", "https://example.com/any?q", true),
            ("HEAD", "https://example.com", true),
            ("GET", "https://EXAMPLE.com./", true),
            ("POST", "https://example.com/", false),
            ("get", "https://example.com/", false),
            ("GET", "http://example.com/", false),
            ("GET", "https://example.com:8443/", false),
            ("GET", "https://www.example.com/", false),
            ("GET", "https://example.com.evil.org/", false),
            ("GET", "https://notexample.com/", false),
        ] {
            assert_eq!(allowed(grant, method, url), expected, "{method} {url}");
        }
    }

    #[test]
    fn a_star_stands_for_whole_labels_below_the_name() {
        let grant = "http=*.example.com";
        for (url, expected) in [
            ("https://a.example.com/", true),
            ("https://a.b.example.com/", true),
            ("https://example.com/", false),
            ("https://.example.com/", false),
            ("https://aexample.com/", false),
            ("https://a.example.com.evil.org/", false),
        ] {
            let parsed = Target::parse(url);
            let is_allowed = parsed.is_ok_and(|t| rules(&[grant]).scope("GET", &t).is_some());
            assert_eq!(is_allowed, expected, "{url}");
        }
    }

    #[test]
    fn names_are_compared_in_their_ascii_form() {
        assert!(allowed(
            "http=xn--bcher-kva.example",
            "GET",
            "https://bücher.example/"
        ));
    }

    #[test]
    fn a_path_is_a_prefix_of_whole_segments() {
        let grant = "http=example.com/api";
        for (path, expected) in [
            ("/api", true),
            ("/api/", true),
            ("/api/v1/x?y=/../z", true),
            ("/api/group%2Fproject", true),
            ("/api/%41", true),
            ("/apix", false),
            ("/", false),
            ("/API", false),
            ("//api", false),
            ("/api/../admin", false),
            ("/api/%2e%2e/admin", false),
            ("/api/.%2E/admin", false),
            ("/api/..%2fadmin", false),
            ("/api/%252e%252e/admin", false),
            ("/api/%252e%252e%252fadmin", false),
            ("/api/..%5cadmin", false),
            ("/api/..;/admin", false),
            ("/api/..;x=1/admin", false),
            ("/api/x%00", false),
        ] {
            let url = format!("https://example.com{path}");
            assert_eq!(allowed(grant, "GET", &url), expected, "{path}");
        }
    }

    #[test]
    fn private_hosts_are_allowed_only_where_they_are_named() {
        for (grant, url, expected) in [
            ("http=http://*", "http://10.0.0.1/", false),
            ("http=http://*", "http://localhost/", false),
            ("http=http://*", "http://8.8.8.8/", true),
            ("http=http://10.0.0.1", "http://10.0.0.1/", true),
            ("http=http://10.0.0.1", "http://10.0.0.2/", false),
            ("http=http://[::1]:8080", "http://[0:0::1]:8080/", true),
            ("http=http://nas.local", "http://nas.local/", false),
            ("http-private=http://nas.local", "http://nas.local/", true),
            ("http-private=http://*", "http://10.0.0.1/", true),
            ("http-private=http://*", "http://169.254.169.254/", false),
            (
                "http-private=http://169.254.169.254",
                "http://169.254.169.254/",
                true,
            ),
            ("http-private=http://*", "http://0.0.0.0/", false),
            ("http-private=http://*", "http://255.255.255.255/", false),
        ] {
            assert_eq!(allowed(grant, "GET", url), expected, "{grant} {url}");
        }
    }

    #[test]
    fn the_grant_that_is_proposed_allows_the_request_and_can_be_written() {
        for (method, url, line) in [
            (
                "GET",
                "https://api.example.com/x?y",
                "http=https://api.example.com",
            ),
            ("POST", "http://h.example:81/", "http=POST http://h.example:81"),
            ("GET", "http://127.0.0.1:8080/", "http=http://127.0.0.1:8080"),
            ("GET", "http://[::1]/", "http=http://[::1]"),
            ("HEAD", "https://nas.local/", "http-private=https://nas.local"),
        ] {
            let target = Target::parse(url).unwrap();
            let grant = grant_for(method, &target, false).unwrap();
            assert_eq!(grant.to_string(), line);
            assert!(allowed(line, method, url), "{line}");
        }
        let nowhere = Target::parse("http://0.0.0.0/").unwrap();
        assert_eq!(grant_for("GET", &nowhere, false), None);
    }
}
