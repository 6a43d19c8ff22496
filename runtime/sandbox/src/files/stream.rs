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
    #[cfg(target_os = "linux")]
    {
        use rustix::io::{Errno, ReadWriteFlags, pwritev2};
        match pwritev2(file, &[io::IoSlice::new(bytes)], 0, ReadWriteFlags::APPEND) {
            Err(Errno::NOSYS | Errno::NOTSUP) => {}
            written => return Ok(written?),
        }
    }
    append_by_flag(file, bytes)
}

/// Writes at the end where the system cannot do it in one operation. The file is private to this call, which does one
/// operation at a time.
fn append_by_flag(file: &File, bytes: &[u8]) -> io::Result<usize> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
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

#[cfg(test)]
mod tests {
    use toolcell_core::policy::Limits;

    use super::*;
    use crate::cell::receipt::ReceiptRecorder;

    #[test]
    fn bytes_are_appended_by_flag_as_well() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "one ").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        assert_eq!(append_by_flag(&file, b"two ").unwrap(), 4);
        append(&file, b"three ").unwrap();
        // The flag does not stay: with it, a position has no effect.
        file.write_all_at(b"ONE", 0).unwrap();
        let appending = File::options().append(true).open(&path).unwrap();
        assert_eq!(append_by_flag(&appending, b"four").unwrap(), 4);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "ONE two three four");
    }

    #[test]
    fn stream_ends_with_an_error_of_the_system() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let not_readable = File::create(&path).unwrap();
        let mut reading = Reading::new(Arc::new(not_readable), 0, None);
        let not_writable = Arc::new(File::open(&path).unwrap());
        let quota = Quota::new(&Limits::default(), ReceiptRecorder::default());
        let mut writing = Writing::new(not_writable, None, Arc::new(quota), None);
        for (first, then) in [
            (reading.read(1).map(drop), reading.read(1).map(drop)),
            (writing.write("x".into()), writing.write("x".into())),
        ] {
            assert!(
                matches!(first, Err(StreamError::LastOperationFailed(_))),
                "{first:?}"
            );
            assert!(matches!(then, Err(StreamError::Closed)), "{then:?}");
        }
    }
}
