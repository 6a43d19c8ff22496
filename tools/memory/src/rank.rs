//! Ranking of texts for a query: BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009).
//!
//! A word that shares a prefix with a word of the query counts half: `deploy` finds `deployment`, `tests` finds `test`.
//! Words of the title and tags count three times.

use crate::words;

/// Saturation of repeated words, and normalisation of long texts: the usual values.
const K1: f32 = 1.2;
const B: f32 = 0.75;

/// Weight of a word that shares only a prefix with a word of the query.
const ALMOST: f32 = 0.5;

/// Weight of a word of a title or a tag.
const HEADING: f32 = 3.0;

/// Minimum length of a word that may be a prefix of another one, in bytes.
const MIN_STEM: usize = 4;

/// Maximum bytes that a word of the query may have beyond the matching word: `deploying` finds `deploy`.
const MAX_ENDING: usize = 3;

/// Maximum words of a query; further ones are ignored.
const MAX_WORDS: usize = 32;

/// Description of the order of the matches, for answers.
pub(crate) const RANKED_BY: &str = "BM25 over title, tags and content; words of titles and tags count three times, \
                                    words that only begin alike half";

/// Words of a query.
pub(crate) struct Query {
    words: Vec<String>,
}

/// Matches of a text.
struct Found<T> {
    text: T,
    /// Weight of each word of the query.
    weights: Vec<f32>,
    length: f32,
}

/// Statistics of all texts, and the texts that match.
pub(crate) struct Ranking<'a, T> {
    query: &'a Query,
    found: Vec<Found<T>>,
    texts: u32,
    length: f64,
}

/// Matching text.
pub(crate) struct Ranked<'a, T> {
    /// The value that was added.
    pub(crate) text: T,
    /// Score; larger is better.
    pub(crate) score: f32,
    /// Words of the query that match.
    pub(crate) matched: Vec<&'a str>,
}

impl Query {
    /// Parses a query; empty if it has no words.
    pub(crate) fn new(text: &str) -> Self {
        let mut distinct: Vec<String> = Vec::new();
        words::each(text, |word| {
            if distinct.len() < MAX_WORDS && !distinct.iter().any(|known| known == word) {
                distinct.push(word.to_owned());
            }
        });
        Self { words: distinct }
    }

    pub(crate) fn words(&self) -> &[String] {
        &self.words
    }

    /// Likeness of a word to the word of the query at this place.
    pub(crate) fn likeness(&self, at: usize, word: &str) -> f32 {
        likeness(&self.words[at], word)
    }

    /// Weight of a word that is so often in content and headings.
    #[expect(clippy::cast_precision_loss, reason = "numbers of words, to a few digits")]
    pub(crate) fn weight(body: u32, heading: u32) -> f32 {
        body as f32 + HEADING * heading as f32
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Adds the weights of a text, and returns its number of words.
    fn weigh(&self, text: &str, each_counts: f32, weights: &mut [f32]) -> u32 {
        let mut count = 0;
        words::each(text, |word| {
            count += 1;
            for (wanted, weight) in self.words.iter().zip(weights.iter_mut()) {
                *weight += each_counts * likeness(wanted, word);
            }
        });
        count
    }

    /// Position of the first word of the query in a text, in bytes.
    pub(crate) fn first_match(&self, text: &str) -> Option<usize> {
        // Word by word, because words have no positions.
        let mut at = 0;
        for piece in text.split_inclusive(char::is_whitespace) {
            let mut weights = vec![0.0; self.words.len()];
            self.weigh(piece, 1.0, &mut weights);
            if weights.iter().any(|weight| *weight > 0.0) {
                return Some(at);
            }
            at += piece.len();
        }
        None
    }
}

/// 1 for the same word, [`ALMOST`] for a common prefix, 0 otherwise.
fn likeness(wanted: &str, word: &str) -> f32 {
    if words::is_unspaced_alone(wanted) {
        // The character is in two of the pairs of its run.
        return if wanted == word {
            1.0
        } else if word.contains(wanted) {
            ALMOST
        } else {
            0.0
        };
    }
    if wanted.as_bytes().first() != word.as_bytes().first() {
        return 0.0;
    }
    if wanted == word {
        return 1.0;
    }
    let longer = wanted.len() >= MIN_STEM && word.starts_with(wanted);
    let shorter =
        word.len() >= MIN_STEM && wanted.starts_with(word) && wanted.len() - word.len() <= MAX_ENDING;
    if longer || shorter { ALMOST } else { 0.0 }
}

impl<'a, T: Ord> Ranking<'a, T> {
    pub(crate) fn new(query: &'a Query) -> Self {
        Self {
            query,
            found: Vec::new(),
            texts: 0,
            length: 0.0,
        }
    }

    /// Adds a text. `text` is returned if it matches.
    pub(crate) fn add<'t>(&mut self, text: T, headings: impl IntoIterator<Item = &'t str>, body: &str) {
        let mut weights = vec![0.0; self.query.words.len()];
        let mut length = self.query.weigh(body, 1.0, &mut weights);
        for heading in headings {
            length += self.query.weigh(heading, HEADING, &mut weights);
        }
        self.add_weighed(text, &weights, length);
    }

