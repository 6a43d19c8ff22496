//! Redirects: canonical `Location` headers, and detection of the requests that follow them.
//!
//! A guest follows a redirect by a new request, which is checked like any other. A single request does not show that a
//! server asked for it, though: such a request must carry no credentials to another origin and must not fall back from
//! `https` to `http`. Two mechanisms identify the request of a guest as a hop:
//!
//! - **Canonical form** ([`settle`]). Clients differ in handling white space, non-ASCII bytes, backslashes, multiple
//!   headers and relative references. The host therefore parses the header once, according to the WHATWG URL standard,
//!   and the guest receives the resulting absolute URL. A response with an invalid header is refused. A `Refresh`
//!   header, which some clients follow too, is parsed the same way and removed.
//! - **Any spelling** ([`Redirects`]). A request is the hop whatever its percent-encoding. If a redirect leads to
//!   another origin, the first request to that origin counts as the hop even for another URL, and a request for the
//!   exact target counts as one for the rest of the call, so that retrying does not help.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use http::Response;
use http::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderValue, LOCATION, PROXY_AUTHORIZATION, REFRESH};
use toolcell_core::url_reading::decoded;

use super::target::{Host, InvalidTarget, Scheme, Target};

/// Maximum number of hops in one chain; browsers allow 20, most libraries 10, and ordinary chains have two or three. A
/// further hop is refused.
pub(crate) const MAX_HOPS: u32 = 5;

/// Redirects received by a call. It grows by a few bytes with each response, of which a call has a limited number.
#[derive(Debug, Default)]
pub(crate) struct Redirects {
    /// Creates keys that no server can predict.
    keys: RandomState,
    /// By target, the number of the next request for it in its chain.
    announced: HashMap<u64, u32>,
    /// By target, restrictions on requests for it for the rest of the call.
    suspect: HashMap<u64, Suspicion>,
    /// Suspicious redirects that no request has followed so far.
    pending: Vec<Pending>,
}

/// Position of a request in a redirect chain, or none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Hop {
    /// Number of redirects in the chain up to this request; 0 for an independent request.
    pub(crate) number: u32,
    /// Restrictions that apply to the request.
    pub(crate) suspicion: Suspicion,
}

/// Suspicious properties of a redirect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Suspicion {
    /// An origin other than that of the request influenced the target of the chain.
    pub(crate) cross_origin: bool,
    /// The redirect leads from `https` to `http`.
    pub(crate) downgrade: bool,
}

/// A redirect that has not been followed.
#[derive(Debug)]
struct Pending {
    /// Origin of the hop's request; `None` if unknown, in which case any request may be the hop.
    origin: Option<(Scheme, Host, u16)>,
    number: u32,
    key: u64,
    suspicion: Suspicion,
}

/// Targets of a response.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Leads {
    /// URLs that a client may request next.
    pub(crate) targets: Vec<Target>,
    /// It leads to another scheme, such as that of an app. The request that a client derives from it, if any, is
    /// unknown.
    pub(crate) elsewhere: bool,
}

/// Reason why a redirect is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnreadableRedirect {
    #[error("{0} different `Location` headers")]
    Several(usize),
    #[error("invalid `Location`: {0}")]
    Invalid(#[from] InvalidTarget),
}

impl Redirects {
    /// Returns the position of a request for `target` in a chain.
    pub(crate) fn follow(&mut self, target: &Target) -> Hop {
        let key = self.key(target);
        let mut hop = Hop {
            number: self.announced.remove(&key).unwrap_or(0),
            suspicion: self.suspect.get(&key).copied().unwrap_or_default(),
        };
        let exact = self.pending.iter().position(|pending| pending.key == key);
        let followed = exact.or_else(|| {
            self.pending
                .iter()
                .position(|pending| pending.may_lead_to(target))
        });
        if let Some(pending) = followed.map(|at| self.pending.swap_remove(at)) {
            hop.number = hop.number.max(pending.number);
            hop.suspicion.add(pending.suspicion);
            if pending.origin.is_none() {
                // The target intended by the server is unknown; the worst case is assumed.
                hop.suspicion.downgrade &= target.scheme == Scheme::Http;
            }
        }
        hop
    }

