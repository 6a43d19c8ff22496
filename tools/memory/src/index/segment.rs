//! Format of a segment: memories, and their words in shards.
//!
//! Numbers have seven bits in a byte, the lowest first, with the high bit set in all but the last. Each value begins with
//! the format and a checksum.

use std::collections::BTreeMap;

use crate::memory::Searched;
use crate::words;

/// Number of shards of a segment. A word of a query needs one of them.
pub(super) const SHARDS: usize = 32;

/// Maximum size of a value, in bytes, so that one operation can read [`READ`] of them.
const MAX_VALUE: usize = 64 << 10;

/// Values per read: with 64 KiB each they have less than the 8 MiB that one operation reads.
pub(super) const READ: usize = 120;

/// Format and checksum at the start of a value.
const FORMAT: u8 = 1;
const HEADER: usize = 5;

/// Bytes of a word that select its shard: words of a query match only equal words, and those with which they share at
/// least these bytes.
const PREFIX: usize = 4;

/// A memory with its words.
pub(super) struct Counted {
    pub(super) text: Text,
    words: BTreeMap<String, Count>,
}

/// A memory in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) number: u64,
    /// Number of the change that replaced it last; 0 if none did.
    pub(crate) version: u64,
    /// Number of words.
    pub(crate) length: u32,
}

/// Occurrences of a word in a memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) body: u32,
    /// In title and tags.
    pub(super) heading: u32,
}

/// A value that is damaged or has another format.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

impl Counted {
    pub(super) fn new(number: u64, version: u64, memory: &Searched<'_>) -> Self {
        let mut words: BTreeMap<String, Count> = BTreeMap::new();
        let mut length = 0;
        let mut count = |text: &str, in_heading: bool| {
            words::each(text, |word| {
                length += 1;
                if !words.contains_key(word) {
                    words.insert(word.to_owned(), Count::default());
                }
                let count = words.get_mut(word).expect("inserted above");
                *(if in_heading {
                    &mut count.heading
                } else {
                    &mut count.body
                }) += 1;
            });
        };
        count(&memory.content, false);
        for heading in memory.headings() {
            count(heading, true);
        }
        let labels = memory.kind.iter().map(|kind| kind_term(kind));
        for term in labels.chain(memory.tags.iter().map(|tag| tag_term(tag))) {
            words.insert(term, Count { body: 1, heading: 0 });
        }
        Self {
            text: Text {
                number,
                version,
                length,
            },
            words,
        }
    }
}

/// Terms of a kind and a tag. No word begins with a control character.
pub(super) fn kind_term(kind: &str) -> String {
    format!("\u{1}k{kind}")
}

pub(super) fn tag_term(tag: &str) -> String {
    format!("\u{1}t{tag}")
}

/// Shard in which a word of a query, or a term, finds all words that match it.
pub(super) fn shard_of(wanted: &str) -> usize {
    let prefix = match words::unspaced(wanted).next() {
        Some(first) => first.as_bytes(),
        None if wanted.starts_with('\u{1}') => wanted.as_bytes(),
        None => &wanted.as_bytes()[..wanted.len().min(PREFIX)],
    };
    checksum(prefix) as usize % SHARDS
}

/// Shards of a word of a memory. A pair of characters of a script without spaces is found by each of them.
fn shards_of(word: &str) -> impl Iterator<Item = usize> {
    let first = shard_of(word);
    let last = words::unspaced(word).last().map(shard_of);
    [Some(first), last.filter(|last| *last != first)]
        .into_iter()
        .flatten()
}

/// Key of the memories of a segment.
pub(crate) fn texts_key(segment: u64) -> String {
    format!("i/{segment}/texts")
}

pub(super) fn shard_key(segment: u64, shard: usize) -> String {
    format!("i/{segment}/{shard}")
}

/// All keys of a segment.
pub(super) fn keys(segment: u64) -> Vec<String> {
    let shards = (0..SHARDS).map(|shard| shard_key(segment, shard));
    shards.chain([texts_key(segment)]).collect()
}

