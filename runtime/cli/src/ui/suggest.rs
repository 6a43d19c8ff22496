//! Suggestions for misspelled names.

/// Returns the known names nearest to `name`, best first, at most three.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Vec<&'a str> {
    let mut scored: Vec<(f64, &str)> = known
        .iter()
        .map(|candidate| (likeness(name, candidate), *candidate))
        .filter(|(score, _)| *score > 0.75)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.into_iter().take(3).map(|(_, name)| name).collect()
}

/// Similarity from 0 to 1. A name that contains the other one counts as near, whatever its length.
fn likeness(a: &str, b: &str) -> f64 {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    let contained = a.len() >= 3 && b.len() >= 3 && (a.contains(&b) || b.contains(&a));
    strsim::jaro_winkler(&a, &b).max(if contained { 0.8 } else { 0.0 })
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
}
