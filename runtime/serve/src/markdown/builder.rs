//! Builds the tree from the events of the parser.

use pulldown_cmark::{Alignment, CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag as Start};

use super::tree::{Block, Node, Tag};
use super::{highlight, inert, link};

/// Maximum depth of elements in each other. Content that is deeper stands in the element at this depth.
const MAX_DEPTH: usize = 32;

/// Maximum number of elements of a text. What follows is one text: tables and emphasis need two bytes for an element, and each
/// is one of the page.
const MAX_ELEMENTS: usize = 20_000;

/// Renders a text.
pub(crate) fn render(text: &str) -> Vec<Block> {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_MATH;
    let mut builder = Builder {
        source: text,
        blocks: Vec::new(),
        open: Vec::new(),
        too_deep: 0,
        elements: 0,
        alignments: Vec::new(),
        column: 0,
        is_head: false,
        start: Position::default(),
    };
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        if builder.elements > MAX_ELEMENTS && builder.open.is_empty() {
            let mut rest = Vec::new();
            inert::push_text(&mut rest, &text[range.start..], 0);
            builder.start.advance(text, range.start);
            builder.append(Node::element(Tag::CodeBlock, rest));
            break;
        }
        builder.event(event, range.start, range.end);
    }
    while !builder.open.is_empty() {
        builder.close();
    }
    builder.blocks
}

