//! Fuzz targets for URLs, redirects and the grants that are matched against them. `tests/fuzz` describes how to run
//! them.

use http::{HeaderValue, Response};
use toolcell_core::Grant;
use toolcell_core::policy::HttpGrant;

use crate::egress::redirect::{self, Hop, MAX_HOPS, Redirects};
use crate::egress::rules::Rules;
use crate::egress::target::{MAX_URL, Target};
use crate::fuzz_runner::Target as Fuzz;

const WORDS: &[&str] = &[
    "http://",
    "https://",
    "HTTP:",
    "file://",
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
    "%00",
    "..",
    ".",
    "[",
    "]",
    "[::1]",
    "[::ffff:7f00:1]",
    "[64:ff9b::7f00:1]",
    "127.0.0.1",
    "0x7f.1",
    "017700000001",
    "2130706433",
    "169.254.169.254",
    "localhost",
    "example.com",
    "example.com.",
    "EXAMPLE.com",
    "8.8.8.8",
    ":443",
    ":80",
    ":0",
    ":99999",
    "xn--",
    "xn--bcher-kva",
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
    "*.",
    "a",
    "http=",
    "http-private=",
    "GET ",
    "POST",
    "CONNECT",
    ",",
    "\n",
];

/// Policies that together allow everything.
fn policies() -> Vec<Rules> {
    [
        vec!["http=*"],
        vec!["http=http://*", "http=https://*:8443/api"],
        vec!["http=https://*.example.com/api", "http=http://127.0.0.1:8080"],
        vec!["http-private=https://intranet.example", "http=https://[::1]"],
    ]
    .iter()
    .map(|lines| Rules::new(&lines.iter().filter_map(|line| http(line)).collect::<Vec<_>>()))
    .collect()
}

fn http(line: &str) -> Option<HttpGrant> {
    match line.parse() {
        Ok(Grant::Http(grant)) => Some(grant),
        _ => None,
    }
}

#[test]
fn fuzz_urls_are_unambiguous_and_denied_in_every_spelling() {
    let policies = policies();
    let tried = Fuzz::new("url", 20_000)
        .seeds([
            "http://example.com/",
            "https://[::1]:8443/a?b#c",
            "http://0x7f.1/",
        ])
        .words(WORDS)
        .run(|input| {
            let url = String::from_utf8_lossy(input);
            let target = match Target::parse(&url) {
                Ok(target) => target,
                Err(error) => {
                    let kind = format!("{error:?}");
                    return kind.split(['(', ' ']).next().unwrap_or_default().to_owned();
                }
            };
            let printed = target.to_string();
            assert!(printed.is_ascii() && printed.len() <= MAX_URL, "{url:?}");
            // Printed and parsed again, on any path of a request, it is the same target: a denied URL stays denied.
            assert_eq!(Target::parse(&printed).as_ref(), Ok(&target), "{url:?}");
            assert_eq!(
                target.join(printed.as_bytes()),
                Ok((target.clone(), None)),
                "{url:?}"
            );
            if let Ok(uri) = printed.parse::<http::Uri>() {
                assert_eq!(Target::of_request(&uri).as_ref(), Ok(&target), "{url:?}");
            }
            if let Ok(uri) = url.parse::<http::Uri>()
                && let Ok(of_request) = Target::of_request(&uri)
            {
                assert_eq!(of_request, target, "{url:?}");
            }
            // A server never sees the fragment.
            let without = url.split('#').next().unwrap_or_default();
            assert_eq!(Target::parse(without).as_ref(), Ok(&target), "{url:?}");
            let allowed: Vec<bool> = policies
                .iter()
                .map(|p| p.scope("GET", &target).is_some())
                .collect();
            format!("{:?} {allowed:?}", target.scheme)
        });
    assert!(tried.outcomes.len() >= 6, "{tried:?}");
}

