//! The tool `text_hash`.

use std::io::Read as _;

use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use toolcell_sdk::{Result, files, input, tool};

use crate::source::Source;

/// Bytes per read.
const CHUNK: usize = 64 << 10;

/// A hash function.
#[input]
#[serde(rename_all = "lowercase")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Sha256,
    Sha512,
    Blake3,
    Md5,
    Sha1,
    Crc32,
}

/// Compute the hash (checksum) of a text or of a file of any size and kind, in hexadecimal.
///
/// A text is hashed as UTF-8, a file as the bytes it has.
#[tool(title = "Hash", read_only, idempotent)]
pub(crate) fn text_hash(
    /// The text. Give this or `path`.
    #[alias("content")]
    text: Option<String>,
    /// Path of a file. Give this or `text`.
    #[format("path")]
    #[alias("file_path", "filename", "file")]
    path: Option<String>,
    /// The hash function. MD5 and SHA-1 are for checksums published in them; they do not protect against forgery.
    #[default(Algorithm::Sha256)]
    algorithm: Algorithm,
) -> Result<String> {
    let source = Source::one_of(text, path, ["text", "path"])?;
    match algorithm {
        Algorithm::Sha256 => digest::<Sha256>(source),
        Algorithm::Sha512 => digest::<Sha512>(source),
        Algorithm::Md5 => digest::<Md5>(source),
        Algorithm::Sha1 => digest::<Sha1>(source),
        Algorithm::Crc32 => {
            let mut hasher = crc32fast::Hasher::new();
            feed(source, |bytes| hasher.update(bytes))?;
            Ok(format!("{:08x}", hasher.finalize()))
        }
        Algorithm::Blake3 => {
            let mut hasher = blake3::Hasher::new();
            feed(source, |bytes| {
                hasher.update(bytes);
            })?;
            Ok(hasher.finalize().to_hex().to_string())
        }
    }
}

fn digest<D: Digest>(source: Source) -> Result<String> {
    let mut hasher = D::new();
    feed(source, |bytes| hasher.update(bytes))?;
    Ok(hex(&hasher.finalize()))
}

fn feed(source: Source, mut update: impl FnMut(&[u8])) -> Result<()> {
    match source {
        Source::Text(text) => update(text.as_bytes()),
        Source::File(path) => {
            let mut file = files::open(&path)?;
            let mut chunk = vec![0; CHUNK];
            loop {
                let read = file
                    .read(&mut chunk)
                    .map_err(|error| files::explain(&path, &error))?;
                if read == 0 {
                    break;
                }
                update(&chunk[..read]);
            }
        }
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_sdk::serde_json::json;
    use toolcell_sdk::testing;

    #[test]
    fn published_hashes_of_abc_are_computed() {
        let hash = |algorithm| text_hash(Some("abc".into()), None, algorithm).unwrap();
        assert_eq!(
            hash(Algorithm::Sha256),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert!(hash(Algorithm::Sha512).starts_with("ddaf35a193617abacc417349ae204131"));
        assert_eq!(
            hash(Algorithm::Blake3),
            "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"
        );
        assert_eq!(hash(Algorithm::Md5), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(hash(Algorithm::Sha1), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(hash(Algorithm::Crc32), "352441c2");
    }

    #[test]
    fn binary_file_is_hashed_with_sha256_by_default() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, vec![0; 2 * CHUNK + 1]).unwrap();
        let output = testing::call::<text_hash>(json!({"path": file.path()})).unwrap();
        assert_eq!(output.to_text(), hex(&Sha256::digest(vec![0; 2 * CHUNK + 1])));
    }

    #[test]
    fn schema_lists_algorithms_and_default() {
        let schema = testing::definition::<text_hash>().input_schema;
        assert_eq!(
            schema["properties"]["algorithm"],
            json!({"type": "string", "enum": ["sha256", "sha512", "blake3", "md5", "sha1", "crc32"], "default": "sha256",
                "description": "The hash function. MD5 and SHA-1 are for checksums published in them; they do not protect against forgery."})
        );
    }
}
