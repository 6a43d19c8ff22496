//! Data flow of a session: private data, untrusted content, and egress.

use serde::{Deserialize, Serialize};

/// Kinds of data and egress that a session has accessed. The combination of all three allows data theft by prompt
/// injection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct DataFlow {
    /// Private data was read.
    pub reads_private: bool,
    /// Untrusted content, which third parties can write, was read.
    pub untrusted_content: bool,
    /// Data could be sent to external systems.
    pub can_send_out: bool,
}

impl DataFlow {
    /// Returns the union of both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self {
            reads_private: self.reads_private || other.reads_private,
            untrusted_content: self.untrusted_content || other.untrusted_content,
            can_send_out: self.can_send_out || other.can_send_out,
        }
    }

    /// Returns `true` if all three are set.
    pub fn is_complete(self) -> bool {
        self.reads_private && self.untrusted_content && self.can_send_out
    }
}
