//! The custom section `toolcell:manifest` of a component: what its author calls it, and what it asks for.
//!
//! ```json
//! {
//!   "name": "weather", "version": "1.2.0", "license": "MIT",
//!   "wants": [{ "grant": "http=api.weather.example", "reason": "forecasts" }]
//! }
//! ```
//!
//! It is shown and never believed: nothing of it is granted, and the name of a package is the user's.

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use toolcell_core::Grant;
use toolcell_core::json::parse_nested;

/// Name of the section.
const SECTION: &[u8] = b"toolcell:manifest";

/// Maximum size of the section, in bytes.
const MAX_BYTES: usize = 64 << 10;

/// Levels of the section: the object, the list, a want.
const MAX_DEPTH: usize = 3;

/// Maximum number of wants: more than a user reads.
const MAX_WANTS: usize = 32;

/// Maximum length of a text, in bytes.
const MAX_TEXT: usize = 500;

/// Size of the preamble of a WebAssembly file: magic, version and layer.
const PREAMBLE: usize = 8;

/// Contents of the section.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PackageManifest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) license: Option<String>,
    /// Grants that the author proposes.
    #[serde(default)]
    pub(crate) wants: Vec<Want>,
}

/// A grant that the author proposes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Want {
    pub(crate) grant: Grant,
    #[serde(default)]
    pub(crate) reason: String,
}

impl PackageManifest {
    /// Reads the section of a component; `None` if it has none.
    ///
    /// # Errors
    /// Returns an error if the section is too large or not as expected.
    pub(crate) fn read(component: &[u8]) -> anyhow::Result<Option<Self>> {
        let sections = sections(component);
        let Some(section) = sections.first() else {
            return Ok(None);
        };
        let what = "its section `toolcell:manifest` cannot be used";
        let manifest = || {
            ensure!(sections.len() == 1, "there are {}", sections.len());
            ensure!(section.len() <= MAX_BYTES, "it is larger than {MAX_BYTES} bytes");
            let value = parse_nested(std::str::from_utf8(section)?, MAX_DEPTH)?;
            ensure!(value.is_object(), "it is not a JSON object");
            let manifest: Self = serde_json::from_value(value)?;
            ensure!(
                manifest.wants.len() <= MAX_WANTS,
                "it has more than {MAX_WANTS} wants"
            );
            let texts = [&manifest.name, &manifest.version, &manifest.license];
            let texts = texts
                .into_iter()
                .flatten()
                .chain(manifest.wants.iter().map(|want| &want.reason));
            for text in texts {
                ensure!(text.len() <= MAX_TEXT, "a text is longer than {MAX_TEXT} bytes");
            }
            Ok(manifest)
        };
        manifest().context(what).map(Some)
    }
}

/// The contents of the sections of this name, among the outermost sections of a component.
fn sections(component: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let mut rest = component.get(PREAMBLE..).unwrap_or_default();
    while let Some((id, content, after)) = next(rest) {
        let named = number(content).filter(|_| id == 0);
        let content = named.and_then(|(length, named)| named.split_at_checked(length));
        if let Some((SECTION, content)) = content {
            found.push(content);
        }
        rest = after;
    }
    found
}

/// Identifier and content of the next section, and what follows.
fn next(sections: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (id, after) = sections.split_first()?;
    let (size, after) = number(after)?;
    let (content, after) = after.split_at_checked(size)?;
    Some((*id, content, after))
}

/// An unsigned number of up to 32 bits in LEB128, and what follows.
fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0_u64;
    for (i, byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some((usize::try_from(value).ok()?, &bytes[i + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(section: &str) -> Vec<u8> {
        let mut component = b"\0asm\x0d\0\x01\0".to_vec();
        let mut custom = |name: &str, content: &str| {
            let mut length = Vec::new();
            let mut size = 1 + name.len() + content.len();
            while size >= 0x80 {
                length.push(u8::try_from(size & 0x7f).unwrap() | 0x80);
                size >>= 7;
            }
            length.push(u8::try_from(size).unwrap());
            component.push(0);
            component.extend(length);
            component.push(u8::try_from(name.len()).unwrap());
            component.extend(name.as_bytes());
            component.extend(content.as_bytes());
        };
        custom("name", "x");
        custom("toolcell:manifest", section);
        component
    }

    #[test]
    fn manifest_of_a_component_is_read() {
        let text = r#"{"name": "weather", "wants": [{"grant": "http=api.example", "reason": "forecasts"}]}"#;
        let manifest = PackageManifest::read(&with(text)).unwrap().unwrap();
        assert_eq!(manifest.name.as_deref(), Some("weather"));
        assert_eq!(manifest.wants[0].grant.to_string(), "http=api.example");
        assert_eq!(PackageManifest::read(b"\0asm\x0d\0\x01\0").unwrap(), None);
    }

    #[test]
    fn manifest_beyond_its_limits_is_refused() {
        let name = |length: usize| {
            let text = format!(r#"{{"name": "{}"}}"#, "x".repeat(length));
            PackageManifest::read(&with(&text))
        };
        assert!(name(MAX_TEXT).is_ok() && name(MAX_TEXT + 1).is_err());
        let wants = |number: usize| {
            let wants = vec![r#"{"grant": "env=A"}"#; number].join(",");
            PackageManifest::read(&with(&format!(r#"{{"wants": [{wants}]}}"#)))
        };
        assert!(wants(MAX_WANTS).is_ok() && wants(MAX_WANTS + 1).is_err());
        let blanks = |size: usize| PackageManifest::read(&with(&format!("{{}}{}", " ".repeat(size - 2))));
        assert!(blanks(MAX_BYTES).is_ok() && blanks(MAX_BYTES + 1).is_err());
        for wrong in [
            "",
            "[]",
            r#"{"grants": []}"#,
            r#"{"wants": [{"grant": "root=/"}]}"#,
        ] {
            assert!(PackageManifest::read(&with(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn second_manifest_is_refused() {
        let one = with(r#"{"name": "weather"}"#);
        let two = [&one[..], &one[PREAMBLE..]].concat();
        let error = PackageManifest::read(&two).unwrap_err();
        assert!(
            format!("{error:#}").ends_with("cannot be used: there are 2"),
            "{error:#}"
        );
    }

    #[test]
    fn truncated_component_has_no_manifest_and_no_panic() {
        let whole = with(r#"{"name": "weather"}"#);
        for length in 0..whole.len() {
            assert!(PackageManifest::read(&whole[..length]).is_ok_and(|found| found.is_none()));
        }
    }
}
