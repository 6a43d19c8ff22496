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
//!
//! It is a section of the component itself, where `toolcell tool build` writes it, or of a core module in it, where linkers write
//! it. Components inside of the component are of other authors, and theirs are not read.

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

/// Preamble of a component.
const COMPONENT: &[u8; PREAMBLE] = b"\0asm\x0d\0\x01\0";

/// Identifiers of sections: with a name, and of a component one with a core module.
const CUSTOM: u8 = 0;
const CORE_MODULE: u8 = 1;

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
#[serde(
    deny_unknown_fields,
    expecting = "an object or table with `grant` and `reason`"
)]
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

    /// Adds the section to a component, after all others.
    ///
    /// # Errors
    /// Returns an error if the component has one, or this one exceeds a limit.
    pub(crate) fn add_to(&self, component: &mut Vec<u8>) -> anyhow::Result<()> {
        let content = serde_json::to_vec(self)?;
        let mut name = leb128(SECTION.len());
        name.extend_from_slice(SECTION);
        component.push(CUSTOM);
        component.extend(leb128(name.len() + content.len()));
        component.extend(name);
        component.extend(content);
        Self::read(component).map(|_| ())
    }
}

/// The contents of the sections of this name: of a component or core module, and of the core modules in a component.
fn sections(file: &[u8]) -> Vec<&[u8]> {
    let is_component = file.starts_with(COMPONENT);
    let mut found = Vec::new();
    let mut rest = file.get(PREAMBLE..).unwrap_or_default();
    while let Some((id, content, after)) = next(rest) {
        match id {
            CUSTOM => {
                let named = number(content).and_then(|(length, named)| named.split_at_checked(length));
                if let Some((SECTION, content)) = named {
                    found.push(content);
                }
            }
            CORE_MODULE if is_component && !content.starts_with(COMPONENT) => found.extend(sections(content)),
            _ => {}
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

/// Encodes a number in LEB128.
fn leb128(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(value & 0x7f).unwrap_or_default();
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
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

    const MODULE: &[u8] = b"\0asm\x01\0\0\0";
    const COMPONENT_SECTION: u8 = 4;

    fn section(id: u8, content: &[u8]) -> Vec<u8> {
        [&[id][..], &leb128(content.len()), content].concat()
    }

    fn custom(name: &str, content: &str) -> Vec<u8> {
        let name = [&leb128(name.len())[..], name.as_bytes()].concat();
        section(CUSTOM, &[&name[..], content.as_bytes()].concat())
    }

    fn with(section: &str) -> Vec<u8> {
        let sections = [custom("name", "x"), custom("toolcell:manifest", section)];
        [&COMPONENT[..], &sections.concat()].concat()
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
    fn manifest_of_a_linker_is_read_in_the_core_module() {
        let named = custom("toolcell:manifest", r#"{"name": "weather"}"#);
        let module = [MODULE, &section(1, b"types"), &named].concat();
        let name = |file: &[u8]| PackageManifest::read(file).map(|found| found?.name);
        let component = [COMPONENT, &section(CORE_MODULE, &module)[..]].concat();
        assert_eq!(name(&component).unwrap().as_deref(), Some("weather"));
        // A program for WASI preview 1.
        assert_eq!(name(&module).unwrap().as_deref(), Some("weather"));
        for second in [&named, &section(CORE_MODULE, &module)] {
            assert!(name(&[&component[..], second].concat()).is_err());
        }
    }

    #[test]
    fn manifest_of_an_inner_component_is_not_read() {
        let inner = with(r#"{"name": "weather"}"#);
        let module = [MODULE, &custom("toolcell:manifest", "{}")].concat();
        let deeper = [COMPONENT, &section(CORE_MODULE, &module)[..]].concat();
        for (id, inner) in [
            (COMPONENT_SECTION, &inner),
            (COMPONENT_SECTION, &deeper),
            (COMPONENT_SECTION, &module),
            (CORE_MODULE, &inner),
            (CORE_MODULE, &deeper),
        ] {
            let outer = [COMPONENT, &section(id, inner)[..]].concat();
            assert_eq!(PackageManifest::read(&outer).unwrap(), None);
            let own = [&outer[..], &custom("toolcell:manifest", r#"{"name": "own"}"#)].concat();
            let manifest = PackageManifest::read(&own).unwrap().unwrap();
            assert_eq!(manifest.name.as_deref(), Some("own"));
        }
    }

    #[test]
    fn manifest_is_added_once_and_read_again() {
        let manifest = PackageManifest {
            name: Some("weather".into()),
            wants: vec![Want {
                grant: "env=KEY".parse().unwrap(),
                reason: "x".repeat(200),
            }],
            ..PackageManifest::default()
        };
        let mut component = COMPONENT.to_vec();
        manifest.add_to(&mut component).unwrap();
        assert_eq!(PackageManifest::read(&component).unwrap(), Some(manifest.clone()));
        let error = format!("{:#}", manifest.add_to(&mut component).unwrap_err());
        assert!(error.ends_with("there are 2"), "{error}");
    }

    #[test]
    fn truncated_component_has_no_manifest_and_no_panic() {
        let whole = with(r#"{"name": "weather"}"#);
        for length in 0..whole.len() {
            assert!(PackageManifest::read(&whole[..length]).is_ok_and(|found| found.is_none()));
        }
    }
}
