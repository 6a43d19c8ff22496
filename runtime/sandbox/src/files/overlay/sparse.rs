//! Copying a file so that its holes stay holes.
//!
//! Where the file system says where data is (`SEEK_DATA`, `SEEK_HOLE`), holes are not even read; what is read and holds
//! zeros alone is not written. A file of a terabyte with a byte at its end then costs a block, on both sides.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::pace::Pace;

/// Bytes that are read at one time, after which a cancellation is seen.
const PIECE: usize = 64 << 10;

/// Smallest piece that is left out when it holds nothing but zeros: a block of common file systems.
const BLOCK: usize = 4 << 10;

/// Copies the first `length` bytes of `from` to `to`, which is empty. What is missing from `from` by now is a hole.
pub(super) fn copy(from: &File, to: &File, length: u64, pace: &Pace) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    let mut at = 0;
    while let Some((begin, end)) = data(from, at, length)? {
        pace.go_on()?;
        at = begin;
        while at < end {
            pace.go_on()?;
            let most = usize::try_from(end - at).map_or(PIECE, |left| left.min(PIECE));
            let count = match from.read_at(&mut buffer[..most], at) {
                Ok(0) => return to.set_len(length),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let mut block_at = at;
            for block in buffer[..count].chunks(BLOCK) {
                if block.iter().any(|byte| *byte != 0) {
                    to.write_all_at(block, block_at)?;
                }
                block_at += block.len() as u64;
            }
            at = block_at;
        }
    }
    to.set_len(length)
}

/// Returns the next range of data from `at` on and before `length`; all of it, if the file system does not report
/// holes.
fn data(file: &File, at: u64, length: u64) -> io::Result<Option<(u64, u64)>> {
    if at >= length {
        return Ok(None);
    }
    let begin = match seek(file, SeekFrom::Data(at)) {
        Ok(begin) => begin,
        // Nothing but a hole follows.
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((at, length))),
        Err(error) => return Err(error.into()),
    };
    if begin >= length {
        return Ok(None);
    }
    let end = seek(file, SeekFrom::Hole(begin)).unwrap_or(length).min(length);
    Ok(Some((begin, end.max(begin + 1))))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use tokio_util::sync::CancellationToken;

    use super::*;

    fn files() -> (tempfile::TempDir, File, File) {
        let dir = tempfile::tempdir().unwrap();
        let open = |name| {
            let mut options = File::options();
            options
                .read(true)
                .write(true)
                .create_new(true)
                .open(dir.path().join(name))
                .unwrap()
        };
        let (from, to) = (open("from"), open("to"));
        (dir, from, to)
    }

    #[test]
    fn holes_of_a_file_stay_holes() {
        let (_dir, from, to) = files();
        const LENGTH: u64 = 1 << 40;
        from.set_len(LENGTH).unwrap();
        for (at, text) in [(0, "first"), (5 << 20, "middle"), (LENGTH - 4, "last")] {
            from.write_all_at(text.as_bytes(), at).unwrap();
        }
        copy(&from, &to, LENGTH, &Pace::default()).unwrap();
        assert_eq!(to.metadata().unwrap().len(), LENGTH);
        assert!(to.metadata().unwrap().blocks() * 512 < 1 << 20);
        for (at, text) in [(0, "first"), (5 << 20, "middle"), (LENGTH - 4, "last")] {
            let mut read = vec![0; text.len()];
            to.read_exact_at(&mut read, at).unwrap();
            assert_eq!(read, text.as_bytes());
        }
    }

    #[test]
    fn blocks_of_zeros_are_not_written() {
        let (_dir, from, to) = files();
        let mut content = vec![0; 1 << 20];
        content[300_000] = 1;
        from.write_all_at(&content, 0).unwrap();
        copy(&from, &to, 1 << 20, &Pace::default()).unwrap();
        let mut copied = vec![1; 1 << 20];
        to.read_exact_at(&mut copied, 0).unwrap();
        assert_eq!(copied, content);
        assert!(to.metadata().unwrap().blocks() * 512 <= 64 << 10);
    }

    #[test]
    fn no_more_than_the_length_is_copied() {
        let (_dir, from, to) = files();
        from.write_all_at(b"0123456789", 0).unwrap();
        for (length, expected) in [(4, 4), (10, 10), (11, 11)] {
            to.set_len(0).unwrap();
            copy(&from, &to, length, &Pace::default()).unwrap();
            assert_eq!(to.metadata().unwrap().len(), expected, "{length}");
        }
    }

    #[test]
    fn copy_of_an_unreadable_file_ends() {
        let (dir, from, to) = files();
        from.write_all_at(b"x", 0).unwrap();
        let write_only = File::options().write(true).open(dir.path().join("from")).unwrap();
        assert!(copy(&write_only, &to, 1, &Pace::default()).is_err());
    }

    #[test]
    fn cancelled_copy_ends() {
        let (_dir, from, to) = files();
        from.write_all_at(b"x", 0).unwrap();
        let cancellation = CancellationToken::new();
        cancellation.cancel();
        assert!(copy(&from, &to, 1, &Pace::of(&cancellation)).is_err());
        assert_eq!(to.metadata().unwrap().len(), 0);
    }
}