    /// Adds a text whose words are known. `length` is their number.
    pub(crate) fn add_weighed(&mut self, text: T, weights: &[f32], length: u32) {
        self.texts += 1;
        self.length += f64::from(length);
        if weights.iter().any(|weight| *weight > 0.0) {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a number of words, to a few digits"
            )]
            let length = f64::from(length) as f32;
            self.found.push(Found {
                text,
                weights: weights.to_vec(),
                length,
            });
        }
    }

    /// Matching texts, best first; of equal ones the greater one.
    pub(crate) fn finish(mut self) -> Vec<Ranked<'a, T>> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a number of words, to a few digits"
        )]
        let average = (self.length / f64::from(self.texts.max(1))) as f32;
        #[expect(clippy::cast_precision_loss, reason = "numbers of texts, to a few digits")]
        let rarity: Vec<f32> = (0..self.query.words.len())
            .map(|i| {
                let having = self.found.iter().filter(|found| found.weights[i] > 0.0).count() as f32;
                ((self.texts as f32 - having + 0.5) / (having + 0.5) + 1.0).ln()
            })
            .collect();
        self.found.sort_by(|a, b| b.text.cmp(&a.text));
        let mut ranked: Vec<Ranked<'a, T>> = (self.found.into_iter())
            .map(|found| {
                let norm = K1 * (1.0 - B + B * found.length / average.max(1.0));
                let part = |(weight, rarity): (&f32, &f32)| rarity * weight * (K1 + 1.0) / (weight + norm);
                let of_words = self.query.words.iter().zip(&found.weights);
                Ranked {
                    score: found.weights.iter().zip(&rarity).map(part).sum(),
                    matched: of_words
                        .filter(|(_, weight)| **weight > 0.0)
                        .map(|(word, _)| word.as_str())
                        .collect(),
                    text: found.text,
                }
            })
            .collect();
        ranked.sort_by(|a, b| b.score.total_cmp(&a.score));
        ranked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranked(query: &str, texts: &[(&str, &str)]) -> Vec<usize> {
        let query = Query::new(query);
        let mut ranking = Ranking::new(&query);
        for (i, (title, body)) in texts.iter().enumerate() {
            ranking.add(i, [*title], body);
        }
        ranking.finish().into_iter().map(|ranked| ranked.text).collect()
    }

    #[test]
    fn more_matching_words_rank_higher() {
        let texts = [
            ("", "bread and butter"),
            ("", "butter"),
            ("", "bread"),
            ("", "jam"),
        ];
        assert_eq!(ranked("butter bread", &texts)[0], 0);
        assert_eq!(ranked("butter bread", &texts).len(), 3);
        assert!(ranked("cheese", &texts).is_empty());
    }

    #[test]
    fn rare_word_ranks_above_a_common_one() {
        let texts = [
            ("", "the server runs"),
            ("", "the quince"),
            ("", "the server stops"),
            ("", "the server"),
        ];
        assert_eq!(ranked("server quince", &texts)[0], 1);
    }

    #[test]
    fn short_texts_and_titles_rank_higher() {
        let long = format!("deploy {}", "word ".repeat(100));
        assert_eq!(ranked("deploy", &[("", &long), ("", "deploy it")]), [1, 0]);
        assert_eq!(
            ranked("deploy", &[("", "deploy it"), ("deploy", "it now")]),
            [1, 0]
        );
    }

    #[test]
    fn common_prefixes_count_less_than_equal_words() {
        let texts = [("", "deployment"), ("", "deploy"), ("", "depart")];
        assert_eq!(ranked("deploy", &texts), [1, 0]);
        assert_eq!(ranked("deploying", &texts), [1]);
        assert_eq!(ranked("tests", &[("", "test")]), [0]);
        assert!(ranked("a", &[("", "apple")]).is_empty());
        assert_eq!(ranked("木", &[("", "高木材"), ("", "木"), ("", "水")]), [1, 0]);
        assert!(ranked("internationally", &[("", "inter")]).is_empty());
    }

    #[test]
    fn later_text_ranks_first_among_equal_ones() {
        assert_eq!(ranked("x", &[("", "x"), ("", "x"), ("", "y")]), [1, 0]);
    }

    #[test]
    fn matching_words_and_first_position_are_returned() {
        let query = Query::new("Deploy, deploy on fridays");
        assert_eq!(query.words, ["deploy", "on", "fridays"]);
        let mut ranking = Ranking::new(&query);
        ranking.add((), [], "Never on a Friday");
        let all = ranking.finish();
        assert_eq!(all[0].matched, ["on", "fridays"]);
        assert_eq!(query.first_match("é never on a Friday"), Some("é never ".len()));
        assert_eq!(query.first_match("nothing"), None);
        assert!(Query::new("…!").is_empty());
    }
}
