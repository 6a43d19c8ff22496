//! Response bodies on their way to the guest: limited in bytes and idle time.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};
use wasmtime::component::{Linker, Resource, ResourceTable};
use wasmtime_wasi::p2::bindings::io::error::Error as IoError;
use wasmtime_wasi_http::Error;
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;

use crate::cell::memory::Reservation;
use crate::cell::receipt::ReceiptRecorder;

/// Maximum size of one write to a request body, in bytes. Two such pieces can be queued for each request of a guest.
pub(crate) const BODY_CHUNK: usize = 64 << 10;

/// A response body that fails after too many bytes or too long an idle time. It counts bytes as received, without
/// decoding: a guest decompresses in its own memory, under its own limit. It holds one of the tool's connections, and
/// the memory of the exchange, until it is dropped.
pub(crate) struct CheckedBody {
    incoming: Incoming,
    limit: u64,
    remaining: u64,
    silence: Duration,
    timer: Pin<Box<Sleep>>,
    failed: bool,
    recorder: ReceiptRecorder,
    _connection: OwnedSemaphorePermit,
    _memory: Reservation,
}

impl CheckedBody {
    /// Creates a body with a `limit` in bytes; `silence` is the maximum time between two pieces.
    pub(crate) fn new(
        incoming: Incoming,
        limit: u64,
        silence: Duration,
        connection: OwnedSemaphorePermit,
        memory: Reservation,
        recorder: ReceiptRecorder,
    ) -> Self {
        Self {
            incoming,
            limit,
            remaining: limit,
            silence,
            timer: Box::pin(tokio::time::sleep(silence)),
            failed: false,
            recorder,
            _connection: connection,
            _memory: memory,
        }
    }

    fn check(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, Error> {
        let length = frame
            .data_ref()
            .map_or(0, |data| u64::try_from(data.len()).unwrap_or(u64::MAX));
        match self.remaining.checked_sub(length) {
            Some(remaining) => {
                self.remaining = remaining;
                let next = Instant::now() + self.silence;
                self.timer.as_mut().reset(next);
                Ok(frame)
            }
            None => {
                // The length of the whole is not known.
                self.recorder.too_much("http_body", self.limit, 0);
                Err(Error::HttpResponseBodySize(Some(self.limit)))
            }
        }
    }
}

impl Body for CheckedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        if this.failed {
            return Poll::Ready(None);
        }
        let frame = match Pin::new(&mut this.incoming).poll_frame(cx) {
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(Ok(frame))) => this.check(frame),
            Poll::Ready(Some(Err(error))) => Err(from_hyper(error)),
            Poll::Pending => {
                ready!(this.timer.as_mut().poll(cx));
                Err(Error::ConnectionReadTimeout)
            }
        };
        this.failed = frame.is_err();
        Poll::Ready(Some(frame))
    }

    fn is_end_stream(&self) -> bool {
        self.failed || self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// Returns the most specific error code of `wasi:http` for a protocol error.
pub(crate) fn from_hyper(error: hyper::Error) -> Error {
    if error.is_parse_too_large() {
        Error::HttpResponseHeaderSectionSize(None)
    } else if error.is_incomplete_message() {
        Error::HttpResponseIncomplete
    } else if error.is_closed() || error.is_canceled() {
        Error::ConnectionTerminated
    } else if error.is_parse() {
        Error::HttpProtocolError
    } else {
        Error::Hyper(error)
    }
}

/// Links the function with which guests read why a body broke off: that of the engine knows no error of a body.
pub(crate) fn add_error_code_to_linker<T: 'static>(
    linker: &mut Linker<T>,
    table: fn(&mut T) -> &mut ResourceTable,
) -> wasmtime::Result<()> {
    let mut types = linker.instance("wasi:http/types@0.2.12")?;
    types.func_wrap(
        "http-error-code",
        move |mut cell, (error,): (Resource<IoError>,)| {
            let error = table(cell.data_mut()).get(&error)?;
            let code = match error.downcast_ref::<Error>() {
                Some(error) => Some(code_of(error)),
                None => error.downcast_ref::<ErrorCode>().cloned(),
            };
            Ok((code,))
        },
    )
}

/// Returns the code of an error of a body.
fn code_of(error: &Error) -> ErrorCode {
    match error {
        Error::HttpResponseBodySize(size) => ErrorCode::HttpResponseBodySize(*size),
        Error::HttpResponseIncomplete => ErrorCode::HttpResponseIncomplete,
        Error::HttpResponseHeaderSectionSize(size) => ErrorCode::HttpResponseHeaderSectionSize(*size),
        Error::ConnectionReadTimeout => ErrorCode::ConnectionReadTimeout,
        Error::ConnectionTerminated => ErrorCode::ConnectionTerminated,
        Error::HttpProtocolError => ErrorCode::HttpProtocolError,
        other => ErrorCode::InternalError(Some(other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Empty;
    use hyper::client::conn::http1;
    use hyper_util::rt::TokioIo;

    use super::*;

    #[tokio::test]
    async fn request_on_an_ended_connection_is_terminated() {
        let (client, _server) = tokio::io::duplex(64);
        let (mut sender, connection) = http1::handshake(TokioIo::new(client)).await.unwrap();
        drop(connection);
        let closed = sender.ready().await.unwrap_err();
        let request = http::Request::new(Empty::<Bytes>::new());
        let cancelled = sender.send_request(request).await.unwrap_err();
        assert!(closed.is_closed() && cancelled.is_canceled());
        for error in [closed, cancelled] {
            assert!(matches!(from_hyper(error), Error::ConnectionTerminated));
        }
    }
}
