//! Elements of rendered Markdown, and their JSON.

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

/// A block of a text: all but the last two stay as they are while the text grows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// Start of the first line of the block, in UTF-16 code units of the text, in which JavaScript counts.
    pub(crate) start: usize,
    /// The element.
    pub(crate) node: Node,
}

impl Serialize for Block {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.start, &self.node).serialize(serializer)
    }
}

/// A text or an element. In JSON an element is `[TAG, ATTRIBUTES, CHILD, …]`, without attributes if it has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    /// Text, which is never interpreted.
    Text(String),
    /// An element.
    Element {
        /// Kind of the element.
        tag: Tag,
        /// Attributes, by name.
        attributes: Vec<(&'static str, String)>,
        /// Content.
        children: Vec<Node>,
    },
}

impl Node {
    /// Creates an element without attributes.
    pub(super) fn element(tag: Tag, children: Vec<Self>) -> Self {
        Self::Element {
            tag,
            attributes: Vec::new(),
            children,
        }
    }

    /// Creates an element with attributes.
    pub(super) fn with(tag: Tag, attributes: Vec<(&'static str, String)>, children: Vec<Self>) -> Self {
        Self::Element {
            tag,
            attributes,
            children,
        }
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Element {
                tag,
                attributes,
                children,
            } => {
                let mut element = serializer.serialize_seq(None)?;
                element.serialize_element(tag.name())?;
                if !attributes.is_empty() {
                    element.serialize_element(&Attributes(attributes))?;
                }
                for child in children {
                    element.serialize_element(child)?;
                }
                element.end()
            }
        }
    }
}

struct Attributes<'a>(&'a [(&'static str, String)]);

impl Serialize for Attributes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

macro_rules! tags {
    ($($(#[$doc:meta])* $tag:ident $name:literal,)*) => {
        /// Kinds of elements. `page/render.js` has the element of the DOM for each of them, and makes text of any other.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Tag {
            $($(#[$doc])* $tag,)*
        }

        impl Tag {
            /// All kinds.
            #[cfg(test)]
            pub(crate) const ALL: &'static [Self] = &[$(Self::$tag,)*];

            /// Returns the name in JSON.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$tag => $name,)*
                }
            }
        }
    };
}

tags! {
    /// Paragraph.
    Paragraph "p",
    /// Heading of an answer, one of three levels: those of the page are above.
    Heading3 "h3",
    /// Heading of the second level.
    Heading4 "h4",
    /// Heading of all further levels.
    Heading5 "h5",
    /// Quotation.
    Quote "blockquote",
    /// List without numbers.
    List "ul",
    /// Numbered list; `start` is its first number.
    Numbered "ol",
    /// Item of a list.
    Item "li",
    /// Block of code; `lang` is its language, if the text names one.
    CodeBlock "pre",
    /// Code in a line.
    Code "code",
    /// Emphasis.
    Emphasis "em",
    /// Strong emphasis.
    Strong "strong",
    /// Deleted text.
    Deleted "del",
    /// Link; `href` is its address, and `host` the host, unless the text is the address.
    Link "a",
    /// Description of an image that is not fetched; `href` and `host` if it has an address that a browser opens.
    Image "image",
    /// Line between blocks.
    Rule "hr",
    /// End of a line inside of a block.
    Break "br",
    /// Table.
    Table "table",
    /// Row of a table.
    Row "tr",
    /// Cell of the first row; `align` is `left`, `center` or `right`.
    HeadCell "th",
    /// Cell of another row.
    Cell "td",
    /// Task of a list; its text is `done` or `open`.
    Task "task",
    /// Formula, as the text has it.
    Formula "math",
    /// Name of a character that hides or reorders text, such as `U+202E`.
    Hidden "hidden",
    /// Keyword in code.
    Keyword "tk",
    /// String in code.
    CodeString "ts",
    /// Comment in code.
    Comment "tc",
    /// Number in code.
    Number "tn",
}
