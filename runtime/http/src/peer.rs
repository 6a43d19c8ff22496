//! Connections: those that have not shown that they belong to a client leave their places to others, and the end of each
//! is seen while its request is answered.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::MAX_STRANGERS;

/// A connection.
#[derive(Debug, Default)]
pub struct Peer {
    is_client: AtomicBool,
    ended: CancellationToken,
    closed: CancellationToken,
}

impl Peer {
    /// Notes that a client has sent a request on the connection.
    pub fn is_of_client(&self) {
        self.is_client.store(true, Ordering::Relaxed);
    }

    /// Ends the connection, or notes that it has ended.
    pub(crate) fn end(&self) {
        self.ended.cancel();
    }

    /// Waits until the connection is to end.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Token that is cancelled when the client has closed the connection.
    pub fn closed(&self) -> CancellationToken {
        self.closed.clone()
    }

    /// Watches for the end of the input of `stream`, which can lie behind bytes that are not read while a request is
    /// answered; the system shows it if it can hold these bytes. Never ends: the descriptor is closed with the connection.
    pub(crate) async fn watch(&self, stream: std::io::Result<OwnedFd>) -> Infallible {
        let _watched = self.watch_to_end(stream).await;
        std::future::pending().await
    }

    async fn watch_to_end(&self, stream: std::io::Result<OwnedFd>) -> std::io::Result<TcpStream> {
        let stream = TcpStream::from_std(stream?.into())?;
        while !stream.ready(Interest::READABLE).await?.is_read_closed() {
            // The bytes are left to the connection; the next ones, or the end, make it ready again.
            let _ = stream.try_io(Interest::READABLE, || Err::<(), _>(ErrorKind::WouldBlock.into()));
        }
        self.closed.cancel();
        Ok(stream)
    }

    fn is_stranger(&self) -> bool {
        !self.is_client.load(Ordering::Relaxed) && !self.ended.is_cancelled()
    }
}

/// Connections in the order in which they began. Those of clients and those that have ended are left out later.
#[derive(Debug, Default)]
pub(crate) struct Strangers(Mutex<VecDeque<Arc<Peer>>>);

impl Strangers {
    /// Adds a connection.
    pub(crate) fn add(&self) -> Arc<Peer> {
        let peer = Arc::<Peer>::default();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_STRANGERS {
            all.retain(|peer| peer.is_stranger());
        }
        all.push_back(peer.clone());
        peer
    }

    /// Ends the oldest connection on which no client has sent a request. Returns false if there is none.
    pub(crate) fn end_oldest(&self) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(peer) = all.pop_front() {
            if peer.is_stranger() {
                peer.end();
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_stranger_ends_and_no_client() {
        let strangers = Strangers::default();
        let peers: Vec<_> = (0..4).map(|_| strangers.add()).collect();
        peers[0].is_of_client();
        peers[1].end();
        assert!(strangers.end_oldest());
        assert!(peers[2].ended.is_cancelled() && !peers[0].ended.is_cancelled());
        peers[3].is_of_client();
        assert!(!strangers.end_oldest());
    }
}
