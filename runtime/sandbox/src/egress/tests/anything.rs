//! Property tests with random URLs and policies: nothing panics, and no allowed request reaches a private address.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use toolcell_core::policy::HttpGrant;

use crate::egress::address::{self, Reach};
use crate::egress::redirect;
use crate::egress::rules::{Rules, Scope};
use crate::egress::target::{Host, MAX_URL, Target};

/// Parts of URLs, valid and invalid.
fn piece() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "http",
        "https",
        "HTTP",
        "file",
        ":",
        "//",
        "/",
        "\\",
        "@",
        "#",
        "?",
        "%",
        "%2e",
        "%2f",
        "%25",
        "..",
        ".",
        "[",
        "]",
        "::1",
        "::ffff:",
        "127.0.0.1",
        "0x7f",
        "017700000001",
        "2130706433",
        "localhost",
        "example.com",
        "8.8.8.8",
        "443",
        "80",
        ":0",
        ":99999",
        "xn--",
        "ü",
        "。",
        "１",
        "\u{200b}",
        "\u{ad}",
        " ",
        "\t",
        "\r\n",
        "\0",
        "user:pw@",
        ";",
        "*",
        "a",
        "169.254.169.254",
        "internal",
        "e\u{301}",
    ]);
    prop_oneof![4 => known.prop_map(str::to_owned), 1 => "\\PC{0,3}"]
}

fn url() -> impl Strategy<Value = String> {
    let scheme = prop::sample::select(vec!["http://", "https://", "", "http:", "https:/\\", "HTTPS://"]);
    (scheme, prop::collection::vec(piece(), 0..10))
        .prop_map(|(scheme, rest)| format!("{scheme}{}", rest.concat()))
}

/// Every notation of an IPv4 address that some parser accepts.
fn written_v4() -> impl Strategy<Value = (Ipv4Addr, String)> {
    (any::<u32>(), 0..7_usize).prop_map(|(n, form)| {
        let ip = Ipv4Addr::from(n);
        let [a, b, c, d] = ip.octets();
        let written = match form {
            0 => ip.to_string(),
            1 => n.to_string(),
            2 => format!("0x{n:x}"),
            3 => format!("0{n:o}"),
            4 => format!("{a}.{b}.{}", u16::from_be_bytes([c, d])),
            5 => format!("0x{a:X}.0{b:o}.{c}.{d}."),
            _ => ip.to_string().bytes().map(|b| format!("%{b:02x}")).collect(),
        };
        (ip, written)
    })
}

fn open_rules() -> Rules {
    Rules::new(&[HttpGrant {
        host: "*".into(),
        ports: (1..=u16::MAX).step_by(79).chain([80, 443]).collect(),
        schemes: vec!["http".into(), "https".into()],
        methods: vec!["GET".into()],
        path: String::new(),
        private: false,
    }])
}

