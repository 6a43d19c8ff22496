//! A fuzz runner that needs only a stable compiler.
//!
//! A target is a name, seed inputs, words that inputs are made of, and a check that panics on failure. [`Target::run`]
//! replays the inputs in `tests/corpora/fuzz/<name>` and then tries mutated ones, the same on every machine. An input
//! with a new outcome of the check becomes a seed, so that the search continues from the inputs that came furthest. A
//! failing input is minimized for a short time and saved in the corpus of its target, where each later run begins with
//! it.
//!
//! Built by `tests/fuzz/coverage`, the same targets run under libFuzzer, guided by code coverage.
//!
//! | variable | effect |
//! |---|---|
//! | `TOOLCELL_FUZZ_RUNS` | number of mutated inputs per target |
//! | `TOOLCELL_FUZZ_SECONDS` | duration, instead of a number |
//! | `TOOLCELL_FUZZ_SEED` | seed for other inputs: any number |

#![allow(dead_code, reason = "each test binary uses a part of it")]

#[cfg(toolcell_fuzz)]
#[allow(unsafe_code, reason = "libFuzzer is called through its C interface")]
mod coverage;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Maximum number of seeds.
const MAX_POPULATION: usize = 1_000;

/// Maximum length of a generated input; longer ones find nothing that shorter ones do not.
const MAX_LENGTH: usize = 1 << 16;

/// Maximum number of attempts to minimize a failing input.
const MAX_SHRINKS: usize = 2_000;

/// A fuzz target.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    name: &'a str,
    runs: u64,
    seeds: Vec<Vec<u8>>,
    words: &'a [&'a str],
}

/// Number of tried inputs by outcome.
#[derive(Debug)]
pub(crate) struct Tried {
    pub(crate) inputs: u64,
    pub(crate) outcomes: BTreeMap<String, u64>,
}

impl<'a> Target<'a> {
    /// Creates a target with the corpus `tests/corpora/fuzz/<name>`, and the number of mutated inputs that each run of
    /// the suite tries.
    pub(crate) fn new(name: &'a str, runs: u64) -> Self {
        Self {
            name,
            runs,
            seeds: Vec::new(),
            words: &[],
        }
    }

    /// Sets seed inputs in addition to the corpus.
    pub(crate) fn seeds<S: Into<Vec<u8>>>(mut self, seeds: impl IntoIterator<Item = S>) -> Self {
        self.seeds.extend(seeds.into_iter().map(Into::into));
        self
    }

