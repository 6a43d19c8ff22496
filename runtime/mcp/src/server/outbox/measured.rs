//! Messages whose size is known before there is room for them.

use std::io;

/// Size up to which a message is kept while it is measured, in bytes: that of a usual one, which is written once.
const KEPT: usize = 64 << 10;

/// Output that keeps a message of up to [`KEPT`] bytes, and of a longer one its size only.
#[derive(Default)]
struct Measured {
    kept: Vec<u8>,
    bytes: usize,
}

impl io::Write for Measured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len();
        if self.bytes <= KEPT {
            self.kept.extend_from_slice(bytes);
        } else {
            self.kept = Vec::new();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A message that can be written again and again.
pub(crate) trait Writable {
    /// Writes it, each time with the same bytes.
    ///
    /// # Errors
    /// Fails if the output does.
    fn write(&self, output: &mut impl io::Write) -> io::Result<()>;
}

/// Returns the size of a message in bytes, and the message if it is small.
pub(crate) fn measure(message: &impl Writable) -> (usize, Option<Vec<u8>>) {
    let mut output = Measured::default();
    message.write(&mut output).expect("counting never fails");
    let is_kept = output.bytes <= KEPT;
    (output.bytes, is_kept.then_some(output.kept))
}

/// Returns a message of a size that is known, with room for the brackets of a batch or the end of the line: growing
/// takes the memory twice.
pub(crate) fn written(message: &impl Writable, bytes: usize) -> Vec<u8> {
    let mut output = Vec::with_capacity(bytes + 2);
    message
        .write(&mut output)
        .expect("writing to a vector never fails");
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Text(usize);

    impl Writable for Text {
        fn write(&self, output: &mut impl io::Write) -> io::Result<()> {
            (0..self.0).try_for_each(|_| output.write_all(b"x"))
        }
    }

    #[test]
    fn large_message_is_measured_without_its_bytes() {
        for (size, is_kept) in [(0, true), (KEPT, true), (KEPT + 1, false)] {
            let (bytes, kept) = measure(&Text(size));
            assert_eq!(
                (bytes, kept.as_ref().map(Vec::len)),
                (size, is_kept.then_some(size))
            );
            let written = written(&Text(size), bytes);
            assert_eq!((written.len(), written.capacity()), (size, size + 2));
        }
    }
}
