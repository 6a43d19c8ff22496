use toolcell_core::inert::{MAX_MARKS, is_hidden};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::escape::{Filter, inert, inert_line};
use super::layout::{GUTTER, Item, Layout, Width, framed, push};
use super::names::{Lookalike, lookalike, quoted};

/// Returns the physical lines of a terminal that draws characters with the widths of `width` and wraps.
pub(in crate::ui::terminal) fn physical(
    text: &str,
    columns: usize,
    width: impl Fn(char) -> usize,
) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut column = 0;
    for c in text.chars() {
        if c == '\n' {
            lines.push(String::new());
            column = 0;
            continue;
        }
        let taken = width(c);
        if column + taken > columns {
            lines.push(String::new());
            column = 0;
        }
        lines.last_mut().unwrap().push(c);
        column += taken;
    }
    assert_eq!(lines.pop().as_deref(), Some(""), "the last line is ended");
    lines
}

/// Terminals disagree about marks: some draw them on the base, others next to it. Some draw the letters of flags as wide.
pub(in crate::ui::terminal) const TERMINALS: [fn(char) -> usize; 3] = [
    |c| c.width().unwrap_or(1),
    |c| c.width().unwrap_or(1).max(1),
    |c| match c {
        '\u{1f1e6}'..='\u{1f1ff}' => 2,
        _ => c.width().unwrap_or(1),
    },
];

/// Returns the first character that a terminal executes or hides. Joiners are kept where they join.
pub(in crate::ui::terminal) fn first_obeyed(shown: &str) -> Option<char> {
    let is_obeyed = |c: &char| (c.is_control() && *c != '\n') || is_hidden(*c);
    shown
        .chars()
        .filter(|c| !matches!(c, '\u{200d}' | '\u{200c}'))
        .find(is_obeyed)
}

#[track_caller]
pub(in crate::ui::terminal) fn assert_framed(text: &str, columns: usize) {
    let shown = framed(text, Width::of(columns));
    for terminal in TERMINALS {
        for line in physical(&shown, columns, terminal) {
            assert!(
                line.starts_with(GUTTER),
                "{columns} columns: {line:?} of {text:?}"
            );
        }
    }
    assert_eq!(first_obeyed(&shown), None, "{text:?}");
}

/// Generates text of difficult characters from a seed.
fn trouble(mut seed: u64) -> String {
    const PIECES: [&str; 30] = [
        "y",
        " ",
        "\n",
        "\r\n",
        "\r",
        "\t",
        "\u{1b}[2J",
        "│ ",
        "? ",
        "漢字",
        "\u{301}",
        "e\u{301}\u{302}",
        "\u{200d}",
        "👩\u{200d}🔬",
        "👍🏽",
        "🇩🇪",
        "\u{1f1e9}",
        "❤\u{fe0f}",
        "\u{fe0f}",
        "\u{202e}",
        "\u{200b}",
        "\u{9b}31m",
        "ᄒ",
        "ᅡ",
        "\u{e000}",
        "\u{378}",
        "हिन्दी",
        "long-word-without-a-blank",
        "\u{20dd}",
        "\u{3000}",
    ];
    let mut text = String::new();
    for _ in 0..60 {
        // An LCG is enough to vary the order.
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let pick = usize::try_from(seed >> 33).unwrap();
        text.push_str(&PIECES[pick % PIECES.len()].repeat(1 + (pick >> 8) % 3));
    }
    text
}

#[test]
fn every_physical_line_of_foreign_text_has_gutter() {
    for columns in (10..=40).chain([79, 80, 200]) {
        for seed in 0..8 {
            assert_framed(&trouble(seed * 977 + columns as u64), columns);
        }
        for flood in [
            "\u{301}",
            "👩\u{200d}",
            "ᄒ",
            "🇩",
            "漢",
            "\u{600}",
            "\u{93e}",
            "क\u{94d}",
            "\t",
            " ",
            "\r",
        ] {
            assert_framed(&flood.repeat(100), columns);
            assert_framed(&format!("a{}", flood.repeat(100)), columns);
        }
    }
}

#[test]
fn every_character_is_framed_at_every_narrow_width() {
    let every: String = (0..=0x10_ffff).filter_map(char::from_u32).collect();
    for columns in [10, 23] {
        assert_framed(&every, columns);
    }
}

#[test]
fn characters_of_ambiguous_width_count_as_two_where_they_are() {
    let width = Width {
        columns: Some(20),
        is_ambiguous_wide: true,
    };
    let shown = framed(&"вопрос α ± ─ ".repeat(40), width);
    for line in physical(&shown, 20, |c| c.width_cjk().unwrap_or(1)) {
        assert!(line.starts_with(GUTTER), "{line:?}");
    }
}

#[test]
fn mixed_line_wraps_to_gutter_and_own_line_to_blanks() {
    let lay = |own: &str, foreign: &str| {
        let mut layout = Layout::new(Width::of(24));
        let mut out = String::new();
        let mut emit = |item: Item<'_>| push(&mut out, item);
        layout.own(own, &mut emit);
        layout.foreign(foreign, &mut emit);
        layout.end_line(&mut emit);
        out
    };
    assert_eq!(
        lay("error: ", "first second\nthird"),
        "error: first second\n  │ third\n"
    );
    assert_eq!(
        lay("error: ", "first second third"),
        "error: first second \n  │ third\n"
    );
    assert_eq!(
        lay("error: one two three four", ""),
        "error: one two three \n  four\n"
    );
    assert_eq!(lay("", "? fake"), "│ ? fake\n");
    assert_eq!(lay("  ", "? fake"), "  │ ? fake\n");
    assert_eq!(lay("", "ends\n"), "│ ends\n");
    assert_eq!(lay("", "a\n\nb"), "│ a\n  │ \n  │ b\n");
}

