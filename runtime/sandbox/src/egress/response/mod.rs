//! Checks and filters of a response before it reaches the guest.

mod packed;
pub(super) mod redact_body;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderMap, RETRY_AFTER};
use http::{Method, Response, StatusCode};
use toolcell_core::secret::SecretResponses;
use wasmtime_wasi_http::Error;

use self::redact_body::{check_content_coding, check_transfer_coding, mask_headers};
use super::redirect::{self, Leads, UnreadableRedirect};
use super::secrets::Treatment;
use super::target::Target;

/// Maximum total size of the names and values of all response headers, in bytes.
pub(crate) const MAX_RESPONSE_HEADER_BYTES: usize = 64 << 10;

/// Maximum `retry-after` of a withheld response, in seconds: a day. A longer number could carry a secret.
const MAX_RETRY_AFTER: u32 = 24 * 60 * 60;

/// Reason why a response is refused, beside the error codes of `wasi:http`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RefusedResponse {
    #[error("{0}")]
    Redirect(#[from] UnreadableRedirect),
    #[error("its media type `{found}` is not among the `responses` of the secret `{secret}`")]
    MediaType {
        secret: String,
        /// Media type, truncated.
        found: String,
    },
}

/// Result of the checks of a response.
pub(crate) struct Checked {
    /// Targets of its redirect.
    pub(crate) leads: Leads,
    /// True if the guest gets no body.
    pub(crate) withheld: bool,
}

/// Checks the size and the codings of a response.
pub(crate) fn check<B>(
    method: &Method,
    response: &Response<B>,
    limit: u64,
    treatment: Option<&Treatment>,
) -> Result<(), Error> {
    let headers = response.headers();
    let size: usize = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    if size > MAX_RESPONSE_HEADER_BYTES {
        return Err(Error::HttpResponseHeaderSectionSize(u32::try_from(size).ok()));
    }
    check_transfer_coding(headers)?;
    if treatment.is_some_and(|treatment| treatment.must_be_searchable) {
        check_content_coding(headers)?;
    }
    match content_length(headers).filter(|_| has_body(method, response.status())) {
        Some(length) if length > limit => Err(Error::HttpResponseBodySize(Some(length))),
        _ => Ok(()),
    }
}

/// Canonicalizes a redirect, redacts the headers, and applies the response restrictions of the secrets in the request.
pub(crate) fn settle<B>(
    method: &Method,
    target: &Target,
    response: &mut Response<B>,
    treatment: Option<&Treatment>,
) -> Result<Checked, RefusedResponse> {
    let leads = redirect::settle(target, response)?;
    let mut checked = Checked {
        leads,
        withheld: false,
    };
    let Some(treatment) = treatment else {
        return Ok(checked);
    };
    mask_headers(response.headers_mut(), &treatment.redactor);
    for (secret, responses) in &treatment.responses {
        match responses {
            SecretResponses::Any => {}
            SecretResponses::Withheld => checked.withheld = true,
            SecretResponses::MediaTypes(types) => {
                let is_empty = content_length(response.headers()) == Some(0);
                let found = media_type(response.headers());
                let is_allowed = found.as_ref().is_some_and(|found| types.contains(found));
                if !is_allowed && (found.is_some() || has_body(method, response.status()) && !is_empty) {
                    return Err(RefusedResponse::MediaType {
                        secret: secret.clone(),
                        found: found.unwrap_or_default().chars().take(64).collect(),
                    });
                }
            }
        }
    }
    if checked.withheld {
        withhold(response.headers_mut());
    }
    Ok(checked)
}

/// Replaces all headers by two that cannot carry a secret: the date of this host, and the seconds of `retry-after` up to
/// a day.
fn withhold(headers: &mut HeaderMap) {
    let seconds = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .filter(|value| value.bytes().all(|b| b.is_ascii_digit()))
        .and_then(|value| value.parse::<u64>().ok());
    headers.clear();
    if let Ok(now) = httpdate::fmt_http_date(std::time::SystemTime::now()).parse() {
        headers.insert(DATE, now);
    }
    if let Some(seconds) = seconds {
        let seconds = seconds.min(MAX_RETRY_AFTER.into());
        headers.insert(RETRY_AFTER, seconds.into());
    }
}

/// Returns the media type without parameters, in lower case; `None` if missing, and empty if there are several.
fn media_type(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let first = values.next()?;
    let text = first
        .to_str()
        .ok()
        .filter(|_| values.next().is_none())
        .unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default();
    Some(essence.trim().to_ascii_lowercase())
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn has_body(method: &Method, status: StatusCode) -> bool {
    let has_none = matches!(status, StatusCode::NOT_MODIFIED | StatusCode::NO_CONTENT);
    method != Method::HEAD && !has_none
}

#[cfg(test)]
mod tests {
    use super::*;

    use http::header::{HeaderName, HeaderValue};

    #[test]
    fn withheld_response_has_own_date_and_bounded_seconds() {
        for (name, value, retry_after) in [
            ("date", "Tue, 15 Nov 1994 08:12:31 GMT", None),
            ("date", "s3cret_value", None),
            ("retry-after", "120", Some("120")),
            ("retry-after", "86400", Some("86400")),
            ("retry-after", "86401", Some("86400")),
            ("retry-after", "18446744073709551615", Some("86400")),
            ("retry-after", "18446744073709551616", None),
            ("retry-after", "1;2", None),
            ("retry-after", "+1", None),
            ("retry-after", "Tue, 15 Nov 1994 08:12:31 GMT", None),
            ("x-other", "120", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
            withhold(&mut headers);
            let seconds = headers.remove(RETRY_AFTER);
            assert_eq!(
                seconds.as_ref().map(|s| s.to_str().unwrap()),
                retry_after,
                "{name}: {value}"
            );
            let date = headers.remove(DATE).unwrap();
            assert!(httpdate::parse_http_date(date.to_str().unwrap()).is_ok());
            assert!(!date.to_str().unwrap().contains("1994"), "{date:?}");
            assert!(headers.is_empty(), "{headers:?}");
        }
    }
}