/// Keys and values of a segment of these memories; `None` if one would be too large.
pub(super) fn encode(segment: u64, memories: &[Counted]) -> Option<Vec<(String, Vec<u8>)>> {
    let mut texts = Encoder::new();
    let mut last = 0;
    let mut words: BTreeMap<&str, Vec<(usize, Count)>> = BTreeMap::new();
    for (at, Counted { text, words: of_text }) in memories.iter().enumerate() {
        texts.number(text.number - last);
        texts.number(text.version);
        texts.number(text.length.into());
        last = text.number;
        for (word, count) in of_text {
            words.entry(word).or_default().push((at, *count));
        }
    }
    let mut shards: Vec<Encoder> = (0..SHARDS).map(|_| Encoder::new()).collect();
    for (word, counts) in words {
        let mut postings = Vec::new();
        let mut next = 0;
        for (at, Count { body, heading }) in counts {
            number(&mut postings, (at - next) as u64);
            number(&mut postings, u64::from(body) << 1 | u64::from(heading > 0));
            if heading > 0 {
                number(&mut postings, heading.into());
            }
            next = at + 1;
        }
        for shard in shards_of(word) {
            shards[shard].bytes(word.as_bytes());
            shards[shard].bytes(&postings);
        }
    }
    let shards = shards.into_iter().enumerate();
    let mut pairs: Vec<_> = shards
        .map(|(shard, value)| (shard_key(segment, shard), value.finish()))
        .collect();
    pairs.push((texts_key(segment), texts.finish()));
    let fits = |(_, value): &(String, Vec<u8>)| value.len() <= MAX_VALUE;
    pairs.iter().all(fits).then_some(pairs)
}

/// Memories of a segment, in ascending order.
pub(crate) fn texts(value: &[u8]) -> Result<Vec<Text>, Damaged> {
    let mut rest = body(value)?;
    let mut texts: Vec<Text> = Vec::new();
    while !rest.is_empty() {
        let step = read_number(&mut rest)?;
        let last = texts.last().map_or(0, |text| text.number);
        if step == 0 && !texts.is_empty() {
            return Err(Damaged);
        }
        texts.push(Text {
            number: last.checked_add(step).ok_or(Damaged)?,
            version: read_number(&mut rest)?,
            length: read_number(&mut rest)?.try_into().map_err(|_| Damaged)?,
        });
    }
    Ok(texts)
}

/// Calls `each` with every word of a shard for which `wants` is true, and a memory, by its place in the segment, that
/// has it.
pub(super) fn each_posting<T>(
    value: &[u8],
    texts: usize,
    mut wants: impl FnMut(&str) -> Option<T>,
    mut each: impl FnMut(&T, usize, Count),
) -> Result<(), Damaged> {
    let mut rest = body(value)?;
    while !rest.is_empty() {
        let word = std::str::from_utf8(read_bytes(&mut rest)?).map_err(|_| Damaged)?;
        let mut postings = read_bytes(&mut rest)?;
        let Some(wanted) = wants(word) else { continue };
        let mut next = 0_usize;
        while !postings.is_empty() {
            let skipped = usize::try_from(read_number(&mut postings)?).map_err(|_| Damaged)?;
            let at = next
                .checked_add(skipped)
                .filter(|at| *at < texts)
                .ok_or(Damaged)?;
            let bits = read_number(&mut postings)?;
            let heading = match bits & 1 {
                0 => 0,
                _ => read_number(&mut postings)?,
            };
            let count = Count {
                body: (bits >> 1).try_into().map_err(|_| Damaged)?,
                heading: heading.try_into().map_err(|_| Damaged)?,
            };
            each(&wanted, at, count);
            next = at + 1;
        }
    }
    Ok(())
}

struct Encoder(Vec<u8>);

impl Encoder {
    fn new() -> Self {
        Self(vec![0; HEADER])
    }