    /// Sets the words that inputs are made of.
    pub(crate) fn words(mut self, words: &'a [&'a str]) -> Self {
        self.words = words;
        self
    }

    /// Tries inputs. `check` returns the outcome of each in a word or two, and panics on failure.
    ///
    /// Built for libFuzzer, this ends the process.
    pub(crate) fn run(self, mut check: impl FnMut(&[u8]) -> String) -> Tried {
        let population = self.corpus();
        assert!(
            !population.is_empty(),
            "the target `{}` has nothing to start from",
            self.name
        );
        #[cfg(toolcell_fuzz)]
        self.run_with_coverage(population, &mut check);
        #[cfg(not(toolcell_fuzz))]
        self.run_by_outcome(population, &mut check)
    }

    /// Continues from inputs with a new outcome.
    fn run_by_outcome(&self, mut population: Vec<Vec<u8>>, check: &mut impl FnMut(&[u8]) -> String) -> Tried {
        let mut tried = Tried {
            inputs: 0,
            outcomes: BTreeMap::new(),
        };
        for input in population.clone() {
            self.try_out(&input, check, &mut tried);
        }
        let (runs, seconds, seed) = (number("RUNS"), number("SECONDS"), number("SEED"));
        let mut dice = Dice::new(self.name, seed.unwrap_or(0));
        let began = Instant::now();
        let more = |tried: u64| match seconds {
            Some(seconds) => began.elapsed() < Duration::from_secs(seconds),
            None => tried < runs.unwrap_or(self.runs),
        };
        for number in 0.. {
            if !more(number) {
                break;
            }
            let mut input = population[dice.roll(population.len())].clone();
            let other = population[dice.roll(population.len())].clone();
            self.change(&mut input, &other, &mut dice);
            if self.try_out(&input, check, &mut tried) && population.len() < MAX_POPULATION {
                population.push(input);
            }
        }
        println!(
            "fuzz `{}`: {} inputs, {:#?}",
            self.name, tried.inputs, tried.outcomes
        );
        tried
    }

    /// Continues from inputs that reach new code, as measured by libFuzzer. A finding is saved and ends the process.
    #[cfg(toolcell_fuzz)]
    fn run_with_coverage(&self, inputs: Vec<Vec<u8>>, check: &mut impl FnMut(&[u8]) -> String) -> ! {
        let campaign = coverage::Campaign {
            name: self.name,
            inputs,
            words: self.words,
            seconds: number("SECONDS"),
            runs: number("RUNS"),
            seed: number("SEED"),
        };
        let mut tried = Tried {
            inputs: 0,
            outcomes: BTreeMap::new(),
        };
        coverage::run(&campaign, &mut |input| {
            let found = std::panic::catch_unwind(AssertUnwindSafe(|| {
                self.try_out(input, check, &mut tried);
            }));
            if found.is_err() {
                std::process::exit(1);
            }
        })
    }

    /// Returns all seeds, in a fixed order.
    fn corpus(&self) -> Vec<Vec<u8>> {
        let Ok(entries) = std::fs::read_dir(self.directory()) else {
            return self.seeds.clone();
        };
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        files.sort();
        let mut inputs: Vec<Vec<u8>> = files.iter().map(|f| std::fs::read(f).expect("a file")).collect();
        inputs.extend(self.seeds.iter().cloned());
        inputs
    }

    fn directory(&self) -> PathBuf {
        // The root of the workspace, from any crate of `runtime/`.
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpora/fuzz")).join(self.name)
    }

    /// True if the outcome is new.
    fn try_out(&self, input: &[u8], check: &mut impl FnMut(&[u8]) -> String, tried: &mut Tried) -> bool {
        tried.inputs += 1;
        match std::panic::catch_unwind(AssertUnwindSafe(|| check(input))) {
            Ok(outcome) => {
                let count = tried.outcomes.entry(outcome).or_default();
                *count += 1;
                *count == 1
            }
            Err(panic) => {
                let small = self.shrink(input, check);
                let kept = self.keep(&small);
                eprintln!(
                    "fuzz `{}`: {kept} fails: {:?}",
                    self.name,
                    small.escape_ascii().to_string()
                );
                std::panic::resume_unwind(panic)
            }
        }
    }

    /// Minimizes a failing input: removes pieces, large ones first, as long as the check still panics.
    fn shrink(&self, input: &[u8], check: &mut impl FnMut(&[u8]) -> String) -> Vec<u8> {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let mut fails = |input: &[u8]| std::panic::catch_unwind(AssertUnwindSafe(|| check(input))).is_err();
        let mut small = input.to_vec();
        let (mut piece, mut tries) = (input.len().div_ceil(2), 0);
        while piece > 0 {
            let (mut at, before) = (0, small.len());
            while at < small.len() && tries < MAX_SHRINKS {
                tries += 1;
                let mut smaller = small.clone();
                smaller.drain(at..(at + piece).min(small.len()));
                if fails(&smaller) {
                    small = smaller;
                } else {
                    at += piece;
                }
            }
            if small.len() == before || piece > 1 {
                piece /= 2;
            }
            if tries == MAX_SHRINKS {
                break;
            }
        }
        std::panic::set_hook(hook);
        small
    }

    /// Saves an input in the corpus, named by its hash, and returns the path.
    fn keep(&self, input: &[u8]) -> String {
        let path = self.directory().join(format!("found-{:016x}", hash(input)));
        let written = std::fs::create_dir_all(self.directory()).and_then(|()| std::fs::write(&path, input));
        match written {
            Ok(()) => path.display().to_string(),
            Err(error) => format!(
                "an input that could not be written to {}: {error}",
                path.display()
            ),
        }
    }

    /// Mutates an input one to eight times: a bit, a byte, a piece removed, duplicated or inserted from another input,
    /// or a word. Every second input keeps its length and offsets, for formats with byte counts.
    fn change(&self, input: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
        let kinds = if dice.roll(2) == 0 { 3 } else { 8 };
        for _ in 0..=dice.roll(8) {
            let at = dice.roll(input.len() + 1);
            let len = dice.roll(16).min(input.len() - at);
            match dice.roll(kinds) {
                0 if at < input.len() => input[at] ^= 1 << dice.roll(8),
                1 if at < input.len() => input[at] = dice.byte(),
                2 if at < input.len() => {
                    input[at] = [0, 1, 0x7f, 0x80, 0xff, b'\n', b'"', b'%'][dice.roll(8)];
                }
                3 => drop(input.drain(at..at + len)),
                4 => {
                    let piece = input[at..at + len].to_vec();
                    for _ in 0..=dice.roll(4) {
                        input.splice(at..at, piece.iter().copied());
                    }
                }
                5 if !other.is_empty() => {
                    let from = dice.roll(other.len());
                    let to = (from + 1 + dice.roll(32)).min(other.len());
                    input.splice(at..at, other[from..to].iter().copied());
                }
                _ if kinds == 3 => {}
                _ if !self.words.is_empty() => {
                    let word = self.words[dice.roll(self.words.len())];
                    input.splice(at..at + len.min(dice.roll(8)), word.bytes());
                }
                _ => input.insert(at, dice.byte()),
            }
        }
        input.truncate(MAX_LENGTH);
    }
}

fn number(what: &str) -> Option<u64> {
    let name = format!("TOOLCELL_FUZZ_{what}");
    let value = std::env::var(&name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is no number: {value:?}")),
    )
}

/// FNV-1a, 64 bits.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A small pseudo-random number generator (xorshift64*).
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn new(name: &str, seed: u64) -> Self {
        Self(hash(name.as_bytes()).wrapping_add(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1)
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(high).expect("31 bits") % sides
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.roll(256)).expect("below 256")
    }
}
