//! HTTP grants and denials, prepared for matching.

use std::cell::LazyCell;
use std::net::IpAddr;

use toolcell_core::Grant;
use toolcell_core::denial::HttpDenial;
use toolcell_core::policy::HttpGrant;
use toolcell_core::url_reading::{climbs, folded_path};

use super::address::{self, Reach};
use super::path::PathPrefix;
use super::target::{Host, Scheme, Target};

/// All HTTP grants and denials of one policy. Requests without a matching grant are denied, and so are requests that
/// match a denial.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    allowed: Vec<Rule>,
    denied: Vec<Denied>,
}

/// One denial. An empty list matches everything.
#[derive(Debug)]
struct Denied {
    host: HostPattern,
    ports: Vec<u16>,
    schemes: Vec<String>,
    methods: Vec<String>,
    /// Folded, without a trailing `/`; empty denies every path.
    path: String,
    by: String,
}

/// Path of a request as servers could read it, found once for all denials.
struct Reading {
    climbs: bool,
    folded: String,
}

impl Reading {
    fn of(path: &str) -> Self {
        Self {
            climbs: climbs(path),
            folded: folded_path(path),
        }
    }
}

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
    /// Any host, `*`.
    Any,
    /// Hosts below a name, `*.example.com`, stored as `.example.com`.
    Below(String),
    /// Exactly one host.
    One(Host),
    /// No host: the text of the grant is invalid.
    None,
}

/// Addresses that a request may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// Public addresses.
    Public,
    /// Also private addresses, by a grant with a pattern.
    Private,
    /// Also private addresses and metadata services, by a grant for exactly this host.
    Named,
}

