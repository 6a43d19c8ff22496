//! What a server echoes of a secret, masked before the guest reads it.
//!
//! A mask has as many bytes as what it covers, so that the lengths that the server announces stay true.

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
    /// Looks into what is compressed.
    packed: Option<Packed>,
    /// Trailers that wait for the last data.
    trailers: Option<HeaderMap>,
    /// No more data comes from the server.
    at_end: bool,
    ended: bool,
}

impl MaskedBody {
    /// A body that is compressed and does not say so is searched as well if it `must_be_searchable`.
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

    /// The next piece of what came, if it may be passed on.
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
                Refused::Found => "compressed, with a secret in it",
                Refused::Unsearchable => "compressed",
            };
            Error::HttpResponseContentCoding(Some(shown.into()))
        })
    }

    fn mask(&mut self, data: &[u8]) -> Option<Frame<Bytes>> {
        let masked = self.stream.push(data).into_owned();
        (!masked.is_empty()).then(|| Frame::data(masked.into()))
    }

    /// What is left when all data came: the last data, then the trailers.
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

/// Masks secrets in the values of headers; a header that has one in its name is taken out.
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

/// Refuses an answer in which an echo could not be seen.
pub(crate) fn check_content_coding(headers: &HeaderMap) -> Result<(), Error> {
    check(headers.get_all(CONTENT_ENCODING), b"identity")
}

/// Refuses an answer whose body would reach the guest in a transfer coding. None was asked for (RFC 9112, section 6.1),
/// and what a guest would make of one the host cannot see.
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
