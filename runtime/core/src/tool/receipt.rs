//! Receipts: resource use and effects of calls.

use serde::{Deserialize, Serialize};

use crate::keyvalue::{Quota, is_bucket_name};
use crate::policy::Limits;
use crate::provider::Usage;

/// Resource use and effects of one call. Every call produces one, also if it fails or is cancelled.
///
/// Sizes are in bytes, times in microseconds. Lists are truncated at [`Receipt::MAX_ENTRIES`], and [`Receipt::omitted`]
/// counts the omitted entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Fuel used, in units of about one WebAssembly instruction. Deterministic for the same call and input.
    pub fuel: u64,
    /// Wall time from start to end, including all waiting.
    pub wall_us: u64,
    /// CPU time of the guest and its host calls: the time spent in polls of the call.
    pub cpu_us: u64,
    /// Peak of the total memory of the call: linear memories, tables, and host memory such as open files, headers and
    /// values in transit.
    pub peak_memory: u64,
    /// Peak of the host's share of that memory.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub peak_host_memory: u64,
    /// Total memory that a refused request would have needed, the largest of them: the memory limit was at least this much
    /// too low. 0 if none was refused.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub needed_memory: u64,
    /// Size of the arguments.
    pub bytes_in: u64,
    /// Size of the returned content.
    pub bytes_out: u64,
    /// Bytes written to standard output, standard error and the log, including dropped ones.
    pub log_bytes: u64,
    /// Hosts contacted, as `host:port`, in order of first contact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Files opened, as guest paths, in order of first access.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileTouched>,
    /// Buckets used, by their names on the host, in order of first use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<BucketTouched>,
    /// Denied operations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denials: Vec<Denial>,
    /// Number of entries omitted from the lists above.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u64,
    /// Name of the MCP server that ran the call, outside of the cells of calls: fuel, CPU time and memory are unknown and 0. Of a
    /// process, hosts, files, buckets and denials are unknown; of a server in a cell, they are those since its receipt
    /// before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// True if that server runs in a cell of its own, from its start to its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub server_in_cell: bool,
    /// Resource use of the agent, if the tool runs one. Its fuel, bytes, hosts and files are the totals of its own
    /// calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Box<AgentUse>>,
}

/// Resource use of an agent's session inside a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentUse {
    /// Requests to the model.
    pub steps: u64,
    /// Tool calls, including those of nested agents.
    pub calls: u64,
    /// Bytes of their results.
    pub bytes: u64,
    /// Tokens, including those of nested agents.
    pub usage: Usage,
    /// Cost of the tokens, in millionths of a currency unit; absent if the prices are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
}

impl AgentUse {
    /// Adds the use of another session. The total cost is known only if both costs are.
    pub fn add(&mut self, other: Self) {
        // All fields by name, so that a new one cannot be forgotten here.
        let Self {
            steps,
            calls,
            bytes,
            usage,
            cost_micros,
        } = other;
        self.steps = self.steps.saturating_add(steps);
        self.calls = self.calls.saturating_add(calls);
        self.bytes = self.bytes.saturating_add(bytes);
        self.usage.add(usage);
        self.cost_micros = match (self.cost_micros, cost_micros) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            _ => None,
        };
    }
}

/// A file opened by a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTouched {
    /// Path as the guest sees it.
    pub path: String,
    /// True if it was opened for writing, created, renamed or removed.
    pub write: bool,
}

/// A bucket used by a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketTouched {
    /// Name of the bucket.
    pub bucket: String,
    /// True if a change was attempted.
    pub write: bool,
}

/// What follows the name of a bucket in the target of its [`Denial::full_bucket`].
const FULL: &str = ": more than ";

/// A denied operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// Kind of the resource: `http`, `file`, `env`, `socket`, `dns`, `keyvalue`, …
    pub what: String,
    /// The resource, such as `example.com:443` or `/work/secret.txt`.
    pub target: String,
    /// For the user: the [`crate::Grant`] that would allow it; absent if none would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_with: Option<String>,
    /// For the user: the denial that overrides a grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied_by: Option<String>,
    /// The total that the largest refused operation would have needed, if a limit refused it: in the unit of the limit, and
    /// a lower bound, because the tool may have wanted more afterwards. 0 otherwise.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub needed: u64,
}

impl Denial {
    /// Returns the denial of an operation that went beyond a limit which its guest sees as an error ([`Limits::too_much`]).
    pub fn too_much(name: &str, limit: u64, needed: u64) -> Self {
        let what = match name.split_once('_') {
            Some(("http", _)) => "http",
            Some(("keyvalue", _)) => "keyvalue",
            _ => "file",
        };
        Self {
            what: what.into(),
            target: Limits::too_much(name, limit),
            allow_with: None,
            denied_by: None,
            needed,
        }
    }

    /// Returns the denial of a change with which a bucket would have more than `limit` keys or bytes.
    pub fn full_bucket(bucket: &str, limit: u64, of: Quota) -> Self {
        Self {
            what: "keyvalue".into(),
            target: format!("{bucket}{FULL}{limit} {of}"),
            allow_with: None,
            denied_by: None,
            needed: 0,
        }
    }

