//! Redirects: the one reading of a `Location`, and the requests that follow one.
//!
//! A guest follows a redirect by a request of its own, which is checked like any other. What a single request cannot
//! show is that a server asked for it: such a request must carry no credentials to another origin and must not fall
//! back from `https` to `http`. Two things make the request of the guest known as a hop:
//!
//! - **One reading** ([`settle`]). Clients disagree about white space, bytes beyond ASCII, backslashes, several headers
//!   and relative references. So the host reads the header once, as the WHATWG URL standard does, and the guest gets the
//!   absolute URL that came out of it. An answer whose header cannot be read that way is refused. A `Refresh` header,
//!   which some clients follow too, is read the same way and taken out.
//! - **Any spelling** ([`Redirects`]). A request is the hop whatever its percent-encoding. Where a redirect leads to
//!   another origin, the first request to that origin counts as the hop even if it is for another URL, and a request for
//!   the very target counts as one for the rest of the call, so that a client that tries again gains nothing.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use http::Response;
use http::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderValue, LOCATION, PROXY_AUTHORIZATION, REFRESH};

use super::path::decoded;
use super::target::{Host, InvalidTarget, Scheme, Target};

/// Hops in one chain; browsers allow 20, most libraries 10, and honest chains have two or three. A chain that wants
/// one more is refused.
pub(crate) const MAX_HOPS: u32 = 5;

/// The redirects that a call has seen. It grows by a few bytes with each response, of which a call has a limited number.
#[derive(Debug, Default)]
pub(crate) struct Redirects {
    /// Makes keys that no server can choose.
    keys: RandomState,
    /// By target, which hop of its chain the next request for it is.
    announced: HashMap<u64, u32>,
    /// By target, what a request for it must not do for the rest of the call.
    suspect: HashMap<u64, Suspicion>,
    /// Suspect redirects that no request has followed yet.
    pending: Vec<Pending>,
}

/// A request that follows a redirect, or none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Hop {
    /// Redirects in the chain up to this request; 0 for a request of its own.
    pub(crate) number: u32,
    /// Why it is not to be trusted.
    pub(crate) suspicion: Suspicion,
}

/// What is wrong with following a redirect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Suspicion {
    /// Another scheme, host or port than that of the request had a say in where the chain leads.
    pub(crate) cross_origin: bool,
    /// The redirect leads from `https` to `http`.
    pub(crate) downgrade: bool,
}

/// A redirect that is still to be followed.
#[derive(Debug)]
struct Pending {
    /// Where a request must go to be the hop; `None` where that is not known: any request may be its hop.
    origin: Option<(Scheme, Host, u16)>,
    number: u32,
    key: u64,
    suspicion: Suspicion,
}

/// Where an answer leads.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Leads {
    /// What a client may request next.
    pub(crate) targets: Vec<Target>,
    /// It leads to another scheme, such as that of an app. A client that makes an HTTP request of that all the same is
    /// beyond what can be known.
    pub(crate) elsewhere: bool,
}

/// Why a redirect is not passed on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnreadableRedirect {
    #[error("it has {0} different `Location` headers")]
    Several(usize),
    #[error("its `Location` cannot be followed: {0}")]
    Invalid(#[from] InvalidTarget),
}

impl Redirects {
    /// Which hop of a chain a request for `target` is.
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
                // What the server wanted is not known; the worst is assumed of it.
                hop.suspicion.downgrade &= target.scheme == Scheme::Http;
            }
        }
        hop
    }

    /// Remembers where the answer to `hop`, a request to `from`, leads.
    pub(crate) fn note_all(&mut self, from: &Target, hop: Hop, leads: &Leads) {
        for to in &leads.targets {
            self.note(from, hop, to);
        }
        if leads.elsewhere {
            self.note_unknown(from, hop);
        }
    }

    /// Remembers that the answer to `hop`, a request to `from`, leads to `to`.
    pub(crate) fn note(&mut self, from: &Target, hop: Hop, to: &Target) {
        let key = self.key(to);
        let number = hop.number + 1;
        let suspicion = Suspicion {
            // A server that another one has led to may lead on within its own origin: the wish is still the other's.
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

    /// Remembers that the answer to `hop`, a request to `from`, leads somewhere that is not known.
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

    /// The same for all spellings of a target that a client may turn one into another.
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
        self.cross_origin |= other.cross_origin;
        self.downgrade |= other.downgrade;
    }
}

