//! Redaction of echoed secrets in response bodies.
//!
//! A replacement has as many bytes as the secret, so that the lengths announced by the server stay valid.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http_body::{Body, Frame};
use toolcell_core::Redactor;
use toolcell_core::redact::{Redaction, Replacement};
use wasmtime_wasi_http::{Error, WasiBody};

use super::packed::{Packed, Refused};

/// A body without secrets.
pub(crate) struct MaskedBody {
    inner: WasiBody,
    redactor: Redactor,
    stream: Redaction,
    /// Searches compressed data.
    packed: Option<Packed>,
    /// Trailers, held until the last data.
    trailers: Option<HeaderMap>,
    /// True if the server has sent all data.
    at_end: bool,
    ended: bool,
}

impl MaskedBody {
    /// Creates a redacted body. If it `must_be_searchable`, undeclared compressed data is searched as well.
    pub(crate) fn new(inner: WasiBody, redactor: Redactor, must_be_searchable: bool) -> Self {
        Self {
            stream: redactor.stream(Replacement::SameLength),
            packed: must_be_searchable.then(|| Packed::new(redactor.clone())),
            inner,
            redactor,
            trailers: None,
            at_end: false,
            ended: false,
        }
    }

    /// Returns the next received piece that may be passed on.
    fn searched(&mut self) -> Result<Option<Bytes>, Error> {
        let Some(packed) = &mut self.packed else {
            return Ok(None);
        };
        let piece = match packed.next() {
            Ok(None) if self.at_end => packed.finish(),
            next => next,
        };
        piece.map_err(|refused| {
            let shown = match refused {
                Refused::Found => "compressed data with a secret",
                Refused::Unsearchable => "compressed",
            };
            Error::HttpResponseContentCoding(Some(shown.into()))
        })
    }

    fn mask(&mut self, data: &[u8]) -> Option<Frame<Bytes>> {
        let masked = self.stream.push(data).into_owned();
        (!masked.is_empty()).then(|| Frame::data(masked.into()))
    }

    /// Returns the remainder after all data was received: the last data, then the trailers.
    fn rest(&mut self) -> Option<Frame<Bytes>> {
        let rest = self.stream.finish();
        if !rest.is_empty() {
            return Some(Frame::data(rest.into()));
        }
        self.ended = true;
        self.trailers.take().map(Frame::trailers)
    }

    fn fail(&mut self, error: Error) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.ended = true;
        self.trailers = None;
        Poll::Ready(Some(Err(error)))
    }
}

impl Body for MaskedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        while !this.ended {
            match this.searched() {
                Ok(Some(piece)) => match this.mask(&piece) {
                    Some(frame) => return Poll::Ready(Some(Ok(frame))),
                    None => continue,
                },
                Ok(None) if this.at_end => return Poll::Ready(this.rest().map(Ok)),
                Ok(None) => {}
                Err(error) => return this.fail(error),
            }
            let frame = match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return this.fail(error),
                None => {
                    this.at_end = true;
                    continue;
                }
            };
            match frame.into_data() {
                Ok(data) => match &mut this.packed {
                    Some(packed) => packed.push(data),
                    None => {
                        if let Some(frame) = this.mask(&data) {
                            return Poll::Ready(Some(Ok(frame)));
                        }
                    }
                },
                Err(frame) => {
                    if let Ok(mut trailers) = frame.into_trailers() {
                        mask_headers(&mut trailers, &this.redactor);
                        this.trailers = Some(trailers);
                        this.at_end = true;
                    }
                }
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

/// Redacts secrets in the values of headers; removes a header with a secret in its name.
pub(crate) fn mask_headers(headers: &mut HeaderMap, redactor: &Redactor) {
    let names = headers
        .keys()
        .filter(|name| redactor.text(name.as_str()) != name.as_str());
    for name in names.cloned().collect::<Vec<_>>() {
        headers.remove(name);
    }
    for value in headers.values_mut() {
        let masked = redactor.replace(value.as_bytes(), Replacement::SameLength);
        if masked != value.as_bytes()
            && let Ok(masked) = HeaderValue::from_bytes(&masked)
        {
            *value = masked;
        }
    }
}

/// Rejects a response in which an echo could not be found.
pub(crate) fn check_content_coding(headers: &HeaderMap) -> Result<(), Error> {
    check(headers.get_all(CONTENT_ENCODING), b"identity")
}

/// Rejects a response whose body would reach the guest with a transfer coding. None was requested (RFC 9112, section
/// 6.1), and the host cannot know how a guest would decode one.
pub(crate) fn check_transfer_coding(headers: &HeaderMap) -> Result<(), Error> {
    check(headers.get_all(TRANSFER_ENCODING), b"chunked")
}

fn check(codings: http::header::GetAll<'_, HeaderValue>, allowed: &[u8]) -> Result<(), Error> {
    let other = codings
        .iter()
        .find(|coding| !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(allowed));
    match other {
        None => Ok(()),
        Some(coding) => Err(Error::HttpResponseContentCoding(
            coding.to_str().ok().map(str::to_owned),
        )),
    }
}