    /// Returns the bucket, its limit and of what, if this is a [`Denial::full_bucket`].
    pub fn as_full_bucket(&self) -> Option<(&str, u64, Quota)> {
        let (bucket, rest) = self.target.split_once(FULL)?;
        let (limit, of) = rest.split_once(' ')?;
        let of = [Quota::Keys, Quota::Bytes]
            .into_iter()
            .find(|quota| quota.to_string() == of)?;
        let is_one = self.what == "keyvalue" && self.allow_with.is_none() && is_bucket_name(bucket);
        is_one.then_some((bucket, limit.parse().ok()?, of))
    }

    /// True if both are the same denial, whatever was needed.
    fn is_same(&self, other: &Self) -> bool {
        // Exhaustive destructuring, so that a new field cannot be forgotten.
        let Self {
            what,
            target,
            allow_with,
            denied_by,
            needed: _,
        } = self;
        (what, target, allow_with, denied_by)
            == (&other.what, &other.target, &other.allow_with, &other.denied_by)
    }
}

impl Receipt {
    /// Maximum number of entries in each list. A guest that opens a million files must not fill the host's memory with
    /// their names.
    pub const MAX_ENTRIES: usize = 64;

    /// Maximum size of a text in a list, such as a path, in bytes; the recording code truncates longer ones.
    pub const MAX_TEXT: usize = 4 << 10;

    /// Returns the number of entries in all lists.
    pub fn entries(&self) -> usize {
        self.hosts.len() + self.files.len() + self.buckets.len() + self.denials.len()
    }

    /// Adds the receipt of another cell of the same call: sums of totals, maximum of peaks.
    pub fn merge(&mut self, other: Self) {
        // Exhaustive destructuring, so that a new field cannot be forgotten.
        let Self {
            fuel,
            wall_us,
            cpu_us,
            peak_memory,
            peak_host_memory,
            needed_memory,
            bytes_in,
            bytes_out,
            log_bytes,
            hosts,
            files,
            buckets,
            denials,
            omitted,
            server,
            server_in_cell,
            agent,
        } = other;
        for (sum, next) in [
            (&mut self.fuel, fuel),
            (&mut self.wall_us, wall_us),
            (&mut self.cpu_us, cpu_us),
            (&mut self.bytes_in, bytes_in),
            (&mut self.bytes_out, bytes_out),
            (&mut self.log_bytes, log_bytes),
            (&mut self.omitted, omitted),
        ] {
            *sum = sum.saturating_add(next);
        }
        self.peak_memory = self.peak_memory.max(peak_memory);
        self.peak_host_memory = self.peak_host_memory.max(peak_host_memory);
        self.needed_memory = self.needed_memory.max(needed_memory);
        for host in hosts {
            self.note_host(host);
        }
        for FileTouched { path, write } in files {
            self.note_file(path, write);
        }
        for BucketTouched { bucket, write } in buckets {
            self.note_bucket(&bucket, write);
        }
        for denial in denials {
            self.note_denial(denial);
        }
        self.server_in_cell = match &self.server {
            Some(_) => self.server_in_cell,
            None => server_in_cell,
        };
        self.server = self.server.take().or(server);
        self.agent = match (self.agent.take(), agent) {
            (Some(mut sum), Some(next)) => {
                sum.add(*next);
                Some(sum)
            }
            (sum, next) => sum.or(next),
        };
    }

    /// Removes hosts, files, buckets, denials and the number of those omitted, and returns them as a receipt without anything else.
    pub fn take_entries(&mut self) -> Self {
        Self {
            hosts: std::mem::take(&mut self.hosts),
            files: std::mem::take(&mut self.files),
            buckets: std::mem::take(&mut self.buckets),
            denials: std::mem::take(&mut self.denials),
            omitted: std::mem::take(&mut self.omitted),
            ..Self::default()
        }
    }

    /// Records a contacted host.
    pub fn note_host(&mut self, host: String) {
        if !self.hosts.contains(&host) {
            push_capped(&mut self.hosts, host, &mut self.omitted);
        }
    }

    /// Records an opened file; a later opening for writing updates the existing entry.
    pub fn note_file(&mut self, path: String, write: bool) {
        if let Some(known) = self.files.iter_mut().find(|f| f.path == path) {
            known.write |= write;
        } else {
            push_capped(&mut self.files, FileTouched { path, write }, &mut self.omitted);
        }
    }

    /// Records a used bucket; a later change updates the existing entry.
    pub fn note_bucket(&mut self, bucket: &str, write: bool) {
        if let Some(known) = self.buckets.iter_mut().find(|b| b.bucket == bucket) {
            known.write |= write;
        } else {
            let bucket = bucket.to_owned();
            push_capped(
                &mut self.buckets,
                BucketTouched { bucket, write },
                &mut self.omitted,
            );
        }
    }

    /// Records a denial; identical denials are recorded once, with the largest need.
    pub fn note_denial(&mut self, denial: Denial) {
        if let Some(known) = self.denials.iter_mut().find(|known| known.is_same(&denial)) {
            known.needed = known.needed.max(denial.needed);
        } else {
            push_capped(&mut self.denials, denial, &mut self.omitted);
        }
    }
}