/// Decodes everything that some server could decode: the worst interpretation of a path.
fn worst_reading(path: &str) -> Vec<String> {
    let mut text = path.to_owned();
    for _ in 0..path.len() {
        let bytes = percent_decoded(&text);
        text = String::from_utf8_lossy(&bytes).into_owned();
    }
    let mut parts: Vec<String> = Vec::new();
    for part in text.split(['/', '\\']) {
        match part.split(';').next().unwrap() {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part.to_owned()),
        }
    }
    parts
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let code = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match code.and_then(|c| u8::from_str_radix(c, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn allowed_request_is_unambiguous_and_public(url in url()) {
        if let Ok(target) = Target::parse(&url) {
            let canonical = target.to_string();
            prop_assert!(canonical.is_ascii() && canonical.len() <= MAX_URL);
            prop_assert_eq!(Target::parse(&canonical), Ok(target.clone()), "{}", canonical);
            let uri = canonical.parse::<http::Uri>();
            if let Ok(uri) = uri {
                prop_assert_eq!(Target::of_request(&uri), Ok(target.clone()), "{}", canonical);
            }
            let scope = open_rules().scope("GET", &target);
            prop_assert!(matches!(scope, None | Some(Scope::Public)));
            match &target.host {
                Host::Ip(ip) => prop_assert!(scope.is_none() || address::reach(*ip) == Reach::Public),
                Host::Name(name) => {
                    prop_assert!(scope.is_none() || address::is_public_name(name));
                    let last = name.rsplit('.').next().unwrap();
                    let hex = last.strip_prefix("0x").is_some_and(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
                    let decimal = last.bytes().all(|b| b.is_ascii_digit());
                    prop_assert!(!hex && !decimal, "{} could be an address", name);
                }
            }
            if let Some(grant) = Rules::default().proposal("GET", &target, false) {
                let line = grant.to_string();
                let Ok(toolcell_core::Grant::Http(read)) = line.parse() else {
                    return Err(TestCaseError::fail(line));
                };
                prop_assert!(Rules::new(&[read]).scope("GET", &target).is_some(), "{} for {}", line, target);
            }
        }
    }

    #[test]
    fn address_is_classified_alike_in_every_notation((ip, written) in written_v4()) {
        let Ok(target) = Target::parse(&format!("http://{written}/")) else {
            // A percent-encoded address is not a valid URL.
            prop_assert!(written.contains('%'));
            return Ok(());
        };
        prop_assert_eq!(&target.host, &Host::Ip(ip.into()));
        let allowed = open_rules().scope("GET", &target).is_some();
        prop_assert_eq!(allowed, address::reach(ip.into()) == Reach::Public);
    }

    #[test]
    fn ipv6_forms_of_private_addresses_are_not_public(a in any::<u16>(), b in any::<u16>(), form in 0..6_usize) {
        let ip = match form {
            0 => Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, a, b),
            1 => Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, a, b),
            2 => Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a, b),
            3 => Ipv6Addr::new(0x2002, a, b, 0, 0, 0, 0, 1),
            4 => Ipv6Addr::new(0x2001, 0, 1, 2, 3, 4, !a, !b),
            _ => Ipv6Addr::new(0, 0, 0, 0, 0, 0, a, b),
        };
        prop_assert_ne!(address::reach(ip.into()), Reach::Public);
    }

    #[test]
    fn no_interpretation_of_an_allowed_path_leaves_its_prefix(parts in prop::collection::vec(piece(), 0..8)) {
        let grant = HttpGrant {
            host: "example.com".into(),
            ports: Vec::new(),
            schemes: Vec::new(),
            methods: Vec::new(),
            path: "/api/v1".into(),
            private: false,
        };
        let Ok(target) = Target::parse(&format!("https://example.com/api/v1/{}", parts.concat())) else {
            return Ok(());
        };
        if Rules::new(&[grant]).scope("GET", &target).is_some() {
            let read = worst_reading(&target.path);
            prop_assert!(read.len() >= 2 && read[0] == "api" && read[1] == "v1", "{} read as {:?}", target.path, read);
        }
    }

    #[test]
    fn location_is_invalid_or_a_target(location in url()) {
        let here = Target::parse("https://example.com/a").unwrap();
        if let Ok((there, _)) = here.join(location.as_bytes()) {
            prop_assert_eq!(Target::parse(&there.to_string()), Ok(there));
        }
        if let Ok(value) = http::HeaderValue::try_from(location) {
            let mut response = http::Response::builder().status(302).header("location", value).body(()).unwrap();
            if let Ok(leads) = redirect::settle(&here, &mut response)
                && let [target] = leads.targets.as_slice()
            {
                let written = response.headers()["location"].to_str().unwrap();
                let read = written.split('#').next().unwrap();
                prop_assert_eq!(&Target::parse(read).unwrap(), target);
            }
        }
    }

    #[test]
    fn grant_of_any_text_does_not_panic(host in "\\PC{0,20}", path in "\\PC{0,20}", url in url()) {
        let grant = HttpGrant {
            host,
            ports: Vec::new(),
            schemes: vec!["http".into()],
            methods: Vec::new(),
            path,
            private: false,
        };
        if let Ok(target) = Target::parse(&url) {
            let scope = Rules::new(&[grant]).scope("GET", &target);
            if let (Some(_), Host::Ip(ip)) = (scope, &target.host) {
                prop_assert_eq!(address::reach(*ip), Reach::Public);
            }
        }
    }
}
