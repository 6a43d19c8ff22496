//! File streams. They read and write immediately, on the thread of the call, so that the host buffers nothing between
//! two calls of the guest. Writes are charged, and a stream keeps its descriptor counted.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::Bytes;
use wasmtime_wasi::p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult};

use super::open_files::OpenFile;
use super::quota::{Quota, cost};

/// Maximum number of bytes of one read, and of one write as reported to the guest.
const AT_ONCE: usize = 64 << 10;

/// An input stream that holds its slot among the open descriptors.
pub(super) struct Reading {
    file: Arc<File>,
    position: u64,
    is_closed: bool,
    _counted: Option<Arc<OpenFile>>,
}

/// An output stream that charges the quota before each write.
pub(super) struct Writing {
    file: Arc<File>,
    /// Position of the next byte; `None` at the end.
    position: Option<u64>,
    quota: Arc<Quota>,
    is_closed: bool,
    _counted: Option<Arc<OpenFile>>,
}

impl Reading {
    pub(super) fn new(file: Arc<File>, position: u64, counted: Option<Arc<OpenFile>>) -> Self {
        Self {
            file,
            position,
            is_closed: false,
            _counted: counted,
        }
    }
}

impl Writing {
    pub(super) fn new(
        file: Arc<File>,
        position: Option<u64>,
        quota: Arc<Quota>,
        counted: Option<Arc<OpenFile>>,
    ) -> Self {
        Self {
            file,
            position,
            quota,
            is_closed: false,
            _counted: counted,
        }
    }

    fn take(&self, bytes: &[u8]) -> StreamResult<()> {
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
            .map_err(|e| StreamError::LastOperationFailed(e.into()))
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.position {
            None => append(&self.file, bytes),
            Some(position) => {
                self.file.write_all_at(bytes, *position)?;
                *position = position.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
                Ok(())
            }
        }
    }
}

/// Writes at the current end of a file.
fn append(file: &File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match append_some(file, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn append_some(file: &File, bytes: &[u8]) -> io::Result<usize> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    #[cfg(target_os = "linux")]
    {
        use rustix::io::{Errno, ReadWriteFlags, pwritev2};
        match pwritev2(file, &[io::IoSlice::new(bytes)], 0, ReadWriteFlags::APPEND) {
            Err(Errno::NOSYS | Errno::NOTSUP) => {}
            written => return Ok(written?),
        }
    }
    // The file is private to this call, which does one operation at a time.
    let flags = fcntl_getfl(file)?;
    fcntl_setfl(file, flags | OFlags::APPEND)?;
    let written = rustix::io::write(file, bytes);
    fcntl_setfl(file, flags)?;
    Ok(written?)
}

#[wasmtime_wasi::async_trait]
impl InputStream for Reading {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        if self.is_closed {
            return Err(StreamError::Closed);
        }
        if size == 0 {
            return Ok(Bytes::new());
        }
        let mut bytes = vec![0; size.min(AT_ONCE)];
        let read = loop {
            match self.file.read_at(&mut bytes, self.position) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        match read {
            Ok(0) => {
                self.is_closed = true;
                Err(StreamError::Closed)
            }
            Ok(count) => {
                bytes.truncate(count);
                self.position = self
                    .position
                    .saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
                Ok(bytes.into())
            }
            Err(error) => {
                self.is_closed = true;
                Err(StreamError::LastOperationFailed(error.into()))
            }
        }
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Reading {
    async fn ready(&mut self) {}
}

#[wasmtime_wasi::async_trait]
impl OutputStream for Writing {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.check_write()?;
        self.take(&bytes)?;
        self.put(&bytes).map_err(|error| {
            self.is_closed = true;
            StreamError::LastOperationFailed(error.into())
        })
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.check_write().map(drop)
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        if self.is_closed {
            return Err(StreamError::Closed);
        }
        Ok(AT_ONCE)
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Writing {
    async fn ready(&mut self) {}
}