    fn number(&mut self, value: u64) {
        number(&mut self.0, value);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn finish(mut self) -> Vec<u8> {
        let sum = checksum(&self.0[HEADER..]);
        self.0[0] = FORMAT;
        self.0[1..HEADER].copy_from_slice(&sum.to_le_bytes());
        self.0
    }
}

fn number(bytes: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
}

/// Content of a value behind its header.
fn body(value: &[u8]) -> Result<&[u8], Damaged> {
    let (header, body) = value.split_at_checked(HEADER).ok_or(Damaged)?;
    let is_whole = header[0] == FORMAT && header[1..] == checksum(body).to_le_bytes();
    is_whole.then_some(body).ok_or(Damaged)
}

fn read_number(rest: &mut &[u8]) -> Result<u64, Damaged> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, tail) = rest.split_first().ok_or(Damaged)?;
        *rest = tail;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Damaged)
}

fn read_bytes<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Damaged> {
    let length = usize::try_from(read_number(rest)?).map_err(|_| Damaged)?;
    let (bytes, tail) = rest.split_at_checked(length).ok_or(Damaged)?;
    *rest = tail;
    Ok(bytes)
}

/// FNV-1a, with 32 bits.
fn checksum(bytes: &[u8]) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(number: u64, content: &str, title: &str) -> Counted {
        let memory = Searched {
            content: content.into(),
            title: Some(title.into()),
            kind: Some("fact".into()),
            tags: vec!["ops".into()],
            version: 0,
        };
        Counted::new(number, number * 1_000, &memory)
    }

    #[test]
    fn segment_is_read_as_it_was_written() {
        let memories = [counted(3, "deploy deploy 東京", "Deploy"), counted(300, "x", "y")];
        let pairs: BTreeMap<String, Vec<u8>> = encode(9, &memories).unwrap().into_iter().collect();
        assert_eq!(pairs.keys().cloned().collect::<Vec<_>>(), {
            let mut all = keys(9);
            all.sort();
            all
        });
        let texts = texts(&pairs["i/9/texts"]).unwrap();
        assert_eq!(texts, memories.each_ref().map(|memory| memory.text));
        assert_eq!((texts[0].length, texts[1].version), (5, 300_000));
        let found = |shard: usize, wanted: &str| {
            let mut found = Vec::new();
            let wants = |word: &str| (word == wanted).then_some(());
            each_posting(&pairs[&shard_key(9, shard)], 2, wants, |(), at, count| {
                found.push((at, count.body, count.heading));
            })
            .unwrap();
            found
        };
        assert_eq!(found(shard_of("deploy"), "deploy"), [(0, 2, 1)]);
        assert_eq!(found(shard_of("deploying"), "deploy"), [(0, 2, 1)]);
        for character in ["東", "京"] {
            assert_eq!(found(shard_of(character), "東京"), [(0, 1, 0)]);
        }
        let term = tag_term("ops");
        assert_eq!(
            found(shard_of(&term), &term),
            [(0, 1, 1), (1, 1, 1)].map(|(at, body, _)| (at, body, 0))
        );
    }

    #[test]
    fn no_damaged_byte_is_accepted() {
        let pairs = encode(9, &[counted(3, "some words of it", "t")]).unwrap();
        for (key, value) in pairs {
            for at in 0..value.len() {
                let mut damaged = value.clone();
                damaged[at] ^= 0x10;
                assert!(body(&damaged).is_err(), "{key}, byte {at}");
                assert!(body(&value[..at]).is_err(), "{key}, {at} bytes");
            }
        }
    }

    #[test]
    fn value_beyond_its_limit_makes_no_segment() {
        let words = |count: usize| (0..count).map(|i| format!("same{i:08} ")).collect::<String>();
        assert!(encode(1, &[counted(1, &words(4_000), "t")]).is_some());
        assert!(encode(1, &[counted(1, &words(4_800), "t")]).is_none());
    }
}
