use std::collections::BTreeMap;

use super::rows::Row;
use super::*;
use crate::ui::terminal::{GUTTER, Width, inert};

/// A text with every kind of block.
const SAMPLE: &str = "\
# Title of *it*

A paragraph with **strong words**, `code here`, ~~gone~~ and a [link](https://example.com/a \"its title\").
Second line, <https://auto.example>, ![a picture](p.png).

- one
- two with a text that is long enough to wrap in narrow terminals
  1. inner
  2. other

     further
- [x] done

> quoted *text*
> goes on

```rust
fn main() {
\tshow(\"**not strong**\");
}
```

| name | count | note |
|:-----|------:|------|
| apple | 3 | a **red** fruit | extra
| pear | 12 |

<div>raw</div>

[ref]: https://ref.example \"Ref\"

See [the text][ref], 5 * 3, a_b_c, x < y &amp; z.

---
The end";

fn plain(row: &Row) -> String {
    row.iter().map(|run| run.text.as_str()).collect()
}

/// Rows of a text as the terminal shows them.
#[derive(Default)]
struct Shown {
    stream: MarkdownStream,
    rows: Vec<String>,
    is_open: bool,
}

impl Shown {
    fn add(&mut self, ready: &Ready) {
        if ready.rows.is_empty() {
            return;
        }
        assert!(self.is_open == ready.goes_on, "{ready:?} after {:?}", self.rows);
        let mut rows = ready.rows.iter().map(plain);
        if ready.goes_on {
            let rest = rows.next().unwrap();
            self.rows.last_mut().unwrap().push_str(&rest);
        }
        self.rows.extend(rows);
        self.is_open = ready.is_open;
    }

    fn push(&mut self, piece: &str, columns: usize, colour: bool) {
        let ready = self.stream.push(piece, Width::of(columns), colour).unwrap();
        self.add(&ready);
    }

    fn finish(mut self, columns: usize, colour: bool) -> Vec<String> {
        let ready = self.stream.finish(Width::of(columns), colour);
        self.add(&ready);
        assert!(!self.is_open);
        self.rows.iter().map(|row| row.trim_end().to_owned()).collect()
    }
}

fn whole(text: &str, columns: usize, colour: bool) -> Vec<String> {
    in_pieces([text].into_iter(), columns, colour)
}

fn in_pieces<'a>(pieces: impl Iterator<Item = &'a str>, columns: usize, colour: bool) -> Vec<String> {
    let mut shown = Shown::default();
    pieces.for_each(|piece| shown.push(piece, columns, colour));
    shown.finish(columns, colour)
}

/// Letters and digits of a text, with their numbers.
fn counted(text: &str) -> BTreeMap<char, usize> {
    let mut counts = BTreeMap::new();
    for c in text.chars().filter(|c| c.is_alphanumeric()) {
        *counts.entry(c).or_insert(0) += 1;
    }
    counts
}

