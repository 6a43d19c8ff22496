//! Conversion of web pages to Markdown.

use dom_smoothie::{Config, Readability, TextMode};
use toolcell_sdk::{Result, ToolError};
use url::Url;

/// Readable content of a page.
pub(crate) struct Article {
    pub(crate) title: String,
    pub(crate) text: String,
    /// True if the main content was found; otherwise the text is that of the whole page.
    pub(crate) is_main: bool,
}

/// Maximum number of elements of a page; larger pages are data rather than articles, and would take long.
const MAX_ELEMENTS: usize = 100_000;

/// Converts a page to Markdown: its main content, or with `whole` the whole page.
pub(crate) fn read(html: &str, url: &Url, whole: bool) -> Result<Article> {
    let config = Config {
        text_mode: TextMode::Markdown,
        max_elements_to_parse: MAX_ELEMENTS,
        ..Config::default()
    };
    let mut page = Readability::new(html, Some(url.as_str()), Some(config))
        .map_err(|error| ToolError::failed(format_args!("could not parse the page: {error}")))?;
    let title = page.get_article_title().trim().to_owned();
    remove_noise(&page.doc);
    if !whole
        && let Ok(article) = page.parse()
        && !article.text_content.trim().is_empty()
    {
        return Ok(Article {
            title: article.title.trim().to_owned(),
            text: tidy(&article.text_content),
            is_main: true,
        });
    }
    // The search for the main content changes the document.
    let page = Readability::new(html, Some(url.as_str()), None)
        .map_err(|error| ToolError::failed(format_args!("could not parse the page: {error}")))?;
    remove_noise(&page.doc);
    for (selector, attribute) in [("a[href]", "href"), ("img[src]", "src")] {
        for node in page.doc.select(selector).nodes() {
            if let Some(target) = node.attr(attribute).and_then(|target| url.join(&target).ok()) {
                node.set_attr(attribute, target.as_str());
            }
        }
    }
    let skip = [
        "script", "style", "meta", "head", "noscript", "template", "svg", "iframe",
    ];
    Ok(Article {
        title,
        text: tidy(&page.doc.md(Some(&skip))),
        is_main: false,
    })
}

/// Removes content that costs tokens without information: tooltips, anchors that link to their own heading, pictures
/// embedded in the page.
fn remove_noise(page: &dom_query::Document) {
    page.select("a[title], img[title]").remove_attr("title");
    page.select("img[src^='data:']").remove();
    for mark in page.select("a[href^='#']").nodes() {
        if mark.text().trim().chars().count() < 2 {
            mark.remove_from_parent();
        }
    }
}

/// Limits empty lines to one in a row, and none at the ends.
fn tidy(text: &str) -> String {
    let mut tidy = String::with_capacity(text.len());
    let mut empty = 0;
    for line in text.lines() {
        let line = line.trim_end();
        empty = if line.is_empty() { empty + 1 } else { 0 };
        if empty < 2 && !(line.is_empty() && tidy.is_empty()) {
            tidy.push_str(line);
            tidy.push('\n');
        }
    }
    tidy.truncate(tidy.trim_end().len());
    tidy
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(body: &str) -> String {
        format!("<html><head><title>The title</title><style>b {{}}</style></head><body>{body}</body></html>")
    }

    fn read_page(body: &str, whole: bool) -> Article {
        read(
            &page(body),
            &Url::parse("https://example.org/dir/page").unwrap(),
            whole,
        )
        .unwrap()
    }

    fn article() -> String {
        let paragraph =
            "This sentence, with a <a href=\"/other\">link</a>, is long enough to be content. ".repeat(6);
        format!(
            "<nav><a href=/>Home</a> <a href=/about>About us</a></nav><article><h2>Heading</h2><p>{paragraph}</p>\
             <ul><li>one</li><li>two</li></ul><pre><code>let a = 1;</code></pre><p>{paragraph}</p></article>\
             <footer>Copyright</footer><script>alert(1)</script>"
        )
    }

    #[test]
    fn main_content_is_markdown_with_absolute_links() {
        let article = read_page(&article(), false);
        assert!(article.is_main);
        assert_eq!(article.title, "The title");
        for part in [
            "Heading",
            "[link](https://example.org/other)",
            "one",
            "let a = 1;",
        ] {
            assert!(article.text.contains(part), "{part}: {}", article.text);
        }
        for part in ["About us", "alert", "Copyright"] {
            assert!(!article.text.contains(part), "{part}: {}", article.text);
        }
    }

    #[test]
    fn whole_page_is_returned_on_request_or_without_main_content() {
        let whole = read_page(&article(), true);
        assert!(whole.text.contains("[About us](https://example.org/about)") && !whole.is_main);
        assert!(!whole.text.contains("alert"));
        let short = read_page("<p>Just <b>this</b>.</p><a href=next>next</a>", false);
        assert!(short.text.contains("Just **this**"), "{}", short.text);
        assert!(
            short.text.contains("[next](https://example.org/dir/next)"),
            "{}",
            short.text
        );
    }

    #[test]
    fn noise_is_left_out() {
        let noisy = read_page(
            "<h2 id=h><a href=#h>\u{a7}</a>Head</h2><p><a href=x title=tip>link</a> <a href=#h>up there</a>\
             <img src='data:image/png;base64,AAAA' alt=dot></p>",
            true,
        );
        assert_eq!(
            noisy.text,
            "## Head\n\n[link](https://example.org/dir/x) [up there](https://example.org/dir/page#h)"
        );
    }

    #[test]
    fn broken_and_empty_pages_are_accepted() {
        for html in ["", "<", "<table><tr><td>cell", "plain words", "<html></html>"] {
            let url = Url::parse("https://example.org/").unwrap();
            assert!(read(html, &url, false).is_ok(), "{html}");
        }
    }
}