impl Scope {
    /// Returns `true` if an address may be connected to.
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
        Self {
            allowed: grants.iter().map(Rule::new).collect(),
            denied: Vec::new(),
        }
    }

    /// Returns the rules restricted by these denials.
    pub(crate) fn denying(mut self, denials: &[HttpDenial]) -> Self {
        self.denied.extend(denials.iter().map(Denied::new));
        self
    }

    /// Returns the origin of a denial of the request, if any.
    pub(crate) fn denied(&self, method: &str, target: &Target) -> Option<&str> {
        let path = LazyCell::new(|| Reading::of(&target.path));
        let denied = self.denied.iter().find(|denied| {
            (denied.host.fits(&target.host) || denied.host.is_never()) && denied.covers(method, target, &path)
        });
        denied.map(|denied| denied.by.as_str())
    }

    /// Returns the origin of a denial of sending the request to this address, to which its name resolves, if any.
    pub(crate) fn denied_address(&self, method: &str, target: &Target, ip: IpAddr) -> Option<&str> {
        let host = Host::Ip(ip);
        let path = LazyCell::new(|| Reading::of(&target.path));
        let mut denied = self.denied.iter();
        denied
            .find(|denied| denied.host.is_address_of(&host) && denied.covers(method, target, &path))
            .map(|denied| denied.by.as_str())
    }

    /// Returns the widest scope in which a grant allows the request; `None` if no grant does. Resolves no names: the
    /// addresses are checked against the scope after the look-up.
    pub(crate) fn scope(&self, method: &str, target: &Target) -> Option<Scope> {
        let scope = self
            .allowed
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

    /// Returns the shortest grant that would allow a request; `private` if the name resolves to an address that is not
    /// public. Where the user limited grants for the host to paths, it is limited to the path of the request, and there
    /// is none for a path that no grant can express.
    pub(super) fn proposal(&self, method: &str, target: &Target, private: bool) -> Option<Grant> {
        let names_host =
            |rule: &&Rule| matches!(rule.host, HostPattern::One(_)) && rule.host.fits(&target.host);
        let limits_paths = self
            .allowed
            .iter()
            .filter(names_host)
            .any(|rule| !rule.path.is_empty());
        let path = match (limits_paths, target.path.trim_end_matches('/')) {
            (false, _) => "",
            (true, "") => return None,
            (true, path) => path,
        };
        let grant = Grant::Http(grant_for(method, target, path, private)?);
        // What is proposed is read back from its line.
        match grant.to_string().parse() {
            Ok(Grant::Http(read)) if Rule::new(&read).allows(method, target) => Some(grant),
            _ => None,
        }
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

impl Denied {
    fn new(denial: &HttpDenial) -> Self {
        let HttpDenial {
            host,
            ports,
            schemes,
            methods,
            path,
            by,
        } = denial;
        Self {
            host: HostPattern::new(host),
            ports: ports.clone(),
            schemes: schemes.clone(),
            methods: methods.clone(),
            path: folded_path(path),
            by: by.clone(),
        }
    }

    /// Returns `true` if everything but the host matches.
    fn covers(
        &self,
        method: &str,
        target: &Target,
        path: &LazyCell<Reading, impl FnOnce() -> Reading>,
    ) -> bool {
        fn any<T>(list: &[T], fits: impl Fn(&T) -> bool) -> bool {
            list.is_empty() || list.iter().any(fits)
        }
        // A server may accept a method in any case, and treat an unknown method as a known one.
        any(&self.methods, |m| m.eq_ignore_ascii_case(method))
            && any(&self.schemes, |s| s.eq_ignore_ascii_case(target.scheme.as_str()))
            && any(&self.ports, |port| *port == target.port)
            && (self.path.is_empty() || self.path_fits(path))
    }

    /// Returns `true` if any server could interpret the path as the denied one or one below it.
    fn path_fits(&self, path: &Reading) -> bool {
        if path.climbs {
            return true;
        }
        path.folded
            .strip_prefix(self.path.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl HostPattern {
    /// Returns `true` if nothing matches, because the text is not a host. A denial of that denies everything.
    fn is_never(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Returns `true` for this address in any form.
    fn is_address_of(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::One(Host::Ip(one)), Host::Ip(ip)) => one.to_canonical() == ip.to_canonical(),
            _ => false,
        }
    }

    fn new(pattern: &str) -> Self {
        if pattern == "*" {
            return Self::Any;
        }
        let (below, name) = match pattern.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, pattern),
        };
        // An IPv6 address in a grant created by code may lack its brackets.
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
            (Self::One(Host::Ip(_)), Host::Ip(_)) => self.is_address_of(host),
            (Self::One(one), host) => one == host,
            // No name begins with a dot, as the suffix does.
            (Self::Below(suffix), Host::Name(name)) => name.ends_with(suffix.as_str()),
            _ => false,
        }
    }
}

fn grant_for(method: &str, target: &Target, path: &str, private: bool) -> Option<HttpGrant> {
    let private = private
        || match &target.host {
            Host::Ip(ip) => address::reach(*ip) != Reach::Public,
            Host::Name(name) => !address::is_public_name(name),
        };
    // A service that issues credentials is granted by those who know that they need it.
    let never = match &target.host {
        Host::Ip(ip) => matches!(address::reach(*ip), Reach::Nowhere | Reach::Metadata),
        Host::Name(name) => address::is_metadata_name(name),
    };
    let nameable = method.bytes().all(|b| b.is_ascii_uppercase());
    (nameable && !never).then(|| HttpGrant {
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
        path: path.to_owned(),
        private,
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

    fn denied(line: &str, method: &str, url: &str) -> bool {
        let Ok(Grant::DenyHttp(denial)) = line.parse() else {
            panic!("{line}")
        };
        let rules = Rules::default().denying(&[denial]);
        rules.denied(method, &Target::parse(url).unwrap()).is_some()
    }

    #[test]
    fn denial_covers_everything_that_it_omits() {
        for (line, method, url, expected) in [
            ("deny-http=example.com", "GET", "https://example.com/", true),
            ("deny-http=example.com", "POST", "http://example.com:81/x?y", true),
            ("deny-http=example.com", "GET", "https://EXAMPLE.com./", true),
            ("deny-http=example.com", "GET", "https://www.example.com/", false),
            ("deny-http=*.example.com", "GET", "https://www.example.com/", true),
            ("deny-http=*.example.com", "GET", "https://example.com/", false),
            ("deny-http=*", "GET", "https://example.com/", true),
            ("deny-http=POST example.com", "GET", "https://example.com/", false),
            ("deny-http=POST example.com", "POST", "https://example.com/", true),
            ("deny-http=POST example.com", "post", "https://example.com/", true),
            (
                "deny-http=https://example.com",
                "GET",
                "http://example.com/",
                false,
            ),
            ("deny-http=example.com:81", "GET", "http://example.com/", false),
            ("deny-http=example.com:443", "GET", "https://example.com/", true),
            ("deny-http=10.0.0.1", "GET", "http://0x0a.1/", true),
            ("deny-http=10.0.0.1", "GET", "http://[::ffff:10.0.0.1]/", true),
            (
                "deny-http=xn--bcher-kva.example",
                "GET",
                "https://bücher.example/",
                true,
            ),
        ] {
            assert_eq!(denied(line, method, url), expected, "{line} {method} {url}");
        }
    }

    #[test]
    fn denied_path_is_denied_in_every_spelling() {
        for (path, expected) in [
            ("/admin", true),
            ("/admin/", true),
            ("/admin/x?y", true),
            ("/ADMIN", true),
            ("//admin", true),
            ("/%61dmin", true),
            ("/%2561dmin", true),
            ("/x/../admin", true),
            ("/x/..%2fadmin", true),
            ("/x/%252e%252e/admin", true),
            ("/admin;v=1/x", true),
            ("/admin%5cx", true),
            ("/./admin", true),
            ("/admin%00x", true),
            ("/admin.", true),
            ("/administrator", false),
            ("/x/admin", false),
            ("/", false),
        ] {
            let url = format!("https://example.com{path}");
            assert_eq!(
                denied("deny-http=example.com/admin", "GET", &url),
                expected,
                "{path}"
            );
        }
    }

    #[test]
    fn denied_address_is_denied_to_names_that_resolve_to_it() {
        let Ok(Grant::DenyHttp(denial)) = "deny-http=192.0.2.7:443".parse() else {
            panic!()
        };
        let rules = Rules::default().denying(&[denial]);
        let target = Target::parse("https://example.com/").unwrap();
        let other_port = Target::parse("https://example.com:444/").unwrap();
        assert_eq!(rules.denied("GET", &target), None);
        for (ip, expected) in [
            ("192.0.2.7", true),
            ("::ffff:192.0.2.7", true),
            ("192.0.2.8", false),
        ] {
            let ip = ip.parse().unwrap();
            assert_eq!(
                rules.denied_address("GET", &target, ip).is_some(),
                expected,
                "{ip}"
            );
            assert_eq!(rules.denied_address("GET", &other_port, ip), None);
        }
    }

    fn allowed(line: &str, method: &str, url: &str) -> bool {
        let target = Target::parse(url).unwrap();
        rules(&[line]).scope(method, &target).is_some()
    }

    #[test]
    fn empty_policy_allows_nothing() {
        let target = Target::parse("https://example.com/").unwrap();
        assert_eq!(Rules::default().scope("GET", &target), None);
    }

    #[test]
    fn plain_grant_is_get_and_head_over_https_on_its_port() {
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
    fn star_matches_whole_labels_below_the_name() {
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
    fn path_is_a_prefix_of_whole_segments() {
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
    fn private_hosts_are_allowed_only_where_named() {
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
    fn each_method_and_host_of_a_list_is_matched_alone() {
        let grant = |host: &str, methods: &[&str]| HttpGrant {
            host: host.into(),
            ports: vec![80, 81],
            schemes: vec!["http".into(), "https".into()],
            methods: methods.iter().map(|m| (*m).to_owned()).collect(),
            path: String::new(),
            private: false,
        };
        for (host, methods, method, url, expected) in [
            (
                "h.example",
                &["POST", "PUT"][..],
                "PUT",
                "http://h.example/",
                true,
            ),
            (
                "h.example",
                &["POST", "PUT"],
                "POST",
                "https://h.example:81/",
                true,
            ),
            ("h.example", &["POST", "PUT"], "GET", "http://h.example/", false),
            (
                "h.example",
                &["POST", "PUT"],
                "PUT",
                "http://h.example:82/",
                false,
            ),
            ("*.h.example", &[], "GET", "http://8.8.8.8/", false),
            ("no host", &[], "GET", "http://8.8.8.8/", false),
            ("no host", &[], "GET", "http://h.example/", false),
            ("*", &[], "GET", "http://8.8.8.8/", true),
        ] {
            let rules = Rules::new(&[grant(host, methods)]);
            let scope = rules.scope(method, &Target::parse(url).unwrap());
            assert_eq!(scope.is_some(), expected, "{host} {methods:?} {method} {url}");
        }
        assert!(allowed("http-private=http://*", "GET", "http://nas.local/"));
    }

    #[test]
    fn proposed_grant_is_private_where_required() {
        for (url, private) in [
            ("http://8.8.8.8/", false),
            ("http://10.0.0.1/", true),
            ("http://nas.local/", true),
            ("http://h.example/", false),
        ] {
            let target = Target::parse(url).unwrap();
            let Some(Grant::Http(grant)) = Rules::default().proposal("GET", &target, false) else {
                panic!("{url}");
            };
            assert_eq!(grant.private, private, "{url}");
        }
    }

    #[test]
    fn proposed_grant_allows_the_request_and_round_trips() {
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
            let grant = Rules::default().proposal(method, &target, false).unwrap();
            assert_eq!(grant.to_string(), line);
            assert!(allowed(line, method, url), "{line}");
        }
        for url in [
            "http://0.0.0.0/",
            "http://169.254.169.254/latest/",
            "http://[fe80::1]/",
        ] {
            let never = Target::parse(url).unwrap();
            assert_eq!(Rules::default().proposal("GET", &never, false), None, "{url}");
        }
    }

    #[test]
    fn proposed_grant_keeps_to_paths_where_the_user_did() {
        for (granted, url, proposed) in [
            (
                "http=https://h.example/api",
                "https://h.example/admin/x?y",
                "http=https://h.example/admin/x",
            ),
            (
                "http=h.example/api",
                "http://h.example:81/a/",
                "http=http://h.example:81/a",
            ),
            (
                "http=POST h.example",
                "https://h.example/a",
                "http=https://h.example",
            ),
            (
                "http=other.example/api",
                "https://h.example/a",
                "http=https://h.example",
            ),
            (
                "http=*.example/api",
                "https://h.example/a",
                "http=https://h.example",
            ),
        ] {
            let target = Target::parse(url).unwrap();
            let grant = rules(&[granted]).proposal("GET", &target, false).unwrap();
            assert_eq!(grant.to_string(), proposed, "{granted} {url}");
        }
        // A grant cannot express these paths, and a wider one would not be what the user limited.
        for url in [
            "https://h.example/",
            "https://h.example/a/..%2fb",
            "https://h.example/a*b",
            "https://h.example/%2e%2e%5cb",
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!(
                rules(&["http=h.example/api"]).proposal("GET", &target, false),
                None,
                "{url}"
            );
        }
    }

    #[test]
    fn denial_of_no_host_denies_everything() {
        let denial = HttpDenial {
            host: "not a host".into(),
            ports: Vec::new(),
            schemes: Vec::new(),
            methods: Vec::new(),
            path: String::new(),
            by: "deny-http=not a host".into(),
        };
        let rules = Rules::default().denying(&[denial]);
        let target = Target::parse("https://example.com/").unwrap();
        assert_eq!(rules.denied("GET", &target), Some("deny-http=not a host"));
    }
}
