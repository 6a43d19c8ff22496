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
        self.exposes_more_than(Self::default())
    }

    /// Returns `true` if private data can be stolen that could not be before: what a user allowed for the data of a service
    /// is not allowed for that of files.
    pub fn exposes_more_than(self, before: Self) -> bool {
        let ((files, services), (files_before, services_before)) = (self.exposed(), before.exposed());
        files && !files_before || services && !services_before
    }

    /// Returns the flow of a session to which the user attaches data. What was sent before cannot contain it: if the
    /// combination were complete, it is the next call which can send that completes it, and is judged.
    #[must_use]
    pub fn with_attached(self, data: Self) -> Self {
        let mut after = self.union(data);
        let ((files, services), (files_before, services_before)) = (after.exposed(), self.exposed());
        after.can_send_out &= !files || files_before;
        after.can_send_elsewhere &= !services || services_before;
        after
    }

    /// Returns `true` for data of files and the environment, and for data of services, if it can be stolen.
    fn exposed(self) -> (bool, bool) {
        let files = self.reads_private && self.can_send_out && self.untrusted_content;
        let services = self.reads_service && self.can_send_elsewhere && self.untrusted_content;
        (files, services)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(bits: u8) -> DataFlow {
        let has = |bit: u8| bits & (1 << bit) != 0;
        DataFlow {
            reads_private: has(0),
            untrusted_content: has(1),
            can_send_out: has(2),
            reads_service: has(3),
            can_send_elsewhere: has(4),
        }
    }

    #[test]
    fn flow_is_complete_with_data_a_way_out_and_untrusted_content() {
        for bits in 0..32 {
            let leaks = bits & 0b00101 == 0b00101 || bits & 0b11000 == 0b11000;
            assert_eq!(
                flow(bits).is_complete(),
                leaks && bits & 0b00010 != 0,
                "{bits:05b}"
            );
        }
    }

    #[test]
    fn data_of_files_and_of_services_is_exposed_apart() {
        let (files, services, both) = (flow(0b00111), flow(0b11010), flow(0b11111));
        for (after, before, exposes_more) in [
            (files, flow(0), true),
            (files, flow(0b00011), true),
            (files, files, false),
            (both, files, true),
            (both, services, true),
            (both, both, false),
            (services, both, false),
            (flow(0b01101), flow(0), false),
        ] {
            assert_eq!(
                after.exposes_more_than(before),
                exposes_more,
                "{after:?} {before:?}"
            );
        }
    }

    #[test]
    fn attached_data_never_completes_the_combination() {
        for session in 0..32 {
            for data in 0..32 {
                let (session, data) = (flow(session), flow(data));
                let after = session.with_attached(data);
                assert!(!after.exposes_more_than(session), "{session:?} {data:?}");
                // The call which can send as before does, unless the session was complete already.
                let sending = DataFlow {
                    can_send_out: true,
                    can_send_elsewhere: true,
                    ..DataFlow::default()
                };
                let all = session.union(data).union(sending);
                assert_eq!(
                    after.union(sending).exposes_more_than(after),
                    all.exposes_more_than(session),
                    "{session:?} {data:?}"
                );
            }
        }
    }

    #[test]
    fn union_of_flows_has_what_either_has() {
        for one in 0..32 {
            for other in 0..32 {
                assert_eq!(
                    flow(one).union(flow(other)),
                    flow(one | other),
                    "{one:05b} {other:05b}"
                );
            }
        }
    }
}
