//! Scanner of a streamed answer: ordinary text is emitted at once, a possible call is held back until it is decided.

use super::TextFormat;
use super::bare::bare;
use super::names::Offered;
use super::object::{Found, Written};
use super::syntax::{SYNTAXES, Syntax};
use super::value::end_of_value;

/// Markers around reasoning in an answer's text.
const THOUGHTS: &[(&str, &str)] = &[
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("[Thinking:", "]"),
];

/// Marker of a code block. Its content is shown; calls in it are examples.
const FENCE: &str = "```";

/// Languages of code blocks that may contain a call if they are the whole answer.
const CALL_BLOCKS: &[&str] = &["", "json", "tool_call", "tool_code", "tool", "xml"];

/// Length in bytes from which held-back text is parsed again only after it has grown by an eighth: otherwise a long
/// call in small deltas would be parsed once per delta.
const LONG: usize = 4096;

/// Item of a scanned answer.
#[derive(Debug, PartialEq)]
pub(super) enum Seen {
    Text(String),
    Reasoning(String),
    Call(Written),
}

/// State of the scanner.
#[derive(Clone, Copy)]
enum State {
    Open,
    /// In reasoning, up to this marker.
    Thought(&'static str),
    /// In a code block.
    Block,
}

/// Scanner of an answer.
pub(super) struct Scanner {
    offered: Offered,
    format: TextFormat,
    /// Text that is neither shown nor parsed yet.
    held: String,
    state: State,
    at_line_start: bool,
    /// True after a call; white space after it is not shown.
    is_after_call: bool,
    /// True while nothing was shown: the whole answer may be a call.
    is_pristine: bool,
    seen: Vec<Seen>,
    /// Length of the held text from which it is parsed again.
    look_again_at: usize,
}

/// End of ordinary text.
enum Mark {
    Call(&'static Syntax),
    Thought(&'static str, &'static str),
    Block,
    /// An object at the start of a line, if the requested format is a bare object.
    Object,
}

impl Scanner {
    pub(super) fn new(offered: Offered, format: TextFormat) -> Self {
        Self {
            offered,
            format,
            held: String::new(),
            state: State::Open,
            at_line_start: true,
            is_after_call: false,
            is_pristine: true,
            seen: Vec::new(),
            look_again_at: 0,
        }
    }

    /// Feeds the next delta.
    pub(super) fn feed(&mut self, text: &str) -> Vec<Seen> {
        self.held.push_str(text);
        while self.step(None) {}
        std::mem::take(&mut self.seen)
    }

    /// Ends the answer; `is_cut` if it was truncated.
    pub(super) fn finish(&mut self, is_cut: bool) -> Vec<Seen> {
        while self.step(Some(is_cut)) {}
        std::mem::take(&mut self.seen)
    }

    /// Takes one item from the held text; `false` if more text is needed. `end` is set if there is no more.
    fn step(&mut self, end: Option<bool>) -> bool {
        if self.is_after_call {
            let space = self.held.len() - self.held.trim_start().len();
            self.held.drain(..space);
        }
        if self.held.is_empty() {
            return false;
        }
        if self.offered.is_empty() {
            self.show(self.held.len());
            return true;
        }
        match self.state {
            State::Open if self.is_pristine && self.may_be_bare() => self.whole(end),
            State::Open => self.open(end),
            State::Thought(close) => {
                let (length, closed) = self.up_to(close, end);
                let text: String = self.held.drain(..length).collect();
                if !text.is_empty() {
                    self.seen.push(Seen::Reasoning(text));
                }
                if closed {
                    self.held.drain(..close.len());
                    self.state = State::Open;
                }
                closed
            }
            State::Block => {
                let (length, closed) = self.up_to(FENCE, end);
                self.show(if closed { length + FENCE.len() } else { length });
                if closed {
                    self.state = State::Open;
                }
                closed
            }
        }
    }

    /// Bytes before `mark`, and true if it was found. A possible prefix of it is kept.
    fn up_to(&self, mark: &str, end: Option<bool>) -> (usize, bool) {
        match self.held.find(mark) {
            Some(at) => (at, true),
            None if end.is_some() => (self.held.len(), false),
            None => (self.held.len() - beginning(&self.held, mark), false),
        }
    }

