//! Search for secrets in undeclared compressed bodies.
//!
//! A server that was asked for an identity encoding may have stored compressed data: an export, a log, a backup. Data
//! that begins like gzip or zlib is decompressed beside the guest's copy, and a piece of the body is passed on only
//! when no secret can be in it. Zstandard is refused. Archives, pictures and documents are not decoded.

use std::collections::VecDeque;
use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::{MultiGzDecoder, ZlibDecoder};
use toolcell_core::Redactor;
use toolcell_core::redact::{Redaction, Replacement};

/// Bytes of a body that identify its format.
const MAGIC: usize = 4;

/// Maximum ratio of decompressed data to the body; a body beyond it is refused, because searching is work of the host.
/// Text compresses to a tenth, logs to a fiftieth.
const MAX_RATIO: u64 = 100;

/// Bytes of decompressed data that are allowed for a body of any size.
const FREE: u64 = 1 << 20;

/// Minimum decompressed size of a body with invalid data to be considered compressed. Text can begin with the same
/// bytes: `x^2`.
const MIN_DECOMPRESSED: u64 = 64;

/// Bytes that are searched before yielding to the guest.
const PIECE: usize = 16 << 10;

/// Reason why a body is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It contains a secret.
    Found,
    /// It cannot be searched.
    Unsearchable,
}

/// A body that may be compressed.
pub(crate) struct Packed {
    redactor: Redactor,
    kind: Kind,
    /// Pieces withheld until they are known to contain no secret, each with its decompressed size.
    waiting: VecDeque<(Bytes, u64)>,
    /// Received pieces that have not been searched.
    unread: VecDeque<Bytes>,
    read: u64,
}

enum Kind {
    /// The first bytes received.
    Unknown(Vec<u8>),
    Plain,
    Gzip(MultiGzDecoder<Search>),
    Zlib(ZlibDecoder<Search>),
}

/// Sink of decompressed data, which is only searched.
struct Search {
    stream: Redaction,
    searched: u64,
    limit: u64,
}

impl Packed {
    pub(crate) fn new(redactor: Redactor) -> Self {
        Self {
            redactor,
            kind: Kind::Unknown(Vec::new()),
            waiting: VecDeque::new(),
            unread: VecDeque::new(),
            read: 0,
        }
    }

    /// Adds the next piece of the body.
    pub(crate) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.unread.push_back(piece);
        }
    }

    /// Returns the next piece that may be passed on; `None` if more data is needed.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, Refused> {
        loop {
            if let Some(ready) = self.ready() {
                return Ok(Some(ready));
            }
            let Some(mut piece) = self.unread.pop_front() else {
                return Ok(None);
            };
            if piece.len() > PIECE {
                self.unread.push_front(piece.split_off(PIECE));
            }
            self.look_at(piece)?;
        }
    }

    /// Ends the body and returns the withheld pieces.
    pub(crate) fn finish(&mut self) -> Result<Option<Bytes>, Refused> {
        let search = match &mut self.kind {
            Kind::Unknown(_) | Kind::Plain => None,
            Kind::Gzip(decoder) => Some((decoder.try_finish(), decoder.get_mut())),
            Kind::Zlib(decoder) => Some((decoder.try_finish(), decoder.get_mut())),
        };
        // Data that decompressed to almost nothing was not compressed.
        if let Some((ended, search)) = search
            && !(ended.is_err() && search.is_false_alarm())
        {
            search.check(ended)?;
            search.stream.finish();
            search.check(Ok(()))?;
        }
        self.kind = Kind::Plain;
        Ok(self.ready())
    }

    fn ready(&mut self) -> Option<Bytes> {
        let decided = match &self.kind {
            Kind::Unknown(_) => return None,
            Kind::Plain => u64::MAX,
            Kind::Gzip(decoder) => decoder.get_ref().decided(),
            Kind::Zlib(decoder) => decoder.get_ref().decided(),
        };
        let (piece, _) = self.waiting.pop_front_if(|(_, end)| *end <= decided)?;
        Some(piece)
    }

    fn look_at(&mut self, piece: Bytes) -> Result<(), Refused> {
        self.read += u64::try_from(piece.len()).unwrap_or(u64::MAX);
        if let Kind::Unknown(first) = &mut self.kind {
            let room = MAGIC.saturating_sub(first.len());
            first.extend_from_slice(&piece[..piece.len().min(room)]);
            let first = std::mem::take(first);
            self.kind = kind(&first, &self.redactor)?;
            if let Kind::Unknown(known) = &mut self.kind {
                *known = first;
            }
            // The data so far was too short to decide.
            for (earlier, _) in std::mem::take(&mut self.waiting) {
                self.search(earlier)?;
            }
        }
        self.search(piece)
    }

    fn search(&mut self, piece: Bytes) -> Result<(), Refused> {
        let limit = FREE.saturating_add(self.read.saturating_mul(MAX_RATIO));
        let (written, search) = match &mut self.kind {
            Kind::Unknown(_) | Kind::Plain => {
                self.waiting.push_back((piece, 0));
                return Ok(());
            }
            Kind::Gzip(decoder) => {
                decoder.get_mut().limit = limit;
                let written = decoder.write_all(&piece).and_then(|()| decoder.flush());
                (written, decoder.get_ref())
            }
            Kind::Zlib(decoder) => {
                decoder.get_mut().limit = limit;
                let written = decoder.write_all(&piece).and_then(|()| decoder.flush());
                (written, decoder.get_ref())
            }
        };
        if written.is_err() && search.is_false_alarm() {
            // The data was not compressed.
            self.kind = Kind::Plain;
            self.waiting.push_back((piece, 0));
            return Ok(());
        }
        search.check(written)?;
        let searched = search.searched;
        self.waiting.push_back((piece, searched));
        Ok(())
    }
}

