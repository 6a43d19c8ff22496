//! What a server echoes of a secret, masked before the guest reads it.
//!
//! A mask has as many bytes as what it covers, so that the lengths that the server announces stay true.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, HeaderMap, HeaderValue};
use http_body::{Body, Frame};
use toolcell_core::Redactor;
use toolcell_core::redact::{Redaction, Replacement};
use wasmtime_wasi_http::{Error, WasiBody};

/// A body without secrets.
pub(crate) struct MaskedBody {
    inner: WasiBody,
    redactor: Redactor,
    stream: Redaction,
    /// Trailers that wait for the last data.
    trailers: Option<HeaderMap>,
    ended: bool,
}

impl MaskedBody {
    pub(crate) fn new(inner: WasiBody, redactor: Redactor) -> Self {
        let stream = redactor.stream(Replacement::SameLength);
        Self {
            inner,
            redactor,
            stream,
            trailers: None,
            ended: false,
        }
    }

    /// The last data, if the stream has held back any.
    fn rest(&mut self) -> Option<Frame<Bytes>> {
        let rest = self.stream.finish();
        (!rest.is_empty()).then(|| Frame::data(rest.into()))
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
        if let Some(trailers) = this.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        while !this.ended {
            let frame = match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    this.ended = true;
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    this.ended = true;
                    return Poll::Ready(this.rest().map(Ok));
                }
            };
            match frame.into_data() {
                Ok(data) => {
                    let masked = this.stream.push(&data);
                    if !masked.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(masked.into_owned().into()))));
                    }
                }
                Err(frame) => {
                    let Ok(mut trailers) = frame.into_trailers() else {
                        continue;
                    };
                    mask_headers(&mut trailers, &this.redactor);
                    return Poll::Ready(Some(Ok(match this.rest() {
                        Some(rest) => {
                            this.trailers = Some(trailers);
                            rest
                        }
                        None => Frame::trailers(trailers),
                    })));
                }
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.ended && self.trailers.is_none()
    }
}

/// Masks secrets in the values of headers.
pub(crate) fn mask_headers(headers: &mut HeaderMap, redactor: &Redactor) {
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
pub(crate) fn check_coding(headers: &HeaderMap) -> Result<(), Error> {
    let coding = headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .find(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    match coding {
        None => Ok(()),
        Some(coding) => Err(Error::HttpResponseContentCoding(
            coding.to_str().ok().map(str::to_owned),
        )),
    }
}