    /// True if the answer may be a call without a marker.
    fn may_be_bare(&self) -> bool {
        let text = self.held.trim_start();
        let mark = SYNTAXES
            .iter()
            .map(|s| s.marker)
            .chain(THOUGHTS.iter().map(|t| t.0));
        if text.is_empty()
            || mark
                .into_iter()
                .any(|mark| text.starts_with(mark) || mark.starts_with(text))
        {
            return false;
        }
        if let Some(block) = text.strip_prefix(FENCE) {
            return match block.split_once('\n') {
                Some((name, _)) => CALL_BLOCKS.contains(&name.trim()),
                None => true,
            };
        }
        text.starts_with('{') || (text.starts_with('[')) || FENCE.starts_with(text)
    }

    /// Handles an answer that may be one call from its first to its last byte.
    fn whole(&mut self, end: Option<bool>) -> bool {
        let text = self.held.trim();
        let inner = match text.strip_prefix(FENCE) {
            Some(block) => match (block.split_once('\n'), text.len() > 6) {
                (Some((_, block)), true) => block.strip_suffix(FENCE),
                _ => None,
            },
            None => Some(text),
        };
        if end.is_none() {
            return false;
        }
        match inner.and_then(|inner| bare(inner, &self.offered)) {
            Some(calls) => {
                self.held.clear();
                self.seen.extend(calls.into_iter().map(Seen::Call));
            }
            None => self.is_pristine = false,
        }
        true
    }

    fn open(&mut self, end: Option<bool>) -> bool {
        if end.is_none() && self.held.len() < self.look_again_at {
            return false;
        }
        self.look_again_at = 0;
        let Some((at, mark)) = self.next_mark() else {
            let kept = if end.is_some() { 0 } else { self.may_begin_mark() };
            self.show(self.held.len() - kept);
            return false;
        };
        if at > 0 {
            // A marker in backticks is quoted, not used.
            let is_quoted = self.held[..at].ends_with('`') && !matches!(mark, Mark::Block);
            self.show(at);
            if is_quoted {
                let first = self.held.chars().next().map_or(0, char::len_utf8);
                self.show(first);
            }
            return true;
        }
        match mark {
            Mark::Block => {
                self.show(FENCE.len());
                self.state = State::Block;
            }
            Mark::Thought(open, close) => {
                self.held.drain(..open.len());
                self.state = State::Thought(close);
            }
            Mark::Call(syntax) => {
                // The end of a truncated answer completes no call.
                let found = syntax.read(&self.held, &self.offered, end == Some(false));
                return self.found(found, end);
            }
            Mark::Object => {
                let found = match end_of_value(&self.held) {
                    Some(length) => match bare(&self.held[..length], &self.offered) {
                        Some(calls) => Found::Calls(length, calls),
                        None => Found::Text(length),
                    },
                    None => Found::Pending,
                };
                return self.found(found, end);
            }
        }
        true
    }

    fn found(&mut self, found: Found, end: Option<bool>) -> bool {
        match (found, end) {
            (Found::Calls(length, calls), _) => {
                self.held.drain(..length);
                self.at_line_start = true;
                self.is_after_call = true;
                self.seen.extend(calls.into_iter().map(Seen::Call));
            }
            (Found::Text(length), _) => self.show(length.max(1)),
            (Found::Pending, None) => {
                let length = self.held.len();
                self.look_again_at = if length < LONG { 0 } else { length + length / 8 };
                return false;
            }
            (Found::Pending, Some(false)) => self.show(self.held.len()),
            // An incomplete call is not shown.
            (Found::Pending, Some(true)) => self.held.clear(),
        }
        true
    }

