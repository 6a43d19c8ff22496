//! `memory_link`.

use toolcell_sdk::{Result, ToolError, output, tool};

use crate::graph::Link;
use crate::memory::label;
use crate::shelf::Shelf;

/// A link.
#[output]
pub(crate) struct Linked {
    from: String,
    relation: String,
    to: String,
    /// From 0 to 1.
    strength: f64,
    /// Whether the link is new, changed, unchanged, removed, or was not there to be removed.
    result: &'static str,
}

/// Say how one memory or task relates to another, so that finding one finds the other.
#[tool(title = "Link memories", idempotent)]
pub(crate) fn memory_link(
    /// Id of the memory or task where the link starts.
    from: String,
    /// Id of the memory or task where it leads to.
    to: String,
    /// How they relate, read from `from` to `to`: `because_of`, `part_of`, `contradicts`.
    relation: String,
    /// How strongly, from 0 to 1.
    #[default(1.0)]
    strength: f64,
    /// Remove this link instead.
    #[default(false)]
    remove: bool,
) -> Result<Linked> {
    let link = Link {
        from: from.parse()?,
        relation: label("relation", &relation)?,
        to: to.parse()?,
    };
    if link.from == link.to {
        return Err(ToolError::invalid("a link leads from one thing to another one"));
    }
    if !(0.0..=1.0).contains(&strength) {
        return Err(ToolError::invalid("`strength` lies between 0 and 1"));
    }
    let shelf = Shelf::open()?;
    let keys = shelf.keys()?;
    shelf.has(link.from, &keys)?;
    shelf.has(link.to, &keys)?;
    let is_there = keys.links.contains(&link);
    let result = match (remove, is_there) {
        (true, true) => {
            shelf.remove_link(&link)?;
            "removed"
        }
        (true, false) => "not there",
        (false, true) if shelf.strengths(&[&link])? == [strength] => "unchanged",
        (false, is_there) => {
            shelf.put_link(&link, strength)?;
            if is_there { "changed" } else { "new" }
        }
    };
    Ok(Linked {
        from: link.from.to_string(),
        relation: link.relation,
        to: link.to.to_string(),
        strength,
        result,
    })
}