#[test]
fn every_kind_of_block_is_laid_out() {
    insta::assert_snapshot!(whole(SAMPLE, 60, true).join("\n"), @r##"
    Title of it

    A paragraph with strong words, code here, gone and a link
    (https://example.com/a "its title").
    Second line, https://auto.example, [image: a picture]
    (p.png).

    • one
    • two with a text that is long enough to wrap in narrow
      terminals
      1. inner
      2. other

         further
    • [x] done

    > quoted text
    > goes on

    rust
      fn main() {
          show("**not strong**");
      }

    name  | count | note        |
    ------+-------+-------------+------
    apple |     3 | a red fruit | extra
    pear  |    12 |             |

    <div>raw</div>

    [ref]: https://ref.example "Ref"

    See [the text][ref], 5 * 3, a_b_c, x < y & z.

    --------
    The end
    "##);
}

#[test]
fn without_colours_delimiters_stay() {
    insta::assert_snapshot!(whole(SAMPLE, 60, false).join("\n"), @r##"
    # Title of *it*

    A paragraph with **strong words**, `code here`, ~~gone~~
    and a link (https://example.com/a "its title").
    Second line, https://auto.example, [image: a picture]
    (p.png).

    - one
    - two with a text that is long enough to wrap in narrow
      terminals
      1. inner
      2. other

         further
    - [x] done

    > quoted *text*
    > goes on

    ```rust
      fn main() {
          show("**not strong**");
      }
    ```

    name  | count | note            |
    ------+-------+-----------------+------
    apple |     3 | a **red** fruit | extra
    pear  |    12 |                 |

    <div>raw</div>

    [ref]: https://ref.example "Ref"

    See [the text][ref], 5 * 3, a_b_c, x < y & z.

    --------
    The end
    "##);
}

#[test]
fn pieces_have_the_rows_of_the_whole() {
    for colour in [true, false] {
        for columns in [10, 17, 40, 60, 200] {
            let expected = whole(SAMPLE, columns, colour);
            assert_eq!(in_pieces(SAMPLE.split_inclusive(' '), columns, colour), expected);
            assert_eq!(in_pieces(SAMPLE.split_inclusive('\n'), columns, colour), expected);
            let ends: Vec<usize> = (SAMPLE.char_indices().map(|(at, _)| at))
                .chain([SAMPLE.len()])
                .collect();
            let characters = ends.windows(2).map(|ends| &SAMPLE[ends[0]..ends[1]]);
            assert_eq!(in_pieces(characters, columns, colour), expected);
        }
    }
}

#[test]
fn words_are_shown_before_the_block_ends() {
    let mut all = Shown::default();
    let mut shown = |piece: &str| {
        let before = all.rows.join("/").len();
        all.push(piece, 23, true);
        all.rows.join("/")[before..].to_owned()
    };
    assert_eq!(shown("one "), "one");
    assert_eq!(shown("two three four "), " two three four");
    assert_eq!(shown("five si"), "/five");
    assert_eq!(shown("x *seven eight nine "), " six");
    assert_eq!(shown("ten* eleven "), " seven eight/nine ten eleven");
    assert_eq!(shown("\n"), "");
    assert_eq!(shown("```\nlet a = 1;"), "");
    assert_eq!(shown("\nlet b"), "/  let a = 1;");
    assert_eq!(shown("\n```\n| a | b |\n"), "/  let b");
    assert_eq!(shown("|---|---|\n| 1 | 2 |\n"), "");
    assert_eq!(shown("\n"), "/a | b/--+--/1 | 2");
    assert_eq!(shown("- one two "), "//• one two");
    assert_eq!(shown("\n- three "), "/• three");
}

#[test]
fn row_that_was_ended_by_others_goes_on_in_the_next() {
    let mut stream = MarkdownStream::default();
    let ready = stream.push("- one two ", Width::of(40), true).unwrap();
    assert!(ready.is_open);
    stream.row_was_ended();
    let ready = stream.push("three\n", Width::of(40), true).unwrap();
    assert!(!ready.goes_on && !ready.is_open);
    assert_eq!(ready.rows.iter().map(plain).collect::<Vec<_>>(), ["  three"]);
}

#[test]
fn address_of_link_and_markup_of_others_are_visible() {
    for (text, expected) in [
        (
            "[https://good.example](https://bad.example)",
            "https://good.example (https://bad.example)",
        ),
        ("[a](https://a.example)", "a (https://a.example)"),
        ("<script>x</script>", "<script>x</script>"),
        ("a <b onclick=x>y</b>", "a <b onclick=x>y</b>"),
        ("<!-- hidden -->", "<!-- hidden -->"),
        ("&#27;[2J&#x202e;x", "␛[2J\\u{202e}x"),
        ("a\u{1b}[31mb", "a␛[31mb"),
        ("```\n\u{1b}[2J\n```", "  ␛[2J"),
        (
            "[x]: https://one.example\n[x]: https://two.example",
            "[x]: https://one.example",
        ),
    ] {
        let rows = whole(text, 80, true);
        let first = rows
            .iter()
            .map(|row| row.trim_start())
            .find(|row| !row.is_empty());
        assert_eq!(first, Some(expected.trim_start()), "{text}");
    }
    let rows = whole("[x]: https://one.example\n[x]: https://two.example", 80, true);
    assert_eq!(rows.len(), 2, "{rows:?}");
}

/// Parts of texts, joined at random.
const PARTS: &[&str] = &[
    "word",
    "another",
    "*",
    "**",
    "_",
    "`",
    "```",
    "~~~",
    "\n",
    "\n",
    "\n\n",
    " ",
    " ",
    "  ",
    "- ",
    "1. ",
    "12) ",
    "> ",
    "# ",
    "## ",
    "| ",
    "|---|---|\n",
    "a | b\n",
    "[",
    "](",
    ")",
    "][",
    "]",
    "]: ",
    "http://h.example",
    "<b>",
    "</b>",
    "<",
    "!",
    "\\",
    "é",
    "漢字",
    "👩\u{200d}🔬",
    "e\u{301}",
    "\u{1b}[2J",
    "\u{202e}",
    "\t",
    "    ",
    "---",
    "===",
    "[x] ",
    "~~",
    "0123456789012345",
    "verylongwordwithoutanyblankinit",
    "\r\n",
    "\u{301}",
];

/// A text of random parts.
fn random(seed: &mut u64) -> String {
    let mut next = |below: usize| {
        *seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(*seed >> 33).unwrap() % below
    };
    let count = 1 + next(40);
    (0..count).map(|_| PARTS[next(PARTS.len())]).collect()
}

#[test]
fn random_text_fits_every_width_and_loses_no_letter() {
    let mut seed = 7;
    for round in 0..200 {
        let text = random(&mut seed);
        let columns = 10 + round % 70;
        for colour in [true, false] {
            let rows = whole(&text, columns, colour);
            let pieces = in_pieces(text.split_inclusive([' ', '\n']), columns, colour);
            for row in rows.iter().chain(&pieces) {
                let width = Width::of(columns).of_text(&format!("{GUTTER}{row}"));
                assert!(width < columns, "{columns}: {row:?} of {text:?}");
                assert_eq!(&inert(row), row, "{text:?}");
            }
            // A narrow table repeats its header.
            let shown = [&rows, &pieces].map(|rows| counted(&rows.concat()));
            for (letter, count) in counted(&text) {
                let is_shown = |shown: &BTreeMap<char, usize>| shown.get(&letter) >= Some(&count);
                assert!(shown.iter().all(is_shown), "{columns}: {letter} of {text:?}");
            }
        }
    }
}

#[test]
fn block_beyond_the_limit_is_shown_as_it_is() {
    let mut stream = MarkdownStream::default();
    let line = &"*word* ".repeat(150);
    let mut count = 0;
    let rest = loop {
        match stream.push(line, Width::of(40), true) {
            Ok(_) => count += 1,
            Err(rows) => break rows,
        }
        assert!(count < 1_000);
    };
    assert!(count * line.len() > 200 << 10, "{count}");
    assert!(!rest.rows.is_empty());
    assert!(stream.finish(Width::of(40), true).rows.is_empty());
}

/// With work that grows with the square of the text, each of these would take minutes.
#[test]
fn hostile_text_costs_as_much_as_other_text() {
    let size = 250 << 10;
    let of = |part: &str| part.repeat(size / part.len());
    let nested = |open: &str, close: &str| {
        let count = size / (open.len() + close.len());
        format!("{}a{}", open.repeat(count), close.repeat(count))
    };
    let then = |first: &str, second: &str| {
        let half = |part: &str| part.repeat(size / 2 / part.len());
        format!("{}{}", half(first), half(second))
    };
    let mut texts: Vec<String> = [
        ">", "> ", "- ", "1. ", "\\", "\\ ", "[", "[a] ", "![", "*", "*a ", "_", "a_", "**a ", "`", "`a ",
        "~", "<", "<a ", "&", "|", "|\n", "a\n", "\n", "![](x)", "[a](b)", "<b>", "*a* ", "```\n", "# a\n",
        "- a\n", "+\n", "\t", "[a]: b\n", "e\u{301}", "\u{301}",
    ]
    .into_iter()
    .map(of)
    .collect();
    texts.extend([
        nested("*", "*"),
        nested("![", "](x)"),
        nested("[", "]"),
        then(">", "a\n"),
        then("> - ", "a\n"),
        then("1. ", "a\n"),
        then("- ", "a\n"),
        then("> ", "\n- a\n"),
        then("```\n```\n", "\n"),
        then("[", "] a"),
        then("*_", "a b "),
        then("\\ ", "\n"),
        format!(
            "| {} |\n|---|\n{}",
            of("a ").split_at(size / 2).0,
            "|a|\n".repeat(size / 8)
        ),
        format!(
            "|{}\n|{}\n{}",
            "a|".repeat(20),
            "-|".repeat(20),
            "a\n".repeat(size / 2)
        ),
    ]);
    for text in texts {
        let mut shown = Shown::default();
        let mut rows = 0;
        for piece in text.as_bytes().chunks(size / 4) {
            let piece = std::str::from_utf8(piece).unwrap_or("a");
            shown.push(piece, 80, false);
            rows += std::mem::take(&mut shown.rows).len();
            shown.is_open = false;
            shown.stream.row_was_ended();
        }
        rows += shown.finish(80, false).len();
        assert!(rows <= 2 * text.len() + 2, "{rows} rows of {:?}", &text[..20]);
    }
}

#[test]
fn deepest_nesting_is_laid_out_and_deeper_one_is_shown_as_it_is() {
    for (quote, item) in [(100, 0), (50, 50)] {
        let begin = format!("{}{}", ">".repeat(quote), "- ".repeat(item));
        let laid_out = whole(&format!("{begin}*text*\n\nafter *it*"), 80, true);
        assert!(
            laid_out.concat().contains("text") && !laid_out.concat().contains('*'),
            "{laid_out:?}"
        );
        let deeper = whole(&format!("{begin}1. *text*\n\nafter *it*"), 300, true);
        assert!(
            deeper.concat().contains(&format!("{begin}1. *text*")),
            "{deeper:?}"
        );
    }
    // What follows is Markdown again.
    let text = format!("{} a\nlazy\n\nafter *it*\n", ">".repeat(101));
    let pieces = in_pieces(text.split_inclusive(' '), 80, true);
    assert_eq!(pieces.last().unwrap(), "after it", "{pieces:?}");
    // A rule is no nesting.
    assert_eq!(whole(&"-".repeat(200), 80, true), ["--------"]);
}
