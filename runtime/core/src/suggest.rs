//! Suggestions for misspelled names.

/// Minimum similarity of a suggestion, from 0 to 1 (Jaro-Winkler), exclusive.
const NEAR_ENOUGH: f64 = 0.75;

/// Maximum number of suggestions.
const MAX_NEAR: usize = 3;

/// Maximum compared length of a name, in characters: no known name is longer, and comparing takes time in the product of
/// both lengths.
const MAX_COMPARED: usize = 128;

/// Returns the known names nearest to `name`, best first, at most three. Case is ignored.
///
/// ```
/// use toolcell_core::suggest::nearest;
///
/// assert_eq!(nearest("grnts", &["grants", "limits"]), ["grants"]);
/// assert!(nearest("xyz", &["grants", "limits"]).is_empty());
/// ```
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Vec<&'a str> {
    let name = comparable(name);
    let mut scored: Vec<(f64, &str)> = known
        .iter()
        .map(|candidate| (similarity(&name, &comparable(candidate)), *candidate))
        .filter(|(score, _)| *score > NEAR_ENOUGH)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.dedup_by(|a, b| a.1 == b.1);
    scored.into_iter().take(MAX_NEAR).map(|(_, name)| name).collect()
}

fn comparable(name: &str) -> String {
    name.chars()
        .take(MAX_COMPARED)
        .flat_map(char::to_lowercase)
        .collect()
}

/// Similarity from 0 to 1. A name that contains the other one counts as near, whatever its length.
fn similarity(a: &str, b: &str) -> f64 {
    let contained = a.len() >= 3 && b.len() >= 3 && (a.contains(b) || b.contains(a));
    strsim::jaro_winkler(a, b).max(if contained { 0.8 } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typo_finds_nearest_name() {
        let known = ["grants", "limits", "enabled", "component"];
        assert_eq!(nearest("grnts", &known), ["grants"]);
        assert_eq!(nearest("limit", &known), ["limits"]);
        assert_eq!(nearest("component_path", &known), ["component"]);
        assert!(nearest("xyz", &known).is_empty());
    }

    #[test]
    fn at_most_three_names_are_suggested() {
        let known = ["files_list", "files_read", "files_write", "files_search", "fetch"];
        assert_eq!(nearest("files_", &known).len(), 3);
        assert_eq!(nearest("Files_Read", &known)[0], "files_read");
        assert_eq!(nearest("fetc", &["fetch", "fetch"]), ["fetch"]);
        assert!(nearest(&"q".repeat(1 << 20), &known).is_empty());
    }

    #[test]
    fn contained_name_is_near_from_three_characters_on() {
        assert_eq!(nearest("xyz", &["abcdefghxyz"]), ["abcdefghxyz"]);
        assert_eq!(nearest("abcdefghxyz", &["xyz"]), ["xyz"]);
        assert!(nearest("yz", &["abcdefghxyz"]).is_empty());
        assert!(nearest("abcdefghxyz", &["yz"]).is_empty());
    }
}
