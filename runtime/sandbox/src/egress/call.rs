//! HTTP requests of one call: authorization and recording.

use std::sync::{Arc, Mutex};

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response};
use toolcell_core::policy::Limits;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

use super::body::BODY_CHUNK;
use super::exchange;
use super::redirect::{self, MAX_HOPS, Redirects};
use super::shared::{ApprovedRequest, Egress, lock, no_memory};
use super::target::{InvalidTarget, Target};
use crate::cell::failure;
use crate::cell::memory::Reservation;
use crate::cell::memory::objects::REQUEST;
use crate::cell::receipt::ReceiptRecorder;

/// Maximum size of all request headers, names and values, in bytes; also the maximum that the host holds in one headers
/// object of a guest, which can have as many as handles. Servers accept from 8 to 32 KiB.
pub(crate) const MAX_REQUEST_HEADERS: usize = 32 << 10;

/// Bytes that each request takes until its call ends, to record the target of a redirect.
const REDIRECT: u64 = 16 << 10;

/// Maximum length of the name of a header in a denial, in bytes.
const MAX_HEADER_NAME: usize = 64;

/// The HTTP hooks of one call, and the only egress of its cell over HTTP.
#[derive(Debug)]
pub(crate) struct CallEgress {
    egress: Arc<Egress>,
    recorder: ReceiptRecorder,
    sent: u32,
    /// Created by the first request.
    redirects: Option<Arc<Mutex<Redirects>>>,
    /// Memory of the recorded redirects.
    remembered: Reservation,
}

impl Egress {
    /// Returns the egress of one call, which records to `recorder`.
    pub(crate) fn call(self: &Arc<Self>, recorder: ReceiptRecorder) -> CallEgress {
        CallEgress {
            egress: self.clone(),
            remembered: recorder.account().empty(),
            recorder,
            sent: 0,
            redirects: None,
        }
    }
}

impl CallEgress {
    /// Performs all checks of a request that do not need the network.
    fn admit(&mut self, mut request: Request<WasiBody>) -> Result<ApprovedRequest, Error> {
        let mut target = Target::of_request(request.uri()).map_err(|error| {
            tracing::debug!(%error, "request refused");
            match error {
                InvalidTarget::TooLong(_) => Error::HttpRequestUriTooLong,
                _ => Error::HttpRequestUriInvalid,
            }
        })?;
        let method = request.method().clone();
        if method == Method::CONNECT {
            return Err(Error::HttpRequestMethodInvalid);
        }
        check_headers(request.headers(), request.uri(), &target)?;
        if self.sent >= self.egress.requests_per_call {
            let limit = self.egress.requests_per_call;
            // Unlike a denial, it depends on no target. `wasi:http` has no code for it.
            let what = Limits::too_much("http_requests", limit.into());
            let told = format!("{what}, the limit of this tool");
            self.recorder
                .too_much("http_requests", limit.into(), u64::from(limit) + 1);
            return Err(Error::InternalError(Some(told)));
        }
        self.sent += 1;
        if let Some(name) = overriding(request.headers()) {
            let (shown, name) = (
                self.egress.shown(&method, &target),
                failure::cut(name.to_owned(), MAX_HEADER_NAME),
            );
            let shown = format!("{shown} (the header `{name}` could name another target or method)");
            self.recorder.denial("http", shown, None);
            return Err(Error::HttpRequestDenied);
        }
        self.remembered.grow(REDIRECT).map_err(no_memory)?;
        let memory = self.recorder.account().reserve(REQUEST).map_err(no_memory)?;
        let redirects = self.redirects.get_or_insert_default().clone();
        let hop = lock(&redirects).follow(&target);
        if let Some(by) = self.egress.rules.denied(method.as_str(), &target) {
            self.egress.note_denied_by(&self.recorder, &method, &target, by);
            return Err(Error::HttpRequestDenied);
        }
        let Some(scope) = self.egress.rules.scope(method.as_str(), &target) else {
            self.egress
                .note_denial(&self.recorder, &method, &target, false, hop);
            return Err(Error::HttpRequestDenied);
        };
        if hop.number > MAX_HOPS {
            let shown = self.egress.shown(&method, &target);
            let shown = format!("{shown} (more than {MAX_HOPS} redirects in a row)");
            self.recorder.denial("http", shown, None);
            return Err(Error::LoopDetected);
        }
        if hop.suspicion.downgrade {
            let shown = self.egress.shown(&method, &target);
            let shown = format!("{shown} (a redirect from https to http)");
            self.recorder.denial("http", shown, None);
            return Err(Error::HttpRequestDenied);
        }
        let headers = request.headers_mut();
        let mut treatment = self.egress.secrets.prepare(&target, headers);
        if hop.suspicion.cross_origin {
            redirect::drop_credentials(headers);
        } else if let Some(treatment) = &mut treatment {
            treatment.responses = self.egress.secrets.attach(&method, &mut target, headers);
        }
        Ok(ApprovedRequest {
            egress: self.egress.clone(),
            recorder: self.recorder.clone(),
            redirects,
            request,
            target,
            scope,
            hop,
            treatment,
            memory,
        })
    }
}