    /// The first marker in the held text; of two at one position, the longer one.
    fn next_mark(&self) -> Option<(usize, Mark)> {
        let mut first: Option<(usize, usize, Mark)> = None;
        let mut offer = |at: Option<usize>, length: usize, mark: Mark| {
            if let Some(at) = at
                && first
                    .as_ref()
                    .is_none_or(|(known, known_length, _)| (at, known_length) < (*known, &length))
            {
                first = Some((at, length, mark));
            }
        };
        for syntax in SYNTAXES {
            let at = if syntax.at_line_start {
                self.find_at_line_start(syntax.marker)
            } else {
                self.held.find(syntax.marker)
            };
            offer(at, syntax.marker.len(), Mark::Call(syntax));
        }
        for (open, close) in THOUGHTS {
            offer(
                self.find_at_line_start(open),
                open.len(),
                Mark::Thought(open, close),
            );
        }
        offer(self.find_at_line_start(FENCE), FENCE.len(), Mark::Block);
        if self.format == TextFormat::Action {
            offer(self.find_at_line_start("{"), 1, Mark::Object);
        }
        first.map(|(at, _, mark)| (at, mark))
    }

    fn find_at_line_start(&self, mark: &str) -> Option<usize> {
        self.held.match_indices(mark).map(|(at, _)| at).find(|at| {
            if *at == 0 {
                self.at_line_start
            } else {
                self.held[..*at].ends_with('\n')
            }
        })
    }

    /// Number of bytes at the end that may be a prefix of a marker.
    fn may_begin_mark(&self) -> usize {
        SYNTAXES
            .iter()
            .map(|s| s.marker)
            .chain(THOUGHTS.iter().map(|t| t.0))
            .chain([FENCE])
            .map(|mark| beginning(&self.held, mark))
            .max()
            .unwrap_or(0)
    }