/// An element whose end was not reached.
struct Open {
    tag: Tag,
    attributes: Vec<(&'static str, String)>,
    children: Vec<Node>,
    /// Destination of a link or an image, shown as text behind it if it is not a link.
    destination: Option<String>,
}

/// Position in the source, in bytes and in UTF-16 code units. It only grows, so that counting is linear.
#[derive(Default)]
struct Position {
    bytes: usize,
    units: usize,
}

impl Position {
    /// Moves to the start of the line with this byte.
    fn advance(&mut self, source: &str, to: usize) {
        let line = source[..to].rfind('\n').map_or(0, |end| end + 1);
        if line > self.bytes {
            self.units += source[self.bytes..line].encode_utf16().count();
            self.bytes = line;
        }
    }
}

struct Builder<'a> {
    source: &'a str,
    blocks: Vec<Block>,
    open: Vec<Open>,
    /// Number of open elements beyond [`MAX_DEPTH`].
    too_deep: usize,
    elements: usize,
    alignments: Vec<Alignment>,
    column: usize,
    is_head: bool,
    /// Start of the current block.
    start: Position,
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, start: usize, end: usize) {
        if self.open.is_empty() {
            self.start.advance(self.source, start);
        }
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(_) if self.too_deep > 0 => self.too_deep -= 1,
            Event::End(_) => self.close(),
            Event::Text(text) => self.text(&text, start),
            Event::Code(code) => self.leaf(Tag::Code, &code),
            // The delimiters are part of it: a formula is not set, and stays what was written.
            Event::InlineMath(_) | Event::DisplayMath(_) => {
                let formula = self.source[start..end].to_owned();
                self.leaf(Tag::Formula, &formula);
            }
            Event::Html(html) | Event::InlineHtml(html) => self.text(&html, start),
            Event::SoftBreak => self.plain("\n"),
            Event::HardBreak => self.append(Node::element(Tag::Break, Vec::new())),
            Event::Rule => self.append(Node::element(Tag::Rule, Vec::new())),
            Event::TaskListMarker(is_done) => self.leaf(Tag::Task, if is_done { "done" } else { "open" }),
            Event::FootnoteReference(name) => self.plain(&name),
        }
    }

    fn start(&mut self, tag: Start<'_>) {
        let mut destination = None;
        let mut attributes = Vec::new();
        let tag = match tag {
            Start::Heading { level, .. } => match level {
                HeadingLevel::H1 => Tag::Heading3,
                HeadingLevel::H2 => Tag::Heading4,
                _ => Tag::Heading5,
            },
            Start::BlockQuote(_) => Tag::Quote,
            Start::CodeBlock(kind) => {
                if let CodeBlockKind::Fenced(info) = kind {
                    attributes.extend(highlight::language(&info).map(|language| ("lang", language)));
                }
                Tag::CodeBlock
            }
            Start::HtmlBlock => {
                attributes.push(("lang", "html".to_owned()));
                Tag::CodeBlock
            }
            Start::List(None) => Tag::List,
            Start::List(Some(first)) => {
                attributes.push(("start", first.to_string()));
                Tag::Numbered
            }
            Start::Item => Tag::Item,
            Start::Table(alignments) => {
                self.alignments = alignments;
                Tag::Table
            }
            Start::TableHead => {
                (self.is_head, self.column) = (true, 0);
                Tag::Row
            }
            Start::TableRow => {
                (self.is_head, self.column) = (false, 0);
                Tag::Row
            }
            Start::TableCell => {
                attributes.extend(self.alignment().map(|align| ("align", align.to_owned())));
                self.column += 1;
                if self.is_head { Tag::HeadCell } else { Tag::Cell }
            }
            Start::Emphasis => Tag::Emphasis,
            Start::Strong => Tag::Strong,
            Start::Strikethrough => Tag::Deleted,
            Start::Link { dest_url, .. } => {
                destination = Some(dest_url.into_string());
                Tag::Link
            }
            Start::Image { dest_url, .. } => {
                destination = Some(dest_url.into_string());
                Tag::Image
            }
            // Definition lists, footnotes, metadata and others that are not enabled.
            _ => Tag::Paragraph,
        };
        if self.open.len() >= MAX_DEPTH {
            self.too_deep += 1;
            return;
        }
        self.open.push(Open {
            tag,
            attributes,
            children: Vec::new(),
            destination,
        });
    }

    fn alignment(&self) -> Option<&'static str> {
        match self.alignments.get(self.column)? {
            Alignment::None => None,
            Alignment::Left => Some("left"),
            Alignment::Center => Some("center"),
            Alignment::Right => Some("right"),
        }
    }

    fn close(&mut self) {
        let Some(mut open) = self.open.pop() else {
            return;
        };
        if let Some(destination) = open.destination.take() {
            return self.close_link(open, &destination);
        }
        if open.tag == Tag::CodeBlock {
            open.children = highlight::code(&open.attributes, open.children);
        }
        self.append(Node::with(open.tag, open.attributes, open.children));
    }

    /// A link with an address becomes one. Any other shows where it leads as text, so that nothing of it is hidden.
    fn close_link(&mut self, mut open: Open, destination: &str) {
        let Some(address) = link::address(destination) else {
            if open.tag == Tag::Image {
                self.append(Node::with(Tag::Image, Vec::new(), open.children));
            } else {
                for child in open.children {
                    self.append(child);
                }
            }
            if !destination.is_empty() {
                self.plain(" (");
                self.leaf(Tag::Code, destination);
                self.plain(")");
            }
            return;
        };
        // The text is the address itself, also without the slash at its end.
        let is_same = |text: &str| text.trim_end_matches('/') == address.href.trim_end_matches('/');
        let is_address = matches!(open.children.as_slice(), [Node::Text(text)] if is_same(text));
        if !is_address {
            open.attributes.push(("host", address.host));
        }
        open.attributes.push(("href", address.href));
        self.append(Node::with(open.tag, open.attributes, open.children));
    }

    fn text(&mut self, text: &str, start: usize) {
        let is_escaped = start > 0 && self.source.as_bytes().get(start - 1) == Some(&b'\\');
        // `\(x\)` and `\[x\]` are formulas; the parser has removed the backslash.
        if is_escaped && text.starts_with(['(', ')', '[', ']']) && !self.is_code() {
            self.plain("\\");
        }
        let is_plain = self.is_code() || self.open.iter().any(|open| open.destination.is_some());
        let mut written = 0;
        for (range, address) in link::bare(if is_plain { "" } else { text }) {
            self.plain(&text[written..range.start]);
            written = range.end;
            let shown = &text[range];
            let mut attributes = Vec::new();
            if address.href.trim_end_matches('/') != shown.trim_end_matches('/') {
                attributes.push(("host", address.host));
            }
            attributes.push(("href", address.href));
            let mut children = Vec::new();
            inert::push_text(&mut children, shown, 0);
            self.append(Node::with(Tag::Link, attributes, children));
        }
        self.plain(&text[written..]);
    }

    fn is_code(&self) -> bool {
        self.open.last().is_some_and(|open| open.tag == Tag::CodeBlock)
    }

    /// Appends text that hides nothing.
    fn plain(&mut self, text: &str) {
        let most = MAX_ELEMENTS.saturating_sub(self.elements);
        match self.open.last_mut() {
            Some(open) => self.elements += inert::push_text(&mut open.children, text, most),
            None => {
                let mut nodes = Vec::new();
                self.elements += inert::push_text(&mut nodes, text, most);
                if !nodes.is_empty() {
                    self.append(Node::element(Tag::Paragraph, nodes));
                }
            }
        }
    }

    fn leaf(&mut self, tag: Tag, text: &str) {
        let mut children = Vec::new();
        let most = MAX_ELEMENTS.saturating_sub(self.elements);
        self.elements += inert::push_text(&mut children, text, most);
        self.append(Node::element(tag, children));
    }

    fn append(&mut self, node: Node) {
        self.elements += 1;
        match self.open.last_mut() {
            // Beyond the limit the text of an element remains.
            Some(open) if self.elements > MAX_ELEMENTS => push_words(&mut open.children, node),
            Some(open) => open.children.push(node),
            None => self.blocks.push(Block {
                start: self.start.units,
                node,
            }),
        }
    }
}