/// Brings the redirect that is in a response into the one spelling that every client reads alike, and says where it leads. Every 3xx with a `Location` is one, because some clients follow all of them.
///
/// # Errors
/// When the redirect cannot be read, or clients could read it in different ways.
pub(crate) fn settle<B>(from: &Target, response: &mut Response<B>) -> Result<Leads, UnreadableRedirect> {
    let mut leads = Leads::default();
    for refresh in response.headers().get_all(REFRESH) {
        // Nobody can follow what is taken out; a client that remembers a part of it is known all the same.
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
        .map_err(|_| InvalidTarget::Malformed("no header can carry it".into()))?;
    response.headers_mut().insert(LOCATION, written);
    Ok(leads)
}

/// The URL of a `Refresh` header, such as `0; url=/next`
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

/// Takes out what a client must not carry to another origin (RFC 9110, section 15.4).
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

    /// What a client reads, or why the answer is refused.
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
    fn a_location_reaches_the_guest_in_one_spelling() {
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
        // Clients do not follow these: what they name stays as it is.
        assert_eq!(passed_on(here, 201, &[("location", b"../z")]).unwrap(), "../z");
    }

    #[test]
    fn a_location_with_no_single_reading_is_refused() {
        let long = [b"/".as_slice(), &vec![b'x'; 9 << 10]].concat();
        for (headers, reason) in [
            (vec![b"/a".as_slice(), b"/b"], "2 different"),
            (vec![b"/a", b"https://b.example/", b"/a"], "2 different"),
            (vec![b"https://user@b.example/"], "user name"),
            (vec![b"https://:pw@b.example/"], "user name"),
            (vec![b"https://"], "cannot be read"),
            (vec![b"https://b%00.example/"], "cannot be read"),
            (vec![b"https://b.example:99999/"], "cannot be read"),
            (vec![b"https://b.example:0/"], "port 0"),
            (vec![b"https://b\xff.example/"], "cannot be read"),
            (vec![&long], "8192 are allowed"),
        ] {
            let headers: Vec<_> = headers.into_iter().map(|value| ("location", value)).collect();
            let error = passed_on("https://a.example/", 302, &headers).unwrap_err();
            assert!(error.contains(reason), "{headers:?}: {error}");
        }
    }

    #[test]
    fn a_location_of_another_scheme_is_passed_on_and_known() {
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
    fn a_refresh_is_taken_out_and_known() {
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
    fn a_chain_is_counted_through_a_loop() {
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
    fn a_request_of_its_own_starts_a_chain() {
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
    fn a_hop_is_known_in_every_spelling() {
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
    fn the_next_request_to_a_foreign_target_is_its_hop() {
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
        // The very target stays suspect for the rest of the call.
        assert!(
            redirects
                .follow(&target("https://a.example/x"))
                .suspicion
                .cross_origin
        );
    }

    #[test]
    fn a_foreign_wish_stays_one_within_an_origin() {
        let mut redirects = Redirects::default();
        lead(&mut redirects, "https://b.example/", "https://a.example/dir");
        lead(&mut redirects, "https://a.example/dir", "https://a.example/dir/");
        let hop = redirects.follow(&target("https://a.example/dir/"));
        assert!(hop.suspicion.cross_origin && !hop.suspicion.downgrade);
        assert_eq!(hop.number, 2);
    }

    #[test]
    fn a_redirect_from_https_to_http_is_seen() {
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
    fn after_a_redirect_to_nowhere_one_request_is_suspect() {
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
