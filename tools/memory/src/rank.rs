//! Which texts fit a query best: BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009).
//!
//! A word of a text that only begins like a word of the query, or the other way round, counts half: `deploy` finds
//! `deployment`, `tests` finds `test`. Words of the title and tags count three times.

use crate::words;

/// How soon more of the same word counts no more, and how much a long text is held against itself: the usual values.
const K1: f32 = 1.2;
const B: f32 = 0.75;

/// How much a word counts that only begins like one of the query.
const ALMOST: f32 = 0.5;

/// How much a word of a title or a tag counts.
const HEADING: f32 = 3.0;

/// Shortest word that may be the beginning of another one, in bytes.
const MIN_STEM: usize = 4;

/// Most bytes that a word of the query may have beyond the word that it is found by: `deploying` finds `deploy`.
const MAX_ENDING: usize = 3;

/// Most words of a query that count.
const MAX_WORDS: usize = 32;

/// How answers say in which order they are.
pub(crate) const RANKED_BY: &str = "BM25 over title, tags and content; words of titles and tags count three times, \
                                    words that only begin alike half";

/// The words that are looked for.
pub(crate) struct Query {
    words: Vec<String>,
}

/// What a text has of the words of a query.
struct Found<T> {
    text: T,
    /// For each word of the query, how much of it.
    weights: Vec<f32>,
    length: f32,
}

/// All texts that were looked at, and those that have a word of the query.
pub(crate) struct Ranking<'a, T> {
    query: &'a Query,
    found: Vec<Found<T>>,
    texts: u32,
    length: f64,
}

/// One text that fits.
pub(crate) struct Ranked<'a, T> {
    /// What was added.
    pub(crate) text: T,
    /// How well it fits; larger is better.
    pub(crate) score: f32,
    /// The words of the query that it has.
    pub(crate) matched: Vec<&'a str>,
}

impl Query {
    /// The words of a query; empty where it has none.
    pub(crate) fn new(text: &str) -> Self {
        let mut distinct: Vec<String> = Vec::new();
        words::each(text, |word| {
            if distinct.len() < MAX_WORDS && !distinct.iter().any(|known| known == word) {
                distinct.push(word.to_owned());
            }
        });
        Self { words: distinct }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Adds what a text has of the words, and says how many words it has.
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

    /// Where the first word of the query stands in a text, in bytes.
    pub(crate) fn first_match(&self, text: &str) -> Option<usize> {
        // Piece by piece, because words do not say where they stood.
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

/// 1 for the same word, [`ALMOST`] where one begins like the other, 0 otherwise.
fn likeness(wanted: &str, word: &str) -> f32 {
    if words::is_unspaced_alone(wanted) {
        // The character stands in two of the pairs into which its run was cut.
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

impl<'a, T> Ranking<'a, T> {
    pub(crate) fn new(query: &'a Query) -> Self {
        Self {
            query,
            found: Vec::new(),
            texts: 0,
            length: 0.0,
        }
    }

    /// Looks at a text. `text` comes back if it fits.
    pub(crate) fn add<'t>(&mut self, text: T, headings: impl IntoIterator<Item = &'t str>, body: &str) {
        let mut weights = vec![0.0; self.query.words.len()];
        let mut length = self.query.weigh(body, 1.0, &mut weights);
        for heading in headings {
            length += self.query.weigh(heading, HEADING, &mut weights);
        }
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
                weights,
                length,
            });
        }
    }

    /// Those that fit, the best first; of two that fit equally well the one that was added later.
    pub(crate) fn finish(self) -> Vec<Ranked<'a, T>> {
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
            .rev()
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
    fn more_of_the_query_comes_first_and_what_has_none_of_it_is_left_out() {
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
    fn a_rare_word_says_more_than_a_common_one() {
        let texts = [
            ("", "the server runs"),
            ("", "the quince"),
            ("", "the server stops"),
            ("", "the server"),
        ];
        assert_eq!(ranked("server quince", &texts)[0], 1);
    }

    #[test]
    fn a_short_text_and_a_title_say_more_than_a_word_in_passing() {
        let long = format!("deploy {}", "word ".repeat(100));
        assert_eq!(ranked("deploy", &[("", &long), ("", "deploy it")]), [1, 0]);
        assert_eq!(
            ranked("deploy", &[("", "deploy it"), ("deploy", "it now")]),
            [1, 0]
        );
    }

    #[test]
    fn words_that_begin_alike_count_less_than_the_same_word() {
        let texts = [("", "deployment"), ("", "deploy"), ("", "depart")];
        assert_eq!(ranked("deploy", &texts), [1, 0]);
        assert_eq!(ranked("deploying", &texts), [1]);
        assert_eq!(ranked("tests", &[("", "test")]), [0]);
        assert!(ranked("a", &[("", "apple")]).is_empty());
        assert_eq!(ranked("木", &[("", "高木材"), ("", "木"), ("", "水")]), [1, 0]);
        assert!(ranked("internationally", &[("", "inter")]).is_empty());
    }

    #[test]
    fn of_two_that_fit_equally_well_the_later_one_comes_first() {
        assert_eq!(ranked("x", &[("", "x"), ("", "x"), ("", "y")]), [1, 0]);
    }

    #[test]
    fn the_words_that_fitted_are_named_and_where_the_first_one_stands() {
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