    fn show(&mut self, length: usize) {
        let length = self.held.ceil_char_boundary(length);
        if length == 0 {
            return;
        }
        let text: String = self.held.drain(..length).collect();
        self.at_line_start = text.ends_with('\n');
        self.is_after_call = false;
        self.is_pristine &= text.trim().is_empty();
        match self.seen.last_mut() {
            Some(Seen::Text(before)) => before.push_str(&text),
            _ => self.seen.push(Seen::Text(text)),
        }
    }
}

/// Length of the longest suffix of `text` that is a proper prefix of `mark`.
fn beginning(text: &str, mark: &str) -> usize {
    (1..mark.len().min(text.len() + 1))
        .rev()
        .filter(|length| mark.is_char_boundary(*length))
        .find(|length| text.ends_with(&mark[..*length]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::names::tests::offered;
    use super::*;
    use proptest::prelude::*;

    fn scan(format: TextFormat, pieces: &[&str], is_cut: bool) -> (String, String, Vec<Written>) {
        let mut scanner = Scanner::new(offered(&["weather", "files_read"]), format);
        let mut seen: Vec<Seen> = pieces.iter().flat_map(|piece| scanner.feed(piece)).collect();
        seen.extend(scanner.finish(is_cut));
        let (mut text, mut thought, mut calls) = (String::new(), String::new(), Vec::new());
        for one in seen {
            match one {
                Seen::Text(more) => text.push_str(&more),
                Seen::Reasoning(more) => thought.push_str(&more),
                Seen::Call(call) => calls.push(call),
            }
        }
        (text, thought, calls)
    }

    fn read(text: &str) -> (String, Vec<(String, String)>) {
        let (shown, _, calls) = scan(TextFormat::Hermes, &[text], false);
        (shown, calls.into_iter().map(|c| (c.name, c.arguments)).collect())
    }

    /// All formats, each with a call for the weather in Rome.
    const FORMATS: &[&str] = &[
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>",
        "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>weather\n{\"city\":\"Rome\"}</tool_call>",
        "<function=weather>{\"city\": \"Rome\"}</function>",
        "<function=weather><parameter=city>Rome</parameter></function>",
        "<tool>{\"server_name\":\"local\",\"tool_name\":\"weather\",\"arguments\":{\"city\":\"Rome\"}}</tool>",
        "<tool><server_name>local</server_name><tool_name>weather</tool_name><arguments><city>Rome</city></arguments></tool>",
        "[TOOL_CALLS][{\"name\":\"weather\",\"arguments\":{\"city\":\"Rome\"}}]",
        "[TOOL_CALLS]weather[ARGS]{\"city\":\"Rome\"}",
        "<|python_tag|>{\"name\":\"weather\",\"parameters\":{\"city\":\"Rome\"}}<|eom_id|>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\":\"Rome\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\":\"Rome\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\":\"Rome\"}<|tool_call_end|><|tool_calls_section_end|>",
        "TOOL_CALL: weather\nARGUMENTS: {\"city\": \"Rome\"}",
        "{\"name\": \"weather\", \"parameters\": {\"city\": \"Rome\"}}",
        "{\"action\": \"weather\", \"params\": {\"city\": \"Rome\"}}",
        "[{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}]",
        "{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"arguments\":\"{\\\"city\\\":\\\"Rome\\\"}\"}}",
        "[weather(city=\"Rome\")]",
        "```json\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n```",
        "```tool_call\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n```",
    ];

    #[test]
    fn every_format_is_parsed_and_not_shown() {
        for text in FORMATS {
            assert_eq!(
                read(text),
                (
                    String::new(),
                    vec![("weather".into(), r#"{"city":"Rome"}"#.into())]
                ),
                "{text}"
            );
        }
    }

    #[test]
    fn text_around_a_marked_call_is_shown() {
        for text in &FORMATS[..14] {
            let (shown, calls) = read(&format!("I look it up.\n{text}\nDone."));
            assert_eq!(calls.len(), 1, "{text}");
            assert_eq!(shown, "I look it up.\nDone.", "{text}");
        }
    }

    #[test]
    fn unmarked_call_must_be_the_whole_answer() {
        for text in &FORMATS[14..] {
            for answer in [format!("For example:\n{text}"), format!("{text}\nis a call.")] {
                assert_eq!(read(&answer), (answer.clone(), vec![]), "{answer}");
            }
            let (shown, calls) = read(&text.replace("weather", "climate"));
            assert_eq!(
                (shown, calls),
                (text.replace("weather", "climate"), vec![]),
                "a name that is not offered"
            );
        }
    }

    #[test]
    fn other_text_is_shown_unchanged() {
        for text in [
            "{\"city\": \"Rome\"}",
            "{\"name\": \"weather\"}",
            "{\"name\": \"weather\", \"arguments\": {}, \"age\": 3}",
            "[1, 2, 3]",
            "[link](https://example.com)",
            "[weather(city=get())]",
            "Use `<tool_call>` to call.",
            "Write `<tool_call>{\"name\":\"weather\",\"arguments\":{}}</tool_call>` to call.",
            "```\n<tool_call>{\"name\":\"weather\",\"arguments\":{}}</tool_call>\n```\nis how.",
            "```rust\nfn main() {}\n```",
            "a < b, a <t b, <tool",
            "The TOOL_CALL: weather\nARGUMENTS: {}",
            "<tool_call>nonsense</tool_call>",
            "<tool></tool>",
            "{",
            "```",
            "TOOL_CALL: weather",
        ] {
            assert_eq!(read(text), (text.to_owned(), vec![]), "{text}");
        }
    }

    #[test]
    fn calls_keep_their_order() {
        let (shown, calls) = read(
            "<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"Rome\"}}</tool_call>\n<tool_call>{\"name\":\"files.read\",\"arguments\":{}}</tool_call>",
        );
        assert_eq!(shown, "");
        let names: Vec<&str> = calls.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["weather", "files_read"]);
    }

    #[test]
    fn invalid_marked_call_is_passed_on() {
        let (shown, calls) = read("<tool_call>{\"name\":\"climate\",\"arguments\":{\"a\":1}}</tool_call>");
        assert_eq!(
            (shown.as_str(), &calls[..]),
            ("", &[("climate".into(), r#"{"a":1}"#.into())][..])
        );
        let (shown, calls) = read("<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":</tool_call>");
        assert_eq!(shown, "");
        assert_eq!(calls[0].0, "weather");
        assert!(toolcell_core::json::parse_object(&calls[0].1).is_err());
    }

    #[test]
    fn closing_tag_in_a_string_does_not_end_a_call() {
        let (shown, calls) =
            read("<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"</tool_call>\"}}</tool_call>");
        assert_eq!(
            (shown.as_str(), calls[0].1.as_str()),
            ("", "{\"city\":\"</tool_call>\"}")
        );
    }

    #[test]
    fn truncated_call_is_neither_run_nor_shown() {
        for text in &FORMATS[..14] {
            let cut = text.find("Rome").unwrap();
            let (shown, _, calls) = scan(TextFormat::Hermes, &["So: ", "\n", &text[..cut]], true);
            assert_eq!((shown.as_str(), calls), ("So: \n", vec![]), "{text}");
        }
    }

    #[test]
    fn calls_in_tagged_reasoning_are_ignored() {
        let text =
            "<think>I could <tool_call>{\"name\":\"weather\",\"arguments\":{}}</tool_call></think>Hello";
        let (shown, thought, calls) = scan(TextFormat::Hermes, &[text], false);
        assert_eq!((shown.as_str(), calls), ("Hello", vec![]));
        assert!(thought.starts_with("I could <tool_call>"), "{thought}");
    }

    #[test]
    fn bare_object_after_text_is_a_call_if_requested() {
        let text = "I check.\n{\"action\": \"weather\", \"params\": {\"city\": \"Rome\"}}\n";
        let (shown, _, calls) = scan(TextFormat::Action, &[text], false);
        assert_eq!((shown.as_str(), calls.len()), ("I check.\n", 1));
        let (shown, _, calls) = scan(
            TextFormat::Action,
            &["{\"action\":\"none\",\"params\":{}}\nHello"],
            false,
        );
        assert_eq!((shown.as_str(), calls.len()), ("Hello", 0));
    }

    #[test]
    fn long_call_in_small_deltas_is_parsed_in_linear_time() {
        let text = format!(
            "<tool_call>{{\"name\":\"weather\",\"arguments\":{{\"city\":\"{}\"}}}}</tool_call> done",
            "x".repeat(500_000)
        );
        let pieces: Vec<&str> = text
            .as_bytes()
            .chunks(5)
            .map(|c| std::str::from_utf8(c).unwrap())
            .collect();
        let (shown, _, calls) = scan(TextFormat::Hermes, &pieces, false);
        assert_eq!((shown.as_str(), calls.len()), ("done", 1));
    }

    #[test]
    fn text_is_shown_while_it_streams() {
        let mut scanner = Scanner::new(offered(&["weather"]), TextFormat::Hermes);
        assert_eq!(scanner.feed("Hello <"), [Seen::Text("Hello ".into())]);
        assert_eq!(scanner.feed("b> and <tool"), [Seen::Text("<b> and ".into())]);
        assert_eq!(scanner.feed("_call>{"), []);
    }

    proptest! {
        #[test]
        fn delta_boundaries_do_not_matter(
            which in 0..FORMATS.len(),
            before in proptest::sample::select(vec!["", "Text\n", "<think>hm</think>", "`a` <b> {"]),
            after in proptest::sample::select(vec!["", "\nmore", "\n```\nx\n```\n", " \n"]),
            cuts in proptest::collection::vec(0usize..400, 0..8),
        ) {
            let text = format!("{before}{}{after}", FORMATS[which]);
            let mut cuts: Vec<usize> = cuts
                .into_iter()
                .map(|cut| text.floor_char_boundary(cut % (text.len() + 1)))
                .collect();
            cuts.sort_unstable();
            cuts.push(text.len());
            let mut start = 0;
            let mut pieces = Vec::new();
            for cut in cuts {
                pieces.push(&text[start..cut]);
                start = cut;
            }
            prop_assert_eq!(scan(TextFormat::Hermes, &pieces, false), scan(TextFormat::Hermes, &[&text], false));
        }

        #[test]
        fn no_answer_breaks_the_scanner_or_loses_text(text in "[a-z<>{}\\[\\]|`\"\n: =()_/é]{0,60}") {
            for format in [TextFormat::Hermes, TextFormat::Action] {
                let (shown, thought, calls) = scan(format, &[&text], false);
                prop_assert!(!calls.is_empty() || !thought.is_empty() || shown == text || text.contains('<'), "{}", shown);
                scan(format, &[&text], true);
            }
        }
    }
}