fn push_capped<T>(list: &mut Vec<T>, entry: T, omitted: &mut u64) {
    if list.len() < Receipt::MAX_ENTRIES {
        list.push(entry);
    } else {
        *omitted = omitted.saturating_add(1);
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by serde")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_truncated_at_their_limit_and_the_rest_is_counted() {
        let mut receipt = Receipt::default();
        for i in 0..Receipt::MAX_ENTRIES {
            receipt.note_file(format!("/f{i}"), false);
        }
        assert_eq!((receipt.files.len(), receipt.omitted), (Receipt::MAX_ENTRIES, 0));
        receipt.note_file("/one-more".into(), false);
        assert_eq!((receipt.files.len(), receipt.omitted), (Receipt::MAX_ENTRIES, 1));
    }

    #[test]
    fn file_opened_twice_is_listed_once_with_combined_access() {
        let mut receipt = Receipt::default();
        receipt.note_file("/a".into(), false);
        receipt.note_file("/a".into(), true);
        receipt.note_file("/a".into(), false);
        assert_eq!(
            receipt.files,
            [FileTouched {
                path: "/a".into(),
                write: true
            }]
        );
    }

    #[test]
    fn merged_receipts_contain_every_part_of_both() {
        let receipt = |n: u64, name: &str| Receipt {
            fuel: n,
            wall_us: n,
            cpu_us: n,
            peak_memory: n,
            peak_host_memory: n,
            needed_memory: n,
            bytes_in: n,
            bytes_out: n,
            log_bytes: n,
            hosts: vec![name.into()],
            files: vec![FileTouched {
                path: name.into(),
                write: false,
            }],
            buckets: vec![BucketTouched {
                bucket: name.into(),
                write: true,
            }],
            denials: vec![Denial {
                what: name.into(),
                target: name.into(),
                allow_with: None,
                denied_by: None,
                needed: 0,
            }],
            omitted: n,
            server: Some(name.into()),
            server_in_cell: name == "a",
            agent: Some(Box::new(AgentUse {
                steps: n,
                ..AgentUse::default()
            })),
        };
        let mut sum = receipt(1, "a");
        sum.merge(receipt(2, "b"));
        let sum = serde_json::to_value(&sum).unwrap();
        // The server of the first attempt stays, and so does where it ran.
        assert_eq!(
            (&sum["server"], &sum["server_in_cell"]),
            (&"a".into(), &true.into())
        );
        for field in [
            "fuel",
            "wall_us",
            "cpu_us",
            "bytes_in",
            "bytes_out",
            "log_bytes",
            "omitted",
        ] {
            assert_eq!(sum[field], 3, "{field}");
        }
        assert_eq!(
            (
                &sum["peak_memory"],
                &sum["peak_host_memory"],
                &sum["needed_memory"]
            ),
            (&2.into(), &2.into(), &2.into())
        );
        for field in ["hosts", "files", "buckets", "denials"] {
            assert_eq!(sum[field].as_array().unwrap().len(), 2, "{field}");
        }
        assert_eq!(sum["agent"]["steps"], 3);
        let mut first = Receipt::default();
        first.merge(receipt(1, "a"));
        assert!(first.server_in_cell && first.server.is_some());
    }

    #[test]
    fn bucket_used_twice_is_listed_once_with_combined_access() {
        let mut receipt = Receipt::default();
        receipt.note_bucket("a", false);
        receipt.note_bucket("a", true);
        receipt.note_bucket("b", false);
        let touched = |bucket: &str, write| BucketTouched {
            bucket: bucket.into(),
            write,
        };
        assert_eq!(receipt.buckets, [touched("a", true), touched("b", false)]);
    }

    #[test]
    fn entries_of_all_lists_are_counted() {
        let mut receipt = Receipt::default();
        assert_eq!(receipt.entries(), 0);
        receipt.note_host("a:1".into());
        for file in ["/a", "/b"] {
            receipt.note_file(file.into(), false);
        }
        for bucket in ["a", "b", "c"] {
            receipt.note_bucket(bucket, false);
        }
        for target in ["a", "b", "c", "d"] {
            receipt.note_denial(Denial {
                what: "file".into(),
                target: target.into(),
                allow_with: None,
                denied_by: None,
                needed: 0,
            });
        }
        assert_eq!(receipt.entries(), 1 + 2 + 3 + 4);
    }

    #[test]
    fn sum_of_agents_has_a_cost_only_where_both_are_known() {
        let used = |n: u64, cost_micros| AgentUse {
            steps: n,
            calls: n + 1,
            bytes: n + 2,
            usage: Usage {
                output: n + 3,
                ..Usage::default()
            },
            cost_micros,
        };
        for (a, b, cost) in [
            (Some(5), Some(7), Some(12)),
            (Some(5), None, None),
            (None, Some(7), None),
        ] {
            let mut sum = used(1, a);
            sum.add(used(10, b));
            let found = (sum.steps, sum.calls, sum.bytes, sum.usage.output, sum.cost_micros);
            assert_eq!(found, (11, 13, 15, 17, cost));
        }
    }
}