/// Determines the format of a body from its first bytes.
fn kind(first: &[u8], redactor: &Redactor) -> Result<Kind, Refused> {
    let search = || Search {
        stream: redactor.stream(Replacement::SameLength),
        searched: 0,
        limit: 0,
    };
    match first {
        // RFC 1952.
        [0x1f, 0x8b, ..] => Ok(Kind::Gzip(MultiGzDecoder::new(search()))),
        // RFC 1950: deflate, with a window of at most 32 KiB, and a header divisible by 31.
        [method, flags, ..]
            if method & 0x0f == 8
                && method >> 4 <= 7
                && (u16::from(*method) << 8 | u16::from(*flags)) % 31 == 0 =>
        {
            Ok(Kind::Zlib(ZlibDecoder::new(search())))
        }
        // RFC 8878.
        [0x28, 0xb5, 0x2f, 0xfd] => Err(Refused::Unsearchable),
        first if is_beginning(first) => Ok(Kind::Unknown(Vec::new())),
        _ => Ok(Kind::Plain),
    }
}

/// Returns `true` if further bytes could complete the signature of a known format.
fn is_beginning(first: &[u8]) -> bool {
    first.len() < 2 || [0x28, 0xb5, 0x2f, 0xfd].starts_with(first)
}

impl Search {
    fn check(&self, written: io::Result<()>) -> Result<(), Refused> {
        if self.stream.has_found() {
            return Err(Refused::Found);
        }
        written.map_err(|_| Refused::Unsearchable)
    }

    /// Returns `true` if data that is invalid here was never compressed.
    fn is_false_alarm(&self) -> bool {
        self.searched < MIN_DECOMPRESSED && !self.stream.has_found()
    }

    /// Returns the number of bytes that certainly contain no part of a secret.
    fn decided(&self) -> u64 {
        self.searched - u64::try_from(self.stream.held()).unwrap_or(u64::MAX)
    }
}

