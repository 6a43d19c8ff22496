//! Chains of redirects.
//!
//! A redirect goes back to the guest as it is; its client follows by a new request, which is checked like any other.
//! What a single request cannot show is that it belongs to a chain: so the `Location` of each redirect is remembered,
//! and a request for exactly that target is the next hop of its chain.

use std::collections::HashMap;

use http::header::{AUTHORIZATION, COOKIE, HeaderMap, LOCATION, PROXY_AUTHORIZATION};
use http::{Response, StatusCode};

use super::target::{Scheme, Target};

/// Hops in one chain; browsers allow 20, most libraries 10, and honest chains have two or three. A chain that wants
/// one more is refused.
pub(crate) const MAX_HOPS: u32 = 5;

/// The redirects that a call has seen and not yet followed.
#[derive(Debug, Default)]
pub(crate) struct Redirects(HashMap<String, Hop>);

/// A request that follows a redirect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hop {
    /// Redirects in the chain up to this request; 0 for a request of its own.
    pub(crate) number: u32,
    /// Whether the redirect came from another scheme, host or port.
    pub(crate) cross_origin: bool,
    /// Whether the redirect leads from `https` to `http`.
    pub(crate) downgrade: bool,
}

impl Redirects {
    /// Which hop of a chain a request for `target` is. Each redirect counts for one request.
    pub(crate) fn follow(&mut self, target: &Target) -> Hop {
        self.0.remove(&target.to_string()).unwrap_or(Hop {
            number: 0,
            cross_origin: false,
            downgrade: false,
        })
    }

    /// Remembers where the answer to hop `number` leads, if it is a redirect.
    pub(crate) fn note<B>(&mut self, from: &Target, number: u32, response: &Response<B>) {
        let redirects = matches!(
            response.status(),
            StatusCode::MOVED_PERMANENTLY
                | StatusCode::FOUND
                | StatusCode::SEE_OTHER
                | StatusCode::TEMPORARY_REDIRECT
                | StatusCode::PERMANENT_REDIRECT
        );
        let location = response.headers().get(LOCATION).filter(|_| redirects);
        let Some(to) = location.and_then(|l| from.join(l.to_str().ok()?)) else {
            return;
        };
        let hop = Hop {
            number: number + 1,
            cross_origin: !to.same_origin(from),
            downgrade: from.scheme == Scheme::Https && to.scheme == Scheme::Http,
        };
        self.0.insert(to.to_string(), hop);
    }
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

    fn found(location: &str) -> Response<()> {
        Response::builder()
            .status(302)
            .header(LOCATION, location)
            .body(())
            .unwrap()
    }

    #[test]
    fn a_chain_is_counted_through_a_loop() {
        let mut redirects = Redirects::default();
        let (a, b) = (target("https://a.example/"), target("https://b.example/"));
        let mut here = &a;
        for number in 0..10 {
            let hop = redirects.follow(here);
            assert_eq!(hop.number, number);
            assert_eq!(hop.cross_origin, number > 0);
            let there = if here == &a { &b } else { &a };
            redirects.note(here, hop.number, &found(&there.to_string()));
            here = there;
        }
    }

    #[test]
    fn a_request_of_its_own_starts_a_chain() {
        let mut redirects = Redirects::default();
        let a = target("https://a.example/");
        redirects.note(&a, 0, &found("/next"));
        assert_eq!(redirects.follow(&target("https://a.example/other")).number, 0);
        assert_eq!(redirects.follow(&target("https://a.example/next")).number, 1);
        assert_eq!(redirects.follow(&target("https://a.example/next")).number, 0);
    }

    #[test]
    fn a_redirect_from_https_to_http_is_seen() {
        let mut redirects = Redirects::default();
        redirects.note(&target("https://a.example/"), 0, &found("http://a.example/"));
        assert!(redirects.follow(&target("http://a.example/")).downgrade);
    }

    #[test]
    fn an_answer_that_is_no_redirect_or_leads_nowhere_is_not_remembered() {
        let mut redirects = Redirects::default();
        let a = target("https://a.example/");
        redirects.note(
            &a,
            0,
            &Response::builder().header(LOCATION, "/x").body(()).unwrap(),
        );
        redirects.note(&a, 0, &found("file:///etc/passwd"));
        redirects.note(&a, 0, &Response::builder().status(302).body(()).unwrap());
        assert!(redirects.0.is_empty());
    }
}