/// Appends the text of a node without its elements.
fn push_words(to: &mut Vec<Node>, node: Node) {
    match node {
        Node::Text(text) => match to.last_mut() {
            Some(Node::Text(previous)) => previous.push_str(&text),
            _ => to.push(Node::Text(text)),
        },
        Node::Element { tag, children, .. } => {
            for child in children {
                push_words(to, child);
            }
            if matches!(
                tag,
                Tag::Cell | Tag::HeadCell | Tag::Row | Tag::Item | Tag::Paragraph
            ) {
                push_words(to, Node::Text(" ".to_owned()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> String {
        let nodes: Vec<Node> = render(text).into_iter().map(|block| block.node).collect();
        serde_json::to_string(&nodes).unwrap()
    }

    #[test]
    fn elements_of_an_answer_are_rendered() {
        for (text, expected) in [
            ("# A\n## B\n#### C", r#"[["h3","A"],["h4","B"],["h5","C"]]"#),
            (
                "*a* **b** ~~c~~ `d`",
                r#"[["p",["em","a"]," ",["strong","b"]," ",["del","c"]," ",["code","d"]]]"#,
            ),
            (
                "- [x] a\n- [ ] b",
                r#"[["ul",["li",["task","done"],"a"],["li",["task","open"],"b"]]]"#,
            ),
            ("3. a\n4. b", r#"[["ol",{"start":"3"},["li","a"],["li","b"]]]"#),
            ("> q\n\n---", r#"[["blockquote",["p","q"]],["hr"]]"#),
            (
                "```rust\nfn a\n```",
                r#"[["pre",{"lang":"rust"},["tk","fn"]," a\n"]]"#,
            ),
            ("```a\"b<c\nx\n```", r#"[["pre","x\n"]]"#),
            (
                "|a|b|\n|:-|-:|\n|c|d|",
                r#"[["table",["tr",["th",{"align":"left"},"a"],["th",{"align":"right"},"b"]],["tr",["td",{"align":"left"},"c"],["td",{"align":"right"},"d"]]]]"#,
            ),
            ("a  \nb\nc", r#"[["p","a",["br"],"b\nc"]]"#),
        ] {
            assert_eq!(json(text), expected, "{text}");
        }
    }

    #[test]
    fn formulas_stay_as_they_were_written() {
        for (text, expected) in [
            ("$a_b*c*d$", r#"[["p",["math","$a_b*c*d$"]]]"#),
            ("$$\nx\n$$", r#"[["p",["math","$$\nx\n$$"]]]"#),
            (r"\(x_1\) and \[y\]", r#"[["p","\\(x_1\\) and \\[y\\]"]]"#),
        ] {
            assert_eq!(json(text), expected, "{text}");
        }
    }

    #[test]
    fn links_state_their_host() {
        for (text, expected) in [
            (
                "[a](https://b.test/c)",
                r#"[["p",["a",{"host":"b.test","href":"https://b.test/c"},"a"]]]"#,
            ),
            (
                "<https://b.test/c>",
                r#"[["p",["a",{"href":"https://b.test/c"},"https://b.test/c"]]]"#,
            ),
            (
                "xhttps://a.test and https://b.test",
                r#"[["p","xhttps://a.test and ",["a",{"href":"https://b.test/"},"https://b.test"]]]"#,
            ),
            (
                "see https://b.test/c.",
                r#"[["p","see ",["a",{"href":"https://b.test/c"},"https://b.test/c"],"."]]"#,
            ),
            (
                "[https://good.test](https://b.test)",
                r#"[["p",["a",{"host":"b.test","href":"https://b.test/"},"https://good.test"]]]"#,
            ),
            (
                "https://g\u{456}thub.com",
                "[[\"p\",[\"a\",{\"host\":\"xn--gthub-n2e.com\",\"href\":\"https://xn--gthub-n2e.com/\"},\"https://g\u{456}thub.com\"]]]",
            ),
            (
                "[a](javascript:b)",
                r#"[["p","a (",["code","javascript:b"],")"]]"#,
            ),
            (
                "![a](https://b.test/c.png)",
                r#"[["p",["image",{"host":"b.test","href":"https://b.test/c.png"},"a"]]]"#,
            ),
            (
                "![a](data:image/png;base64,x)",
                r#"[["p",["image","a"]," (",["code","data:image/png;base64,x"],")"]]"#,
            ),
        ] {
            assert_eq!(json(text), expected, "{text}");
        }
    }

    #[test]
    fn blocks_before_the_last_two_are_final_as_text_grows() {
        let text = "# Été 😀\n\none\ntwo\n\n- a\n  - b\n\n- c\n\n    code\n\n```sh\nx\n\ny\n```\n\n|a|\n|-|\n|b|\n\nend";
        let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        for end in ends {
            let shorter = render(&text[..end]);
            let Some((done, [first, _])) = shorter.split_last_chunk() else {
                continue;
            };
            let longer = render(text);
            assert_eq!(done, &longer[..done.len()], "{:?}", &text[..end]);
            // The rest of the text gives the rest of the blocks.
            let units: Vec<u16> = text.encode_utf16().collect();
            let rest = render(&String::from_utf16(&units[first.start..]).unwrap());
            let rest: Vec<&Node> = rest.iter().map(|block| &block.node).collect();
            let whole: Vec<&Node> = longer[done.len()..].iter().map(|block| &block.node).collect();
            assert_eq!(rest, whole, "{:?}", &text[..end]);
        }
    }

    fn depth(node: &Node) -> usize {
        match node {
            Node::Text(_) => 0,
            Node::Element { children, .. } => 1 + children.iter().map(depth).max().unwrap_or(0),
        }
    }

    #[test]
    fn depth_is_kept_up_to_the_limit_and_not_beyond() {
        // The paragraph in the quotations is an element, too.
        let deepest = |quotes: usize| {
            let blocks = render(&format!("{} x", ">".repeat(quotes)));
            blocks.iter().map(|block| depth(&block.node)).max()
        };
        assert_eq!(deepest(MAX_DEPTH - 1), Some(MAX_DEPTH));
        assert_eq!(deepest(MAX_DEPTH + 1), Some(MAX_DEPTH));
        assert_eq!(deepest(5_000), Some(MAX_DEPTH));
    }

    fn elements(node: &Node) -> usize {
        match node {
            Node::Text(_) => 0,
            Node::Element { children, .. } => 1 + children.iter().map(elements).sum::<usize>(),
        }
    }

    #[test]
    fn elements_beyond_the_limit_are_text() {
        for (text, words) in [
            ("*a* ".repeat(MAX_ELEMENTS * 2), MAX_ELEMENTS * 2),
            ("a\n\n".repeat(MAX_ELEMENTS * 2), MAX_ELEMENTS * 2),
            ("\u{200b}a".repeat(MAX_ELEMENTS * 2), MAX_ELEMENTS * 2),
        ] {
            let blocks = render(&text);
            let found: usize = blocks.iter().map(|block| elements(&block.node)).sum();
            let json = serde_json::to_string(&blocks).unwrap();
            assert!(found <= MAX_ELEMENTS + 16, "{found}");
            assert!(json.matches('a').count() >= words, "{}", &text[..8]);
        }
        let few = "*a* ".repeat(1_000);
        let found: usize = render(&few).iter().map(|block| elements(&block.node)).sum();
        assert_eq!(found, 1_001);
    }
}
