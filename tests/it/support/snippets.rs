//! Blocks of code in documents: commands, what they print, and configuration.

/// A block of code, and the `text` block after it if there is one.
pub(crate) struct Block {
    /// Line of the document that opens it.
    pub(crate) line: usize,
    /// Text behind the fence, such as `sh fails`.
    pub(crate) language: String,
    pub(crate) text: String,
    /// The lines of the `text` block after it.
    pub(crate) prints: Vec<String>,
}

/// The blocks of a document, but for `text` blocks that follow directly on another one.
pub(crate) fn blocks(document: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open: Option<(String, usize, Vec<&str>)> = None;
    let mut gap = usize::MAX;
    for (index, line) in document.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(info)) => open = Some((info.trim().to_owned(), index + 1, Vec::new())),
            (Some((language, start, lines)), Some(_)) => {
                if language == "text" && gap <= 1 {
                    let block = blocks.last_mut().expect("a block stands before it");
                    block.prints = lines.iter().map(|l| (*l).to_owned()).collect();
                } else {
                    blocks.push(Block {
                        line: *start,
                        language: std::mem::take(language),
                        text: lines.join("\n"),
                        prints: Vec::new(),
                    });
                    gap = 0;
                }
                open = None;
            }
            (Some((_, _, lines)), None) => lines.push(line),
            (None, None) => gap = gap.saturating_add(1),
        }
    }
    assert!(open.is_none(), "a block of the document is not closed");
    blocks
}

/// The first of these lines that does not come in `output` after those before it. `…` stands for anything within a line.
pub(crate) fn missing_line<'a>(lines: &'a [String], output: &str) -> Option<&'a str> {
    let mut rest = output;
    for line in lines.iter().filter(|line| !line.trim().is_empty()) {
        match after(line, rest) {
            Some(later) => rest = later,
            None => return Some(line),
        }
    }
    None
}

/// Returns the part of `output` after the first line that is like `line`, where `…` stands for anything within a line; `None`
/// if no line is.
fn after<'a>(line: &str, output: &'a str) -> Option<&'a str> {
    let pieces: Vec<&str> = line.trim().split('…').map(str::trim).collect();
    let is_like = |candidate: &str| {
        let mut rest = candidate;
        pieces.iter().all(|piece| match rest.find(piece) {
            Some(at) => {
                rest = &rest[at + piece.len()..];
                true
            }
            None => false,
        })
    };
    let mut rest = output;
    while let Some((candidate, later)) = rest.split_once('\n') {
        if is_like(candidate) {
            return Some(later);
        }
        rest = later;
    }
    is_like(rest).then_some("")
}