impl Write for Search {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.searched += u64::try_from(data.len()).unwrap_or(u64::MAX);
        if self.searched > self.limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.stream.push(data);
        match self.stream.has_found() {
            true => Err(io::ErrorKind::InvalidData.into()),
            false => Ok(data.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    const SECRET: &str = "s3cret-value-of-the-user";

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(data: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    /// Returns the part of a body that reaches a guest, and how it ends.
    fn passed(body: &[u8], pieces: usize) -> (Vec<u8>, Result<(), Refused>) {
        let mut packed = Packed::new(Redactor::new([("t", SECRET)]));
        let mut out = Vec::new();
        for piece in body.chunks(pieces) {
            packed.push(Bytes::copy_from_slice(piece));
            loop {
                match packed.next() {
                    Ok(Some(piece)) => out.extend_from_slice(&piece),
                    Ok(None) => break,
                    Err(refused) => return (out, Err(refused)),
                }
            }
        }
        loop {
            match packed.finish() {
                Ok(Some(piece)) => out.extend_from_slice(&piece),
                Ok(None) => return (out, Ok(())),
                Err(refused) => return (out, Err(refused)),
            }
        }
    }

    /// Poorly compressible text.
    fn noise(length: u32) -> Vec<u8> {
        (0..length)
            .flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes())
            .collect()
    }

    #[test]
    fn body_without_a_secret_is_passed_on_byte_for_byte() {
        for body in [
            gzip(&noise(20_000)),
            zlib(&noise(20_000)),
            gzip(b""),
            [gzip(b"one"), gzip(b"two")].concat(),
            noise(20_000),
            b"x^2 + y^2".to_vec(),
            b"x".to_vec(),
            b"(\xb5".to_vec(),
            b"\x1f\x8b that is no gzip".to_vec(),
            Vec::new(),
        ] {
            for pieces in [1, 7, 100_000] {
                let (out, end) = passed(&body, pieces);
                assert_eq!(end, Ok(()), "{}", body[..body.len().min(20)].escape_ascii());
                assert!(out == body, "{}", body[..body.len().min(20)].escape_ascii());
            }
        }
    }

    #[test]
    fn two_bytes_of_text_are_passed_on_at_once() {
        let mut packed = Packed::new(Redactor::new([("t", SECRET)]));
        // A first byte could begin a compressed body.
        packed.push(Bytes::from_static(b"o"));
        assert_eq!(packed.next(), Ok(None));
        packed.push(Bytes::from_static(b"k"));
        assert_eq!(packed.next(), Ok(Some(Bytes::from_static(b"o"))));
        assert_eq!(packed.next(), Ok(Some(Bytes::from_static(b"k"))));
    }

    #[test]
    fn no_part_of_a_compressed_secret_is_passed_on() {
        let text = [noise(5_000).as_slice(), SECRET.as_bytes(), &noise(5_000)].concat();
        for pack in [gzip, zlib] {
            for text in [SECRET.as_bytes(), &text] {
                let body = pack(text);
                for pieces in [1, 7, 100_000] {
                    let (out, end) = passed(&body, pieces);
                    assert_eq!(end, Err(Refused::Found), "{pieces}");
                    let mut read = Vec::new();
                    let _ = match pack(b"")[0] {
                        0x1f => {
                            io::Read::read_to_end(&mut flate2::read::MultiGzDecoder::new(&*out), &mut read)
                        }
                        _ => io::Read::read_to_end(&mut flate2::read::ZlibDecoder::new(&*out), &mut read),
                    };
                    let begun = read.windows(5).any(|part| part == &SECRET.as_bytes()[..5]);
                    assert!(!begun, "{pieces}: {}", read.escape_ascii());
                }
            }
        }
        let (_, end) = passed(&[gzip(b"one"), gzip(SECRET.as_bytes())].concat(), 10);
        assert_eq!(end, Err(Refused::Found));
    }

    #[test]
    fn unsearchable_body_is_refused() {
        let mut broken = gzip(&noise(5_000));
        broken[1_000] ^= 0xff;
        let cut = gzip(&noise(5_000))[..10_000].to_vec();
        for body in [b"\x28\xb5\x2f\xfd and so on".to_vec(), broken, cut] {
            assert_eq!(passed(&body, 100).1, Err(Refused::Unsearchable));
        }
    }

    #[test]
    fn body_beyond_maximum_ratio_is_refused() {
        let free = usize::try_from(FREE).unwrap();
        assert_eq!(passed(&gzip(&vec![b'x'; free]), 1_000).1, Ok(()));
        // Zeros compress a thousandfold.
        assert_eq!(
            passed(&gzip(&vec![b'x'; 4 * free]), 1_000).1,
            Err(Refused::Unsearchable)
        );
        let mixed = [noise(10_000).as_slice(), &vec![b'x'; 4 * free]].concat();
        assert_eq!(passed(&gzip(&mixed), 1_000).1, Ok(()));
    }

    #[test]
    fn what_is_not_compressed_is_passed_on_at_once() {
        for (body, is_passed) in [
            (b"plain text".as_slice(), true),
            (b"ab".as_slice(), true),
            (b"abc".as_slice(), true),
            (b"\x28\xb5".as_slice(), false),
            (b"a".as_slice(), false),
        ] {
            let mut packed = Packed::new(Redactor::new([("t", SECRET)]));
            packed.push(Bytes::copy_from_slice(body));
            let passed = packed.next().unwrap();
            assert_eq!(passed.is_some(), is_passed, "{}", body.escape_ascii());
        }
    }

    #[test]
    fn what_was_searched_is_passed_on_before_the_end() {
        for body in [gzip(&noise(20_000)), zlib(&noise(20_000))] {
            let mut packed = Packed::new(Redactor::new([("t", SECRET)]));
            packed.push(Bytes::from(body));
            let mut pieces = 0;
            while let Some(piece) = packed.next().unwrap() {
                assert!(piece.len() <= PIECE);
                pieces += 1;
            }
            assert!(pieces >= 4, "{pieces}");
        }
    }

    #[test]
    fn long_pieces_are_passed_on_in_short_ones() {
        let mut packed = Packed::new(Redactor::new([("t", SECRET)]));
        packed.push(Bytes::from(vec![b'x'; 3 * PIECE + 1]));
        let mut lengths = Vec::new();
        while let Some(piece) = packed.next().unwrap() {
            lengths.push(piece.len());
        }
        assert_eq!(lengths, [PIECE, PIECE, PIECE, 1]);
    }

    #[test]
    fn searching_ends_at_its_limit() {
        for (length, is_ok) in [(10, true), (11, false)] {
            let mut search = Search {
                stream: Redactor::new([("t", SECRET)]).stream(Replacement::SameLength),
                searched: 0,
                limit: 10,
            };
            assert_eq!(search.write(&vec![b'x'; length]).is_ok(), is_ok, "{length}");
        }
    }

    #[test]
    fn invalid_data_counts_as_compressed_from_64_bytes_on() {
        for (length, end) in [(63_u16, Ok(())), (64, Err(Refused::Unsearchable))] {
            let mut body = b"\x1f\x8b\x08\0\0\0\0\0\0\xff".to_vec();
            // RFC 1951, section 3.2.4: a stored block.
            body.push(0);
            body.extend(length.to_le_bytes());
            body.extend((!length).to_le_bytes());
            body.resize(body.len() + usize::from(length), b'x');
            let valid = body.len();
            // A block of the reserved type.
            body.push(7);
            assert_eq!(passed(&body, valid).1, end, "{length}");
        }
    }
}