type Reply = Result<
    (
        Response<WasiBody>,
        Box<dyn Future<Output = Result<(), Error>> + Send>,
    ),
    Error,
>;

impl WasiHttpHooks for CallEgress {
    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _result: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Reply> + Send> {
        match self.admit(request) {
            Ok(admitted) => Box::new(exchange::send(admitted, options.unwrap_or_default())),
            Err(error) => Box::new(std::future::ready(Err(error))),
        }
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        BODY_CHUNK
    }

    fn p2_error_from_hyper(
        &mut self,
        error: &hyper::Error,
    ) -> wasmtime_wasi_http::p2::bindings::http::types::ErrorCode {
        tracing::debug!(%error, "exchange failed");
        wasmtime_wasi_http::p2::bindings::http::types::ErrorCode::HttpProtocolError
    }
}

/// Rejects ambiguous headers, and too many of them.
fn check_headers(headers: &HeaderMap, uri: &http::Uri, target: &Target) -> Result<(), Error> {
    const HOP_BY_HOP: [HeaderName; 5] = [
        header::CONNECTION,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::PROXY_AUTHORIZATION,
        HeaderName::from_static("proxy-connection"),
    ];
    let size: usize = headers.iter().map(|(k, v)| k.as_str().len() + v.len()).sum();
    if size > MAX_REQUEST_HEADERS {
        return Err(Error::HttpRequestHeaderSectionSize(u32::try_from(size).ok()));
    }
    if HOP_BY_HOP.iter().any(|name| headers.contains_key(name)) {
        return Err(Error::HttpRequestDenied);
    }
    let written = uri.authority().map_or("", http::uri::Authority::as_str);
    let is_same = |host: &HeaderValue| {
        let host = host.as_bytes();
        host.eq_ignore_ascii_case(written.as_bytes()) || host == target.authority().as_bytes()
    };
    if !headers.get_all(header::HOST).iter().all(is_same) {
        return Err(Error::HttpRequestUriInvalid);
    }
    // RFC 9110, section 8.6: one value, digits only.
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let well_formed = match (lengths.next(), lengths.next()) {
        (None, _) => true,
        (Some(length), None) => {
            let digits = length.as_bytes();
            !digits.is_empty()
                && digits.iter().all(u8::is_ascii_digit)
                && length.to_str().is_ok_and(|l| l.parse::<u64>().is_ok())
        }
        _ => false,
    };
    if well_formed {
        Ok(())
    } else {
        Err(Error::HttpProtocolError)
    }
}