/// Grants, one on a line, then a line with method and URL.
#[test]
fn fuzz_policies_allow_only_what_one_grant_allows() {
    let tried = Fuzz::new("policy", 20_000)
        .seeds([
            "http=https://*.example.com:8443/api\nhttp=POST https://example.com\nGET https://a.example.com:8443/api/x",
            "http-private=http://10.0.0.1\nGET http://10.0.0.1/",
            "http=*\nGET https://8.8.8.8/",
        ])
        .words(WORDS)
        .run(|input| {
            let text = String::from_utf8_lossy(input);
            let (lines, request) = text.rsplit_once('\n').unwrap_or(("", &text));
            let grants: Vec<HttpGrant> = lines.lines().filter_map(http).collect();
            let (method, url) = request.split_once(' ').unwrap_or(("GET", request));
            let (Ok(target), Ok(_)) = (Target::parse(url), http::Method::from_bytes(method.as_bytes())) else {
                return format!("{} grants and no request", grants.len().min(3));
            };
            let scope = |grants: &[HttpGrant]| Rules::new(grants).scope(method, &target);
            let all = scope(&grants);
            let widest = grants.iter().filter_map(|g| scope(std::slice::from_ref(g))).max();
            assert_eq!(all, widest, "{text:?}: a policy is its grants and no more");
            assert_eq!(scope(&[]), None);
            // Printed and parsed again, as in a lock file and a hint, a grant allows the same.
            let printed: Vec<HttpGrant> = grants
                .iter()
                .map(|g| http(&Grant::Http(g.clone()).to_string()).expect("what it prints"))
                .collect();
            assert_eq!(scope(&printed), all, "{text:?}");
            // The grant shown to the user would allow exactly this request.
            if let Some(grant) = Rules::default().proposal(method, &target, false) {
                let hint = http(&grant.to_string()).expect("a grant");
                assert!(scope(std::slice::from_ref(&hint)).is_some(), "{text:?}: {grant}");
                let elsewhere = Target::parse("https://elsewhere.example:4321/").expect("a URL");
                assert_eq!(Rules::new(&[hint]).scope(method, &elsewhere), None, "{text:?}: {grant}");
            }
            format!("{} grants, {all:?}", grants.len().min(3))
        });
    assert!(tried.outcomes.len() >= 8, "{tried:?}");
}

/// A URL, then on each line a `Location` returned by the server.
#[test]
fn fuzz_redirects_are_detected_wherever_they_lead() {
    let tried = Fuzz::new("redirect", 20_000)
        .seeds([
            "https://a.example/x\n/y\nhttp://a.example/\n//b.example",
            "http://a.example/\nhttp://a.example/",
            "https://a.example/\n\\\\b.example\\x\n?q\n#f",
        ])
        .words(WORDS)
        .run(|input| {
            let text = String::from_utf8_lossy(input);
            let mut lines = text.split('\n');
            let Ok(mut here) = Target::parse(lines.next().unwrap_or_default()) else {
                return "no URL".into();
            };
            let mut redirects = Redirects::default();
            let mut hop = Hop::default();
            for location in lines.take(2 * MAX_HOPS as usize) {
                let Ok(value) = HeaderValue::from_bytes(location.as_bytes()) else {
                    break;
                };
                let mut response = Response::new(());
                *response.status_mut() = http::StatusCode::FOUND;
                response.headers_mut().insert("location", value);
                let leads = redirect::settle(&here, &mut response);
                let Some(leads) = leads.ok().filter(|leads| !leads.elsewhere) else {
                    redirects.note_unknown(&here, hop);
                    let next = redirects.follow(&here);
                    assert!(
                        next.suspicion.cross_origin && next.number == hop.number + 1,
                        "{text:?}"
                    );
                    return "refused or of another scheme".into();
                };
                // The guest receives the target, in a form that all clients interpret alike.
                let written = response.headers()["location"].to_str().expect("ASCII");
                let there = Target::parse(written).expect("a URL");
                assert_eq!(leads.targets, std::slice::from_ref(&there), "{text:?}");
                redirects.note(&here, hop, &there);
                let next = redirects.follow(&there);
                assert_eq!(next.number, hop.number + 1, "{text:?}");
                let foreign = hop.suspicion.cross_origin || !there.same_origin(&here);
                assert!(next.suspicion.cross_origin || !foreign, "{text:?}");
                let downgrade = here.scheme.as_str() == "https" && there.scheme.as_str() == "http";
                assert!(next.suspicion.downgrade || !downgrade, "{text:?}");
                hop = next;
                here = there;
            }
            format!("{hop:?}")
        });
    assert!(tried.outcomes.len() >= 8, "{tried:?}");
}
