//! Content codings of response bodies.

use std::io::Read;

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use toolcell_sdk::{Result, ToolError};

use crate::response::Response;

/// Decompresses the body, up to `max` bytes, so that a small body cannot exhaust memory.
pub(crate) fn unpack(response: &mut Response, max: usize) -> Result<()> {
    let coding = response
        .header("content-encoding")
        .unwrap_or_default()
        .to_lowercase();
    let packed = std::mem::take(&mut response.body);
    let unpacked = match coding.as_str() {
        "" | "identity" => {
            response.body = packed;
            return Ok(());
        }
        "gzip" | "x-gzip" => read(MultiGzDecoder::new(&packed[..]), max),
        // The standard requires zlib; some servers send a raw deflate stream.
        "deflate" => match read(ZlibDecoder::new(&packed[..]), max) {
            (bytes, Some(_)) if bytes.is_empty() => read(DeflateDecoder::new(&packed[..]), max),
            read => read,
        },
        other => {
            return Err(ToolError::failed(format_args!(
                "the response has the unsupported content encoding `{other}`"
            )));
        }
    };
    match unpacked {
        // The first part of a truncated body is still valid.
        (bytes, Some(error)) if bytes.is_empty() || !response.cut => Err(ToolError::failed(format_args!(
            "the response is not valid {coding}: {error}"
        ))),
        (mut bytes, _) => {
            response.cut |= bytes.len() > max;
            bytes.truncate(max);
            response.body = bytes;
            Ok(())
        }
    }
}

fn read(reader: impl Read, max: usize) -> (Vec<u8>, Option<std::io::Error>) {
    let mut bytes = Vec::new();
    let error = reader.take(max as u64 + 1).read_to_end(&mut bytes).err();
    (bytes, error)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn packed(coding: &str, body: Vec<u8>) -> Response {
        Response {
            headers: vec![("content-encoding".into(), coding.into())],
            body,
            ..Response::default()
        }
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn every_coding_is_decompressed() {
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(b"hello").unwrap();
        let mut bare = DeflateEncoder::new(Vec::new(), Compression::fast());
        bare.write_all(b"hello").unwrap();
        for (coding, body) in [
            ("gzip", gzip(b"hello")),
            ("deflate", zlib.finish().unwrap()),
            ("Deflate", bare.finish().unwrap()),
            ("identity", b"hello".to_vec()),
        ] {
            let mut response = packed(coding, body);
            unpack(&mut response, 100).unwrap();
            assert_eq!(response.body, b"hello", "{coding}");
        }
    }

    #[test]
    fn body_beyond_the_limit_is_cut() {
        let mut response = packed("gzip", gzip(&[b'x'; 100_000]));
        unpack(&mut response, 100_000).unwrap();
        assert_eq!((response.body.len(), response.cut), (100_000, false));
        let mut response = packed("gzip", gzip(&[b'x'; 100_001]));
        unpack(&mut response, 100_000).unwrap();
        assert_eq!((response.body.len(), response.cut), (100_000, true));
    }

    #[test]
    fn invalid_or_unknown_coding_is_an_error() {
        assert!(unpack(&mut packed("gzip", b"hello".to_vec()), 100).is_err());
        let error = unpack(&mut packed("br", b"hello".to_vec()), 100).unwrap_err();
        assert_eq!(
            error.message(),
            "the response has the unsupported content encoding `br`"
        );
    }
}