/// Headers by which servers and proxies take another method, path or host than that of the request, as letters and digits:
/// gateways such as CGI (RFC 3875, section 4.1.18) and lighttpd take every other character for `_`.
///
/// Method: Rails, ASP.NET, Express, Google APIs, WordPress. Path: IIS, Azure, Symfony, Zend, nginx, Envoy, Traefik. Host:
/// RFC 7239 and its forerunners. `destination` is the target of COPY and MOVE (RFC 4918).
const OVERRIDING: [&str; 47] = [
    "baseurl",
    "destination",
    "forwarded",
    "pathinfo",
    "requesturi",
    "scriptname",
    "xaccelredirect",
    "xarroriginalurl",
    "xbackendhost",
    "xenvoyoriginalhost",
    "xenvoyoriginalmethod",
    "xenvoyoriginalpath",
    "xforwardedhost",
    "xforwardedmethod",
    "xforwardedpath",
    "xforwardedport",
    "xforwardedprefix",
    "xforwardedproto",
    "xforwardedrequesturi",
    "xforwardedserver",
    "xforwardeduri",
    "xforwardedurl",
    "xhost",
    "xhttpdestinationurl",
    "xhttpmethod",
    "xhttpverb",
    "xmethod",
    "xmsoriginalurl",
    "xoriginalhost",
    "xoriginalmethod",
    "xoriginaluri",
    "xoriginalurl",
    "xpath",
    "xpathinfo",
    "xproxyurl",
    "xrealurl",
    "xreplacedpath",
    "xrequesturi",
    "xrewritepath",
    "xrewriteurl",
    "xscriptname",
    "xsendfile",
    "xtunneledmethod",
    "xtunnelmethod",
    "xuri",
    "xurl",
    "xwawsunencodedurl",
];

/// Returns the first header that overrides what grants, denials and secrets are decided by.
fn overriding(headers: &HeaderMap) -> Option<&str> {
    let is_overriding = |name: &&str| {
        let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        plain.contains("override") || OVERRIDING.contains(&plain.as_str())
    };
    headers.keys().map(HeaderName::as_str).find(is_overriding)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(url: &str, headers: &[(HeaderName, &str)]) -> Result<(), Error> {
        let uri: http::Uri = url.parse().unwrap();
        let target = Target::parse(url).unwrap();
        let map = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()))
            .collect();
        check_headers(&map, &uri, &target)
    }

    #[test]
    fn length_is_one_number_of_digits() {
        let checked = |lengths: &[&str]| {
            let headers: Vec<_> = lengths
                .iter()
                .map(|length| (header::CONTENT_LENGTH, *length))
                .collect();
            checked("https://example.com/", &headers).is_ok()
        };
        for (lengths, is_ok) in [
            (&[][..], true),
            (&["0"], true),
            (&["18446744073709551615"], true),
            (&["18446744073709551616"], false),
            (&[""], false),
            (&["+1"], false),
            (&["1, 1"], false),
            (&["1", "1"], false),
        ] {
            assert_eq!(checked(lengths), is_ok, "{lengths:?}");
        }
    }

    #[test]
    fn header_that_overrides_the_request_is_found_in_any_spelling() {
        for (name, is_overriding) in [
            ("X-HTTP-Method-Override", true),
            ("x_http_method_override", true),
            ("X-Original-URL", true),
            ("X-Forwarded-Host", true),
            ("forwarded", true),
            ("x.http.method.override", true),
            ("x~original~url", true),
            ("x-wp-method-override", true),
            ("x-verb-override", true),
            ("x-http-path-override", true),
            ("x-real-url", true),
            ("x-callback-url", false),
            ("x-envoy-original-path", true),
            ("destination", true),
            ("x-requested-with", false),
            ("x-http-methods", false),
            ("x-forwarded-for", false),
            ("accept", false),
        ] {
            let name = HeaderName::try_from(name).unwrap();
            let headers = HeaderMap::from_iter([(name.clone(), HeaderValue::from_static("x"))]);
            assert_eq!(overriding(&headers).is_some(), is_overriding, "{name}");
        }
    }

    #[test]
    fn host_header_names_the_host_of_the_url() {
        for (url, host, is_ok) in [
            ("https://EXAMPLE.com/", "example.COM", true),
            ("https://EXAMPLE.com/", "example.com", true),
            ("https://example.com:443/", "example.com:443", true),
            ("https://example.com:443/", "example.com", true),
            ("https://example.com/", "example.org", false),
            ("https://example.com/", "", false),
        ] {
            let found = checked(url, &[(header::HOST, host)]).is_ok();
            assert_eq!(found, is_ok, "{url} {host}");
        }
        let twice = [(header::HOST, "example.com"), (header::HOST, "example.org")];
        assert!(checked("https://example.com/", &twice).is_err());
    }
}
