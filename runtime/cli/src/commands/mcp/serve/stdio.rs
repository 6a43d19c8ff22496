//! Standard input and output of a server. Those of the async runtime hand each read and each write to another thread, which takes
//! longer than a call. Pipes and sockets are read and written without waiting instead.
//!
//! A descriptor is not made non-blocking: others may have the same open file, such as standard error. A pipe is opened again, and
//! each operation on a socket says that it does not wait.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::fs::{FileType, OFlags, fstat};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;

/// Returns standard input.
pub(super) fn input() -> Box<dyn AsyncRead + Send + Unpin> {
    let input = io::stdin();
    match Direct::of(input.as_fd(), "/proc/self/fd/0", OpenOptions::new().read(true)) {
        Some(Direct::Pipe(file)) => match pipe::Receiver::from_file(file) {
            Ok(pipe) => Box::new(pipe),
            Err(_) => Box::new(tokio::io::stdin()),
        },
        Some(Direct::Socket(socket)) => Box::new(socket),
        None => Box::new(tokio::io::stdin()),
    }
}

/// Returns standard output.
pub(super) fn output() -> Box<dyn AsyncWrite + Send + Unpin> {
    let output = io::stdout();
    match Direct::of(output.as_fd(), "/proc/self/fd/1", OpenOptions::new().write(true)) {
        Some(Direct::Pipe(file)) => match pipe::Sender::from_file(file) {
            Ok(pipe) => Box::new(pipe),
            Err(_) => Box::new(tokio::io::stdout()),
        },
        Some(Direct::Socket(socket)) => Box::new(socket),
        None => Box::new(tokio::io::stdout()),
    }
}

/// A stream that can be read or written without blocking.
enum Direct {
    /// An open file of its own.
    Pipe(File),
    Socket(Socket),
}

impl Direct {
    /// Returns `None` for a terminal or a file, and where the system has no files for descriptors.
    fn of(stream: BorrowedFd<'_>, again: &str, options: &mut OpenOptions) -> Option<Self> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let kind = FileType::from_raw_mode(fstat(stream).ok()?.st_mode);
        match kind {
            // Elsewhere, such a file is the same open file.
            FileType::Fifo if cfg!(target_os = "linux") => {
                let flags = i32::try_from(OFlags::NONBLOCK.bits()).ok()?;
                options.custom_flags(flags).open(again).ok().map(Self::Pipe)
            }
            FileType::Socket => Socket::of(stream).ok().map(Self::Socket),
            _ => None,
        }
    }
}

/// A connected socket.
struct Socket(AsyncFd<OwnedFd>);

impl Socket {
    #[expect(
        deprecated,
        reason = "its successor is unsafe because of types whose descriptor changes; this one stays the same"
    )]
    fn of(stream: BorrowedFd<'_>) -> io::Result<Self> {
        AsyncFd::new(stream.try_clone_to_owned()?).map(Self)
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            let space = buffer.initialize_unfilled();
            let done = ready
                .try_io(|socket| recv(socket, &mut *space, RecvFlags::DONTWAIT).map_err(io::Error::from));
            match done {
                Ok(Ok((read, _))) => {
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                // It was not ready.
                Err(_) => {}
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(cx))?;
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match ready.try_io(|socket| send(socket, bytes, flags).map_err(io::Error::from)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(done) => return Poll::Ready(done),
                Err(_) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn socket(stream: &UnixStream) -> Socket {
        match Direct::of(stream.as_fd(), "", &mut OpenOptions::new()) {
            Some(Direct::Socket(socket)) => socket,
            _ => panic!("it is a socket"),
        }
    }

    #[tokio::test]
    async fn socket_is_read_and_written_without_waiting() {
        let (own, peer) = UnixStream::pair().unwrap();
        let (mut written, mut read) = (socket(&own), socket(&peer));
        // More than it holds, so that both wait for the other.
        let sent = vec![b'x'; 4 << 20];
        let (expected, mut got) = (sent.clone(), Vec::new());
        let writing = tokio::spawn(async move { written.write_all(&sent).await });
        let mut part = vec![0; 1 << 16];
        while got.len() < expected.len() {
            let read = read.read(&mut part).await.unwrap();
            got.extend_from_slice(&part[..read]);
        }
        assert!(got == expected);
        writing.await.unwrap().unwrap();
        drop(own);
        assert_eq!(read.read(&mut part).await.unwrap(), 0);
        // The open file is the same for others as before.
        let flags = rustix::fs::fcntl_getfl(&peer).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK));
    }

    #[tokio::test]
    async fn socket_that_nobody_reads_is_an_error() {
        let (own, peer) = UnixStream::pair().unwrap();
        let mut written = socket(&own);
        drop(peer);
        let error = written.write_all(b"x").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn file_is_left_to_the_runtime() {
        let file = tempfile::tempfile().unwrap();
        assert!(Direct::of(file.as_fd(), "", &mut OpenOptions::new()).is_none());
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn pipe_is_opened_again() {
        use std::os::fd::AsRawFd as _;
        let (read, write) = std::io::pipe().unwrap();
        let path = |fd: i32| format!("/proc/self/fd/{fd}");
        let again = |fd: BorrowedFd<'_>, options: &mut OpenOptions| match Direct::of(
            fd,
            &path(fd.as_raw_fd()),
            options,
        ) {
            Some(Direct::Pipe(file)) => file,
            _ => panic!("it is a pipe"),
        };
        let receiver = again(read.as_fd(), OpenOptions::new().read(true));
        let sender = again(write.as_fd(), OpenOptions::new().write(true));
        let mut receiver = pipe::Receiver::from_file(receiver).unwrap();
        let mut sender = pipe::Sender::from_file(sender).unwrap();
        sender.write_all(b"line\n").await.unwrap();
        let mut line = [0; 5];
        receiver.read_exact(&mut line).await.unwrap();
        assert_eq!(&line, b"line\n");
        for fd in [read.as_fd(), write.as_fd()] {
            assert!(!rustix::fs::fcntl_getfl(fd).unwrap().contains(OFlags::NONBLOCK));
        }
        // Its end is seen when all writers are gone.
        drop((sender, write));
        assert_eq!(receiver.read(&mut line).await.unwrap(), 0);
    }
}