    /// Records the targets of the response to `hop`, a request to `from`.
    pub(crate) fn note_all(&mut self, from: &Target, hop: Hop, leads: &Leads) {
        for to in &leads.targets {
            self.note(from, hop, to);
        }
        if leads.elsewhere {
            self.note_unknown(from, hop);
        }
    }

    /// Records that the response to `hop`, a request to `from`, leads to `to`.
    pub(crate) fn note(&mut self, from: &Target, hop: Hop, to: &Target) {
        let key = self.key(to);
        let number = hop.number + 1;
        let suspicion = Suspicion {
            // A server reached by a redirect may redirect within its own origin: the chain still depends on the other
            // server.
            cross_origin: hop.suspicion.cross_origin || !to.same_origin(from),
            downgrade: from.scheme == Scheme::Https && to.scheme == Scheme::Http,
        };
        self.announced.insert(key, number);
        if suspicion != Suspicion::default() {
            self.suspect.entry(key).or_default().add(suspicion);
            self.pending.push(Pending {
                origin: Some((to.scheme, to.host.clone(), to.port)),
                number,
                key,
                suspicion,
            });
        }
    }

    /// Records that the response to `hop`, a request to `from`, leads to an unknown target.
    pub(crate) fn note_unknown(&mut self, from: &Target, hop: Hop) {
        self.pending.push(Pending {
            origin: None,
            number: hop.number + 1,
            key: self.key(from),
            suspicion: Suspicion {
                cross_origin: true,
                downgrade: from.scheme == Scheme::Https,
            },
        });
    }

    /// Returns the same key for all spellings of a target that a client may convert into each other.
    fn key(&self, target: &Target) -> u64 {
        let query = target.query.as_deref().unwrap_or_default().replace('+', "%20");
        self.keys.hash_one((
            target.scheme.as_str(),
            target.host_and_port(),
            decoded(&target.path),
            decoded(&query),
        ))
    }
}

impl Pending {
    fn may_lead_to(&self, target: &Target) -> bool {
        self.origin.as_ref().is_none_or(|(scheme, host, port)| {
            *scheme == target.scheme && *host == target.host && *port == target.port
        })
    }
}

impl Suspicion {
    fn add(&mut self, other: Self) {
        // All fields by name, so that a new one cannot be forgotten here.
        let Self {
            cross_origin,
            downgrade,
        } = other;
        self.cross_origin |= cross_origin;
        self.downgrade |= downgrade;
    }
}

/// Rewrites the redirect of a response to its canonical form, and returns its targets. Every 3xx with a `Location` is
/// one, because some clients follow all of them.
///
/// # Errors
/// If the redirect is invalid or ambiguous.
pub(crate) fn settle<B>(from: &Target, response: &mut Response<B>) -> Result<Leads, UnreadableRedirect> {
    let mut leads = Leads::default();
    for refresh in response.headers().get_all(REFRESH) {
        // A removed header cannot be followed; a client that remembers part of it is still detected.
        let target = refresh_url(refresh.as_bytes()).and_then(|url| from.join(url).ok());
        leads.targets.extend(target.map(|(target, _)| target));
    }
    response.headers_mut().remove(REFRESH);
    if !response.status().is_redirection() {
        return Ok(leads);
    }
    let mut locations: Vec<&[u8]> = response
        .headers()
        .get_all(LOCATION)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    locations.sort_unstable();
    locations.dedup();
    let location = match locations.as_slice() {
        [] => return Ok(leads),
        [one] => *one,
        several => return Err(UnreadableRedirect::Several(several.len())),
    };
    let written = match from.join(location) {
        Ok((target, fragment)) => {
            let written = fragment.map_or(target.to_string(), |fragment| format!("{target}#{fragment}"));
            leads.targets.push(target);
            written
        }
        Err(InvalidTarget::Scheme(url)) => {
            leads.elsewhere = true;
            url
        }
        Err(error) => return Err(error.into()),
    };
    let written = HeaderValue::try_from(written)
        .map_err(|_| InvalidTarget::Malformed("a header cannot contain it".into()))?;
    response.headers_mut().insert(LOCATION, written);
    Ok(leads)
}

