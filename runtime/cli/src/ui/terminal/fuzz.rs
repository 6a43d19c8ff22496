//! Fuzz target for the layout of foreign text. See `tests/fuzz` for the runner.

#[path = "../../../../../tests/fuzz/mod.rs"]
mod runner;

use runner::Target;

use super::foreign::layout::{GUTTER, Item, Layout, Width, push};
use super::foreign::names::{is_plain, quoted};
use super::foreign::tests::{TERMINALS, assert_framed, first_obeyed, physical};
use super::screen::Screen;
use super::size::Size;

/// Character of own text; foreign text never contains it, so that each line shows who wrote its start.
const OWN: char = '#';

/// Separator of the texts in an input: not a byte of UTF-8.
const BREAK: u8 = 0xff;

/// Alternates own and foreign texts: each line begins with own text, or with blanks and the gutter.
fn check_mixture(texts: &[String], columns: usize) {
    let mut layout = Layout::new(Width::of(columns));
    let mut shown = String::new();
    let mut emit = |item: Item<'_>| push(&mut shown, item);
    for (number, text) in texts.iter().enumerate() {
        let own: String = text.chars().map(|c| if c == ' ' { ' ' } else { OWN }).collect();
        if number % 2 == 1 {
            layout.own(&own, &mut emit);
        }
        layout.foreign(text, &mut emit);
        if number % 3 == 2 {
            layout.end_line(&mut emit);
        }
    }
    layout.end_line(&mut emit);
    for terminal in TERMINALS {
        for line in physical(&shown, columns, terminal) {
            let begins = line.trim_start_matches(' ');
            assert!(
                begins.is_empty() || begins.starts_with(OWN) || begins.starts_with(GUTTER.trim_end()),
                "{columns} columns: {line:?} of {texts:?}"
            );
        }
    }
}

/// Text in pieces is framed and has the same content as the whole. It may wrap elsewhere.
fn check_pieces(text: &str, columns: usize) {
    let shown = |pieces: &mut dyn Iterator<Item = &str>| {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, false, Size::fixed(columns));
        pieces.for_each(|piece| screen.stream(piece).unwrap());
        screen.end_stream().unwrap();
        screen.end_open_line().unwrap();
        String::from_utf8(out).unwrap()
    };
    let whole = shown(&mut [text].into_iter());
    let pieces = shown(&mut text.split_inclusive(|c: char| !c.is_alphanumeric()));
    for line in TERMINALS
        .iter()
        .flat_map(|terminal| physical(&pieces, columns, terminal))
    {
        assert!(
            line.starts_with(GUTTER),
            "{columns} columns: {line:?} of {text:?}"
        );
    }
    let words = |shown: &str| shown.replace(['\n', '│', ' '], "");
    assert_eq!(words(&pieces), words(&whole), "{columns} columns, {text:?}");
}

/// A name stays on its line and between its backticks.
fn check_name(name: &str) {
    let shown = quoted(name, 64);
    assert!(!shown.contains(['`', '\n', '\t']), "{name:?}: {shown:?}");
    assert_eq!(first_obeyed(&shown), None, "{name:?}");
    assert!(!is_plain(name) || shown == name, "{name:?}: {shown:?}");
}

fn check(input: &[u8]) -> String {
    let (width, input) = input.split_first().unwrap_or((&0, &[]));
    let columns = 10 + usize::from(*width) % 120;
    let mut texts = Vec::new();
    for text in input.split(|byte| *byte == BREAK) {
        let text = String::from_utf8_lossy(text).replace(OWN, "%");
        if !text.is_empty() {
            assert_framed(&text, columns);
            check_pieces(&text, columns);
        }
        check_name(&text);
        texts.push(super::foreign::escape::inert(&text));
    }
    check_mixture(&texts, columns);
    let longest = texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
    format!(
        "{} texts, {} lines",
        texts.len().min(9),
        (longest / columns).min(9)
    )
}

#[test]
fn fuzz_terminal_frames_foreign_text() {
    let tried = Target::new("terminal", 3_000)
        .seeds([
            "\u{1e}? Allow this? [y]es\r\n\u{1b}[2Jplain",
            "\u{0}漢字 e\u{301}\u{302} 👩\u{200d}🔬 🇩🇪 ❤\u{fe0f} ᄒ",
            "\u{8}\u{202e}exe.txt\u{200b} `a` \t हिन्दी",
        ])
        .seeds([b"\x10one two three\n\xffown words\xffmore\nof it\xff\n\n\xff \xffend".to_vec()])
        .words(&[
            "\n",
            "\r\n",
            "\r",
            "\t",
            " ",
            "│ ",
            "? ",
            "`",
            "\u{1b}[2J",
            "\u{9b}",
            "\u{202e}",
            "\u{200d}",
            "\u{301}",
            "漢",
            "👩\u{200d}🔬",
            "🇩",
            "\u{fe0f}",
            "\u{3000}",
            "ᄒ",
            "ᅡ",
            "क\u{94d}",
            "\u{20dd}",
            "аpple",
        ])
        .run(check);
    assert!(tried.outcomes.len() >= 3, "{tried:?}");
}
