//! Links between memories and tasks.

use std::collections::{BTreeMap, BTreeSet};

use toolcell_sdk::{Result, output};

use crate::id::Id;
use crate::storage::{Keys, Storage};

/// Directed link, found from both ends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Link {
    pub(crate) from: Id,
    pub(crate) relation: String,
    pub(crate) to: Id,
}

/// Link for the model, seen from one of its ends.
#[output]
pub(crate) struct Edge {
    /// Relation of the two.
    pub(crate) relation: String,
    /// Target, if it starts here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<String>,
    /// Source, if it leads here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<String>,
    /// From 0 to 1.
    pub(crate) strength: f64,
}

/// Entry reached by links.
#[derive(Debug, PartialEq)]
pub(crate) struct Reached {
    pub(crate) id: Id,
    /// Distance in links.
    pub(crate) distance: u32,
    /// Last link of the path.
    pub(crate) by: Link,
}

impl Link {
    /// Storage key.
    pub(crate) fn key(&self) -> String {
        format!("l/{}/{}/{}", self.from, self.relation, self.to)
    }

    pub(crate) fn touches(&self, id: Id) -> bool {
        self.from == id || self.to == id
    }
}

/// Links from and to an entry.
pub(crate) fn edges(storage: &Storage, keys: &Keys, id: Id) -> Result<Vec<Edge>> {
    let links: Vec<&Link> = keys.links.iter().filter(|link| link.touches(id)).collect();
    let strengths = storage.strengths(&links)?;
    let edge = |(link, strength): (&Link, f64)| {
        let starts_here = link.from == id;
        Edge {
            relation: link.relation.clone(),
            to: starts_here.then(|| link.to.to_string()),
            from: (!starts_here).then(|| link.from.to_string()),
            strength,
        }
    };
    Ok(links.into_iter().zip(strengths).map(edge).collect())
}

/// Entries within at most `depth` links of the given ones, in either direction; nearest first.
pub(crate) fn reached(keys: &Keys, from: &[Id], depth: u32) -> Vec<Reached> {
    if depth == 0 {
        return Vec::new();
    }
    let mut of_id: BTreeMap<Id, Vec<&Link>> = BTreeMap::new();
    for link in &keys.links {
        of_id.entry(link.from).or_default().push(link);
        of_id.entry(link.to).or_default().push(link);
    }
    let mut seen: BTreeSet<Id> = from.iter().copied().collect();
    let mut edge: Vec<Id> = from.to_vec();
    let mut reached = Vec::new();
    for distance in 1..=depth {
        let mut next = Vec::new();
        for id in edge {
            for link in of_id.get(&id).into_iter().flatten() {
                let other = if link.from == id { link.to } else { link.from };
                if seen.insert(other) {
                    next.push(other);
                    reached.push(Reached {
                        id: other,
                        distance,
                        by: (*link).clone(),
                    });
                }
            }
        }
        edge = next;
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(links: &[(u64, u64)]) -> Keys {
        let link = |(from, to): &(u64, u64)| Link {
            from: Id::Memory(*from),
            relation: "r".into(),
            to: Id::Memory(*to),
        };
        Keys {
            links: links.iter().map(link).collect(),
            ..Keys::default()
        }
    }

    #[test]
    fn links_are_followed_in_both_directions_up_to_the_depth() {
        let keys = keys(&[(1, 2), (3, 2), (3, 4), (4, 1), (5, 5)]);
        let found = |depth| -> Vec<(Id, u32)> {
            let reached = reached(&keys, &[Id::Memory(1)], depth);
            reached.iter().map(|r| (r.id, r.distance)).collect()
        };
        assert_eq!(found(0), []);
        assert_eq!(found(1), [(Id::Memory(2), 1), (Id::Memory(4), 1)]);
        assert_eq!(
            found(9),
            [(Id::Memory(2), 1), (Id::Memory(4), 1), (Id::Memory(3), 2)]
        );
    }
}