/// Returns the URL of a `Refresh` header, such as `0; url=/next`
/// (<https://html.spec.whatwg.org/multipage/semantics.html#attr-meta-http-equiv-refresh>).
fn refresh_url(value: &[u8]) -> Option<&[u8]> {
    let at = value.iter().position(|b| matches!(b, b';' | b','))?;
    let mut rest = value[at + 1..].trim_ascii();
    if rest
        .get(..3)
        .is_some_and(|name| name.eq_ignore_ascii_case(b"url"))
        && let Some(url) = rest[3..].trim_ascii_start().strip_prefix(b"=")
    {
        rest = url.trim_ascii_start();
    }
    if let [quote @ (b'"' | b'\''), quoted @ ..] = rest {
        rest = quoted.split(|b| b == quote).next().unwrap_or_default();
    }
    (!rest.is_empty()).then_some(rest)
}

/// Removes headers that a client must not send to another origin (RFC 9110, section 15.4).
pub(crate) fn drop_credentials(headers: &mut HeaderMap) {
    for name in [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION] {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Target {
        Target::parse(url).unwrap()
    }

    fn response(status: u16, headers: &[(&str, &[u8])]) -> Response<()> {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, HeaderValue::from_bytes(value).unwrap());
        }
        response.body(()).unwrap()
    }

    /// Returns what a client receives, or the reason of a refusal.
    fn passed_on(from: &str, status: u16, headers: &[(&str, &[u8])]) -> Result<String, String> {
        let mut response = response(status, headers);
        settle(&target(from), &mut response).map_err(|e| e.to_string())?;
        let location = response.headers().get(LOCATION);
        Ok(location.map_or(String::new(), |l| l.to_str().unwrap().to_owned()))
    }

    fn lead(redirects: &mut Redirects, from: &str, to: &str) -> Hop {
        let from = target(from);
        let hop = redirects.follow(&from);
        redirects.note(&from, hop, &target(to));
        hop
    }

    #[test]
    fn location_reaches_the_guest_in_canonical_form() {
        let here = "https://a.example/x/y";
        for (location, read) in [
            (b"z".as_slice(), "https://a.example/x/z"),
            (b"", "https://a.example/x/y"),
            (b"/z?q#f", "https://a.example/z?q#f"),
            (b"#f", "https://a.example/x/y#f"),
            (b"//b.example", "https://b.example/"),
            (b"\\\\b.example\\z", "https://b.example/z"),
            (b"/\\b.example/z", "https://b.example/z"),
            (b"https:\\\\b.example", "https://b.example/"),
            (b"HTTPS://B.EXAMPLE.:443/%7e", "https://b.example/%7e"),
            (b"https://b.ex\tample/z", "https://b.example/z"),
            (b"https:/b.example/z", "https://a.example/b.example/z"),
            (b"http:/b.example/z", "http://b.example/z"),
            (b"/a b", "https://a.example/a%20b"),
            ("/ü".as_bytes(), "https://a.example/%C3%BC"),
            (b"/\xfc", "https://a.example/%FC"),
            (
                "https://bücher.example/".as_bytes(),
                "https://xn--bcher-kva.example/",
            ),
            (b"https://0x7f.1/", "https://127.0.0.1/"),
            (b"/../../z", "https://a.example/z"),
            (b"/%2e%2e/z", "https://a.example/z"),
        ] {
            for status in [300, 301, 302, 303, 304, 305, 306, 307, 308, 399] {
                let passed = passed_on(here, status, &[("location", location)]);
                assert_eq!(
                    passed.as_deref(),
                    Ok(read),
                    "{status} {}",
                    location.escape_ascii()
                );
            }
        }
        let twice = [("location", b"/z".as_slice()), ("location", b"/z")];
        assert_eq!(passed_on(here, 302, &twice).unwrap(), "https://a.example/z");
        assert_eq!(passed_on(here, 302, &[]).unwrap(), "");
        // Clients do not follow these headers, so they are unchanged.
        assert_eq!(passed_on(here, 201, &[("location", b"../z")]).unwrap(), "../z");
    }

    #[test]
    fn ambiguous_or_invalid_location_is_refused() {
        let long = [b"/".as_slice(), &vec![b'x'; 9 << 10]].concat();
        for (headers, reason) in [
            (vec![b"/a".as_slice(), b"/b"], "2 different"),
            (vec![b"/a", b"https://b.example/", b"/a"], "2 different"),
            (vec![b"https://user@b.example/"], "user name"),
            (vec![b"https://:pw@b.example/"], "user name"),
            (vec![b"https://"], "invalid `Location`"),
            (vec![b"https://b%00.example/"], "invalid `Location`"),
            (vec![b"https://b.example:99999/"], "invalid `Location`"),
            (vec![b"https://b.example:0/"], "port 0"),
            (vec![b"https://b\xff.example/"], "invalid `Location`"),
            (vec![&long], "limit of 8192"),
        ] {
            let headers: Vec<_> = headers.into_iter().map(|value| ("location", value)).collect();
            let error = passed_on("https://a.example/", 302, &headers).unwrap_err();
            assert!(error.contains(reason), "{headers:?}: {error}");
        }
    }

    #[test]
    fn location_of_another_scheme_is_passed_on_and_recorded() {
        for (location, read) in [
            (b"app://callback?code=1".as_slice(), "app://callback?code=1"),
            (b"mailto:a@b.example", "mailto:a@b.example"),
            (b"b.example:443/x", "b.example:443/x"),
            (b"file:\\etc", "file:///etc"),
            (b"ja\tva:x \xff", "java:x %FF"),
        ] {
            let mut response = response(302, &[("location", location)]);
            let leads = settle(&target("https://a.example/"), &mut response).unwrap();
            assert!(leads.elsewhere && leads.targets.is_empty());
            assert_eq!(response.headers()[LOCATION], read);
        }
    }

    #[test]
    fn refresh_header_is_removed_and_recorded() {
        for (value, leads_to) in [
            ("0;url=https://b.example/z", Some("https://b.example/z")),
            ("0 ; URL = 'https://b.example/z' x", Some("https://b.example/z")),
            ("3, \"/z\"", Some("https://a.example/z")),
            ("0;/z", Some("https://a.example/z")),
            ("0;url=ftp://b.example", None),
            ("0;url=", None),
            ("5", None),
        ] {
            let mut response = response(200, &[("refresh", value.as_bytes())]);
            let leads = settle(&target("https://a.example/"), &mut response).unwrap();
            let targets: Vec<String> = leads.targets.iter().map(ToString::to_string).collect();
            assert_eq!(targets.first().map(String::as_str), leads_to, "{value}");
            assert!(response.headers().is_empty());
        }
    }

    #[test]
    fn chain_is_counted_through_a_loop() {
        let mut redirects = Redirects::default();
        let (a, b) = ("https://a.example/", "https://b.example/");
        let mut here = a;
        for number in 0..10 {
            let there = if here == a { b } else { a };
            let hop = lead(&mut redirects, here, there);
            assert_eq!(hop.number, number);
            assert_eq!(hop.suspicion.cross_origin, number > 0);
            here = there;
        }
    }

    #[test]
    fn independent_request_starts_a_chain() {
        let mut redirects = Redirects::default();
        lead(&mut redirects, "https://a.example/", "https://a.example/next");
        assert_eq!(
            redirects.follow(&target("https://a.example/other")),
            Hop::default()
        );
        assert_eq!(redirects.follow(&target("https://a.example/next")).number, 1);
        assert_eq!(
            redirects.follow(&target("https://a.example/next")),
            Hop::default()
        );
    }

    #[test]
    fn hop_is_detected_in_every_spelling() {
        for (to, followed) in [
            ("https://a.example/a%7Eb", "https://a.example/a~b"),
            ("https://a.example/%fc", "https://a.example/%FC"),
            ("https://a.example/a%20b", "https://a.example/a%2520b"),
            ("https://a.example/?a+b", "https://a.example/?a%20b"),
            ("https://a.example/?", "https://a.example/"),
        ] {
            let mut redirects = Redirects::default();
            lead(&mut redirects, "https://b.example/", to);
            for _ in 0..2 {
                let hop = redirects.follow(&target(followed));
                assert!(hop.suspicion.cross_origin, "{to} {followed}");
            }
            // Nothing is pending any more.
            let other = redirects.follow(&target("https://a.example/other"));
            assert_eq!(other, Hop::default(), "{to}");
        }
    }

    #[test]
    fn next_request_to_a_foreign_origin_is_its_hop() {
        let mut redirects = Redirects::default();
        lead(&mut redirects, "https://b.example/", "https://a.example/x");
        for elsewhere in [
            "https://c.example/",
            "http://a.example/x",
            "https://a.example:8443/x",
        ] {
            assert_eq!(
                redirects.follow(&target(elsewhere)),
                Hop::default(),
                "{elsewhere}"
            );
        }
        let hop = redirects.follow(&target("https://a.example/x?client=1"));
        assert!(hop.suspicion.cross_origin);
        assert_eq!(hop.number, 1);
        assert_eq!(redirects.follow(&target("https://a.example/own")), Hop::default());
        // The exact target stays suspicious for the rest of the call.
        assert!(
            redirects
                .follow(&target("https://a.example/x"))
                .suspicion
                .cross_origin
        );
    }

    #[test]
    fn foreign_influence_persists_within_an_origin() {
        let mut redirects = Redirects::default();
        lead(&mut redirects, "https://b.example/", "https://a.example/dir");
        lead(&mut redirects, "https://a.example/dir", "https://a.example/dir/");
        let hop = redirects.follow(&target("https://a.example/dir/"));
        assert!(hop.suspicion.cross_origin && !hop.suspicion.downgrade);
        assert_eq!(hop.number, 2);
    }

    #[test]
    fn redirect_from_https_to_http_is_detected() {
        for followed in ["http://a.example/x", "http://a.example/other"] {
            let mut redirects = Redirects::default();
            lead(&mut redirects, "https://a.example/", "http://a.example/x");
            assert!(
                redirects.follow(&target(followed)).suspicion.downgrade,
                "{followed}"
            );
        }
        let mut redirects = Redirects::default();
        lead(&mut redirects, "http://a.example/", "https://a.example/x");
        assert!(
            !redirects
                .follow(&target("https://a.example/x"))
                .suspicion
                .downgrade
        );
    }

    #[test]
    fn after_an_unknown_redirect_one_request_is_suspicious() {
        for (from, next, downgrade) in [
            ("https://a.example/", "http://a.example/", true),
            ("https://a.example/", "https://b.example/x", false),
            ("http://a.example/", "http://b.example/x", false),
        ] {
            let mut redirects = Redirects::default();
            redirects.note_unknown(&target(from), Hop::default());
            let hop = redirects.follow(&target(next));
            assert!(hop.suspicion.cross_origin);
            assert_eq!(hop.number, 1);
            assert_eq!(hop.suspicion.downgrade, downgrade, "{from} {next}");
            assert_eq!(redirects.follow(&target(next)), Hop::default());
        }
    }
}
