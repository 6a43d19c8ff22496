//! Version of the rules by which schemas are checked.

/// Changes with the source code of the checks and with each release.
pub const RULES: u64 = version_of(&[
    env!("CARGO_PKG_VERSION").as_bytes(),
    include_bytes!("mod.rs"),
    include_bytes!("patterns.rs"),
    include_bytes!("validators.rs"),
    include_bytes!("../json/mod.rs"),
]);

/// Computes a version from texts at compile time (FNV-1a, 64 bits). It tells versions of this program apart and protects
/// nothing.
pub const fn version_of(texts: &[&[u8]]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut text = 0;
    while text < texts.len() {
        let mut at = 0;
        while at < texts[text].len() {
            hash = (hash ^ texts[text][at] as u64).wrapping_mul(0x0100_0000_01b3);
            at += 1;
        }
        text += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_the_fnv_1a_hash_of_all_texts() {
        // Test vectors of the authors (<https://datatracker.ietf.org/doc/html/draft-eastlake-fnv>).
        for (texts, hash) in [
            (&[][..], 0xcbf2_9ce4_8422_2325),
            (&[b"a"], 0xaf63_dc4c_8601_ec8c),
            (&[b"foobar"], 0x8594_4171_f739_67e8),
            (&[b"foo", b"", b"bar"], 0x8594_4171_f739_67e8),
        ] as [(&[&[u8]], u64); 4]
        {
            assert_eq!(version_of(texts), hash, "{texts:?}");
        }
    }
}
