//! Data flow of a session: private data, untrusted content, and egress.

use serde::{Deserialize, Serialize};

/// Kinds of data and egress that a session has accessed. Private data, untrusted content and egress together allow data
/// theft by prompt injection.
///
/// A *service* is a private network, or an origin to which requests carry a secret. What comes from it is private, and
/// sending it back there, where it is known, is no theft.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct DataFlow {
    /// Private data was read.
    pub reads_private: bool,
    /// Untrusted content, which third parties can write, was read.
    pub untrusted_content: bool,
    /// Data could be sent to external systems, if only to a service.
    pub can_send_out: bool,
    /// Private data of a service was read.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reads_service: bool,
    /// Data could be sent where others read it: to more than a service, or into a public service by a request that writes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub can_send_elsewhere: bool,
}

impl DataFlow {
    /// Returns the union of both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self {
            reads_private: self.reads_private || other.reads_private,
            untrusted_content: self.untrusted_content || other.untrusted_content,
            can_send_out: self.can_send_out || other.can_send_out,
            reads_service: self.reads_service || other.reads_service,
            can_send_elsewhere: self.can_send_elsewhere || other.can_send_elsewhere,
        }
    }

    /// Returns `true` if private data can be stolen: with untrusted content, data of files and the environment if it can
    /// be sent out, and data of a service if it can be sent elsewhere.
    pub fn is_complete(self) -> bool {
        let leaks = self.reads_private && self.can_send_out || self.reads_service && self.can_send_elsewhere;
        leaks && self.untrusted_content
    }
}