#[test]
fn tabs_become_blanks_up_to_next_stop() {
    assert_eq!(framed("a\tb", Width::of(80)), "│ a     b\n");
}

#[test]
fn control_sequences_are_shown_and_not_sent() {
    for (text, shown) in [
        ("plain\n\ttext", "plain\n\ttext"),
        ("\u{1b}[2J\u{1b}[31mred", "␛[2J␛[31mred"),
        ("\u{1b}]52;c;cm0gLXJm\u{7}", "␛]52;c;cm0gLXJm␇"),
        ("\u{9b}31m \u{90}", "\\u{9b}31m \\u{90}"),
        ("safe\rrm -rf", "safe␍rm -rf"),
        ("dos\r\nline", "dos\r\nline"),
        ("end\r", "end␍"),
        ("a\u{8}b\u{0}c\u{7f}", "a␈b␀c␡"),
    ] {
        assert_eq!(inert(text), shown, "{text:?}");
    }
    assert_eq!(inert_line("a\r\n\tb"), "a␍␊␉b");
}

#[test]
fn characters_that_hide_or_reorder_text_are_shown() {
    for (text, shown) in [
        ("a\u{202e}txt.exe", "a\\u{202e}txt.exe"),
        ("\u{2066}x\u{2069}", "\\u{2066}x\\u{2069}"),
        ("a\u{200b}b", "a\\u{200b}b"),
        ("a\u{200d}b", "a\\u{200d}b"),
        ("\u{feff}x", "\\u{feff}x"),
        ("x\u{e0041}\u{e007f}", "x\\u{e0041}\\u{e007f}"),
        ("é\u{200d}\u{200d}é", "é\\u{200d}\\u{200d}é"),
        ("a\u{fe0f}", "a\\u{fe0f}"),
        ("❤\u{fe0f}\u{fe0f}", "❤\u{fe0f}\\u{fe0f}"),
        (
            "\u{e000}\u{378}\u{fdd0}\u{2800}",
            "\\u{e000}\\u{378}\\u{fdd0}\\u{2800}",
        ),
    ] {
        assert_eq!(inert(text), shown, "{text:?}");
    }
}

#[test]
fn combining_marks_beyond_limit_are_escaped() {
    let most = format!("e{}", "\u{301}".repeat(MAX_MARKS));
    assert_eq!(inert(&most), most);
    assert_eq!(inert(&format!("{most}\u{302}")), format!("{most}\\u{{302}}"));
    assert_eq!(inert("\u{301}x"), "\\u{301}x");
    assert_eq!(inert(" \u{301}"), " \\u{301}");
    assert_eq!(inert("\n\u{301}"), "\n\\u{301}");
}

#[test]
fn scripts_that_need_joiners_or_marks_keep_them() {
    for text in [
        "👩\u{200d}🔬",
        "👩🏻\u{200d}❤\u{fe0f}\u{200d}💋\u{200d}👨🏼",
        "می\u{200c}خواهم",
        "❤\u{fe0f}",
        "1\u{fe0f}\u{20e3}",
        "naïve ñ 漢字",
        "ế = e\u{302}\u{301}",
        "한국 하\u{1161}",
        "हिन्दी ไทย שָׁלוֹם",
    ] {
        assert_eq!(inert(text), text);
    }
}

#[test]
fn text_in_pieces_is_as_inert_as_the_whole() {
    for seed in 0..40 {
        let text = trouble(seed);
        let mut filter = Filter::default();
        let mut pieces: String = text.chars().map(|c| filter.push(&c.to_string())).collect();
        pieces.push_str(&filter.finish());
        assert_eq!(pieces, inert(&text));
    }
}

#[test]
fn confusable_names_are_told_apart() {
    for (name, found) in [
        ("notes/paypal.txt", None),
        ("naïve/straße", None),
        ("документы/план", None),
        ("日本語のファイル.txt", None),
        ("p\u{430}ypal.com", Some(Lookalike::MixedScripts)),
        ("\u{440}\u{430}\u{443}", Some(Lookalike::LooksLike("pay".into()))),
        ("a\u{a0}b", Some(Lookalike::OddBlank)),
        ("https://xn--pypal-4ve.com/x", Some(Lookalike::Punycode)),
        ("xn--", None),
    ] {
        assert_eq!(lookalike(name), found, "{name}");
    }
}

#[test]
fn quoted_name_stays_in_its_quotes_and_on_its_line() {
    assert_eq!(quoted("a` b\n", 60), "a\\u{60} b␊");
    assert_eq!(quoted("p\u{430}ypal", 60), "p\\u{430}ypal");
    assert_eq!(quoted("план", 60), "план");
    let edge = "x".repeat(40);
    assert_eq!(quoted(&edge, 40), edge);
    let cut = quoted(&format!("{edge}y"), 40);
    assert_eq!(cut, format!("{}…[11 more]…{}y", "x".repeat(20), "x".repeat(9)));
    assert!(cut.width() <= 40 + 12);
}
