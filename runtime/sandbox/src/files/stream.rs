//! Streams of files: writing is counted, and a stream keeps its descriptor counted.

use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;
use wasmtime_wasi::p2::{
    DynInputStream, DynOutputStream, InputStream, OutputStream, Pollable, StreamError, StreamResult,
};

use super::quota::{Quota, cost};

/// An input stream that holds its place among the open descriptors.
pub(super) struct Reading {
    pub(super) inner: DynInputStream,
    pub(super) _counted: Option<Arc<()>>,
}

/// An output stream that asks the quota before each write.
pub(super) struct Writing {
    pub(super) inner: DynOutputStream,
    pub(super) file: Arc<File>,
    /// Where the next byte goes; `None` at the end.
    pub(super) position: Option<u64>,
    pub(super) quota: Arc<Quota>,
    pub(super) _counted: Option<Arc<()>>,
}

impl Writing {
    fn take(&mut self, bytes: &Bytes) -> StreamResult<()> {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let cost = match self.position {
            None => length,
            Some(position) => {
                let size = self.file.metadata().map_or(0, |m| m.len());
                cost(size, position, length)
            }
        };
        self.quota
            .take_bytes(cost)
            .map_err(|e| StreamError::LastOperationFailed(e.into()))?;
        self.position = self.position.map(|p| p.saturating_add(length));
        Ok(())
    }
}

#[wasmtime_wasi::async_trait]
impl InputStream for Reading {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        self.inner.read(size)
    }

    async fn blocking_read(&mut self, size: usize) -> StreamResult<Bytes> {
        self.inner.blocking_read(size).await
    }

    fn skip(&mut self, count: usize) -> StreamResult<usize> {
        self.inner.skip(count)
    }

    async fn blocking_skip(&mut self, count: usize) -> StreamResult<usize> {
        self.inner.blocking_skip(count).await
    }

    async fn cancel(&mut self) {
        self.inner.cancel().await;
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Reading {
    async fn ready(&mut self) {
        self.inner.ready().await;
    }
}

#[wasmtime_wasi::async_trait]
impl OutputStream for Writing {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.take(&bytes)?;
        self.inner.write(bytes)
    }

    async fn blocking_write_and_flush(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.take(&bytes)?;
        self.inner.blocking_write_and_flush(bytes).await
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.inner.flush()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.inner.check_write()
    }

    async fn cancel(&mut self) {
        self.inner.cancel().await;
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Writing {
    async fn ready(&mut self) {
        self.inner.ready().await;
    }
}
