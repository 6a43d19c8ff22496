//! Search in the index.

use std::collections::BTreeSet;

use toolcell_sdk::Result;

use super::segment::{self, Count, Damaged, READ, Text};
use crate::memory;
use crate::rank::{Query, Ranking};
use crate::storage::{Keys, Storage};

/// Kind and tags that memories must have.
pub(crate) struct Filter<'a> {
    pub(crate) kind: Option<&'a str>,
    pub(crate) tags: &'a [String],
}

impl Filter<'_> {
    pub(crate) fn fits(&self, kind: Option<&str>, tags: &[String]) -> bool {
        memory::fits(kind, tags, self.kind, self.tags)
    }

    fn terms(&self) -> Vec<String> {
        let kind = self.kind.map(segment::kind_term);
        kind.into_iter()
            .chain(self.tags.iter().map(|tag| segment::tag_term(tag)))
            .collect()
    }
}

/// Words and terms of a search, by the shard that has them.
struct Wanted<'a> {
    query: &'a Query,
    terms: Vec<String>,
    shards: Vec<usize>,
}

/// Adds the memories with valid entries in the index to a ranking. Returns the memories that have none.
pub(crate) fn rank(
    storage: &Storage,
    keys: &Keys,
    query: &Query,
    filter: &Filter<'_>,
    ranking: &mut Ranking<'_, u64>,
) -> Result<Vec<u64>> {
    let numbers: Vec<u64> = keys.memories.iter().copied().collect();
    let mut is_indexed = vec![false; numbers.len()];
    let terms = filter.terms();
    let words = query.words().iter().chain(&terms);
    let shards: BTreeSet<usize> = words.map(|word| segment::shard_of(word)).collect();
    let wanted = Wanted {
        query,
        terms,
        shards: shards.into_iter().collect(),
    };
    let mut segments: Vec<(u64, Vec<Text>)> = storage.segments(keys)?;
    // Of two entries of a memory, both are right; the newer segment has fewer that are not.
    segments.reverse();
    for some in segments.chunks((READ / wanted.shards.len().max(1)).max(1)) {
        let keys_of = |(number, _): &(u64, _)| {
            let number = *number;
            wanted
                .shards
                .iter()
                .map(move |shard| segment::shard_key(number, *shard))
        };
        let values = storage.values(&some.iter().flat_map(keys_of).collect::<Vec<_>>());
        for ((_, texts), values) in some.iter().zip(values.chunks(wanted.shards.len())) {
            let Ok(matches) = wanted.matches(texts.len(), values) else {
                continue;
            };
            let mut next = 0;
            for (at, text) in texts.iter().enumerate() {
                // Most memories of a segment follow each other.
                let place = match numbers.get(next) {
                    Some(number) if *number == text.number => next,
                    _ => match numbers.binary_search(&text.number) {
                        Ok(place) => place,
                        Err(_) => continue,
                    },
                };
                next = place + 1;
                if is_indexed[place] || keys.version(text.number) != Some(text.version) {
                    continue;
                }
                is_indexed[place] = true;
                if matches.fits(at) {
                    ranking.add_weighed(text.number, matches.weights(at), text.length);
                }
            }
        }
    }
    let left = numbers
        .iter()
        .zip(is_indexed)
        .filter(|(_, is_indexed)| !is_indexed);
    Ok(left.map(|(number, _)| *number).collect())
}

/// Matches of the memories of a segment.
struct Matches {
    words: usize,
    /// Weight of each word of the query, for each memory.
    weights: Vec<f32>,
    terms: usize,
    /// Number of terms that a memory has.
    having: Vec<usize>,
}

impl Matches {
    fn weights(&self, at: usize) -> &[f32] {
        &self.weights[at * self.words..(at + 1) * self.words]
    }

    fn fits(&self, at: usize) -> bool {
        self.having[at] == self.terms
    }
}

impl Wanted<'_> {
    /// Weighs the memories of a segment. `values` are those of the shards.
    fn matches(&self, texts: usize, values: &[Option<Vec<u8>>]) -> std::result::Result<Matches, Damaged> {
        let words = self.query.words().len();
        let mut matches = Matches {
            words,
            weights: vec![0.0; words * texts],
            terms: self.terms.len(),
            having: vec![0; texts],
        };
        for (shard, value) in self.shards.iter().zip(values) {
            let value = value.as_ref().ok_or(Damaged)?;
            // A pair of characters can be in two shards. Each word of the query counts in its own only.
            let own: Vec<usize> = (0..words)
                .filter(|at| segment::shard_of(&self.query.words()[*at]) == *shard)
                .collect();
            let wants = |word: &str| {
                let is_term = self.terms.iter().any(|term| term == word);
                let likeness = |at: &usize| (*at, self.query.likeness(*at, word));
                let likeness: Vec<(usize, f32)> = own
                    .iter()
                    .map(likeness)
                    .filter(|(_, likeness)| *likeness > 0.0)
                    .collect();
                (is_term || !likeness.is_empty()).then_some((is_term, likeness))
            };
            segment::each_posting(value, texts, wants, |(is_term, likeness), at, count| {
                let Count { body, heading } = count;
                matches.having[at] += usize::from(*is_term);
                for (word, likeness) in likeness {
                    matches.weights[at * words + word] += Query::weight(body, heading) * likeness;
                }
            })?;
        }
        Ok(matches)
    }
}
