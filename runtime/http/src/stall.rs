//! Streams that fail if their reader takes no byte for a time.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Maximum time in which a client takes no byte of what is written for it. The connection is closed then.
pub const MAX_WRITE_STALL: Duration = Duration::from_secs(30);

/// Stream whose writes fail after [`MAX_WRITE_STALL`] without progress.
pub struct Stalling<S> {
    stream: S,
    /// Set while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalling<S> {
    /// Limits the writes to a stream.
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            stalled: None,
        }
    }

    fn limited<T>(&mut self, polled: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stalled = None;
            return polled;
        }
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(MAX_WRITE_STALL)));
        ready!(stalled.as_mut().poll(cx));
        let reason = format!("the client read nothing for {} s", MAX_WRITE_STALL.as_secs());
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, reason)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.limited(written, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
