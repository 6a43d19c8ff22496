//! Truncation of results that are too long for a model: the head and the tail stay, with a marker between them.

use toolcell_core::Content;

/// Maximum size of a picture or file in a result, in bytes. The largest that a provider accepts is about 5 MB in
/// base64.
pub(crate) const MAX_BLOB_BYTES: usize = 4 << 20;

/// Maximum memory of a structured result, in bytes: it is held until the call is over, and several times. The text of a larger one
/// is kept.
pub(crate) const MAX_STRUCTURED_MEMORY: u64 = 4 << 20;

/// Maximum size of a structured result, in bytes of JSON.
pub(crate) const MAX_STRUCTURED_BYTES: usize = 1 << 20;

/// Truncated result.
pub(crate) struct Cut {
    pub(crate) content: Vec<Content>,
    /// Full text, if some of it was cut.
    pub(crate) whole: Option<String>,
}

/// Cuts the text of a result to `limit` bytes, marker not counted, and replaces pictures and files that no provider
/// accepts. `handle` is named in the marker as the call whose full text can be read.
pub(crate) fn cut(content: Vec<Content>, limit: usize, handle: Option<&str>) -> Cut {
    let content = content.into_iter().map(|part| match part {
        Content::Blob(blob) if blob.data.len() > MAX_BLOB_BYTES => Content::text(format!(
            "[{} of {} bytes left out: more than {MAX_BLOB_BYTES}]",
            blob.media_type,
            blob.data.len()
        )),
        part => part,
    });
    let content: Vec<Content> = content.collect();
    let total: usize = content.iter().map(text_len).sum();
    if total <= limit {
        return Cut { content, whole: None };
    }
    // Two thirds at the head: most results start with the main content and end with a status.
    let tail = limit / 3;
    let head = limit - tail;
    let whole = content.iter().filter_map(text_of).collect::<Vec<_>>().join("");
    let head_end = whole.floor_char_boundary(head);
    let tail_start = whole.ceil_char_boundary(total - tail);
    let mark = match handle {
        Some(handle) => format!(
            "\n[... {} bytes cut; read them with `read_result`, call `{handle}` ...]\n",
            tail_start - head_end
        ),
        None => format!("\n[... {} bytes cut ...]\n", tail_start - head_end),
    };
    let mut at = 0;
    let mut mark = Some(mark);
    let mut out = Vec::with_capacity(content.len());
    for part in content {
        let Content::Text { text } = &part else {
            out.push(part);
            continue;
        };
        let (start, end) = (at, at + text.len());
        at = end;
        let mut kept = String::new();
        if start < head_end {
            kept.push_str(&text[..head_end.min(end) - start]);
        }
        if end >= head_end
            && let Some(mark) = mark.take()
        {
            kept.push_str(&mark);
        }
        if end > tail_start {
            kept.push_str(&text[tail_start.max(start) - start..]);
        }
        if !kept.is_empty() {
            out.push(Content::text(kept));
        }
    }
    Cut {
        content: out,
        whole: Some(whole),
    }
}

/// Replaces pictures, files and links that exceed the remaining bytes; the rest of the bytes is for text.
pub(crate) fn within(content: Vec<Content>, room: Option<usize>) -> Vec<Content> {
    let Some(mut room) = room else { return content };
    let fit = |part: Content| {
        let bytes = match &part {
            Content::Text { .. } => return part,
            Content::Blob(_) | Content::Link(_) => part.byte_len(),
        };
        if bytes > room {
            return Content::text(format!(
                "[{bytes} bytes left out: more than the rest of the byte budget]"
            ));
        }
        room -= bytes;
        part
    };
    content.into_iter().map(fit).collect()
}

fn text_of(part: &Content) -> Option<&str> {
    match part {
        Content::Text { text } => Some(text),
        _ => None,
    }
}

fn text_len(part: &Content) -> usize {
    text_of(part).map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use toolcell_core::Blob;

    fn texts(content: &[Content]) -> Vec<&str> {
        content.iter().filter_map(text_of).collect()
    }

    #[test]
    fn result_at_the_limit_is_kept_and_one_byte_more_is_cut() {
        let fits = cut(vec![Content::text("x".repeat(30))], 30, None);
        assert_eq!(texts(&fits.content), ["x".repeat(30)]);
        assert_eq!(fits.whole, None);
        let long = cut(vec![Content::text(format!("{}y", "x".repeat(30)))], 30, None);
        assert_eq!(
            texts(&long.content),
            [format!(
                "{}\n[... 1 bytes cut ...]\n{}y",
                "x".repeat(20),
                "x".repeat(9)
            )]
        );
        assert_eq!(long.whole, Some(format!("{}y", "x".repeat(30))));
    }

    #[test]
    fn cut_never_splits_characters() {
        let text = "ä".repeat(100);
        let result = cut(vec![Content::text(text.clone())], 31, Some("c1"));
        assert_eq!(
            texts(&result.content),
            [format!(
                "{}\n[... 170 bytes cut; read them with `read_result`, call `c1` ...]\n{}",
                "ä".repeat(10),
                "ä".repeat(5)
            )]
        );
        assert_eq!(result.whole.as_deref(), Some(text.as_str()));
    }

    #[test]
    fn pictures_keep_their_position_and_large_ones_are_replaced() {
        let blob = |len| {
            Content::Blob(Blob {
                media_type: "image/png".into(),
                data: vec![0; len],
            })
        };
        let content = vec![
            Content::text("a".repeat(20)),
            blob(MAX_BLOB_BYTES),
            Content::text("b".repeat(20)),
            blob(MAX_BLOB_BYTES + 1),
        ];
        let result = cut(content, 100, None).content;
        assert_eq!(result[1], blob(MAX_BLOB_BYTES));
        assert_eq!(
            result[3],
            Content::text("[image/png of 4194305 bytes left out: more than 4194304]")
        );
    }

    proptest! {
        #[test]
        fn cut_text_keeps_head_and_tail(
            parts in prop::collection::vec("\\PC{0,40}", 0..6),
            limit in 0usize..120,
        ) {
            let whole: String = parts.concat();
            let result = cut(parts.iter().map(Content::text).collect(), limit, None);
            let joined: String = texts(&result.content).concat();
            if whole.len() <= limit {
                prop_assert_eq!(joined, whole);
            } else {
                let (head, rest) = joined.split_once("\n[... ").unwrap();
                let (_, tail) = rest.split_once(" bytes cut ...]\n").unwrap();
                prop_assert!(whole.starts_with(head) && whole.ends_with(tail));
                prop_assert!(head.len() + tail.len() <= limit);
            }
        }
    }

    #[test]
    fn parts_beyond_the_byte_budget_are_left_out() {
        let blob = |bytes: usize| {
            Content::Blob(Blob {
                media_type: String::new(),
                data: vec![0; bytes],
            })
        };
        let kept = |room, sizes: &[usize]| -> Vec<bool> {
            let parts = within(sizes.iter().map(|bytes| blob(*bytes)).collect(), room);
            parts
                .iter()
                .map(|part| matches!(part, Content::Blob(_)))
                .collect()
        };
        assert_eq!(kept(None, &[1_000]), [true]);
        assert_eq!(kept(Some(10), &[10]), [true]);
        assert_eq!(kept(Some(10), &[11]), [false]);
        assert_eq!(kept(Some(10), &[6, 5, 4]), [true, false, true]);
        let long = Content::text("x".repeat(100));
        assert_eq!(within(vec![long.clone()], Some(1)), [long]);
    }
}
