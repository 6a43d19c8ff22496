//! What one call used.

use serde::{Deserialize, Serialize};

use crate::provider::Usage;

/// What one call used and did. Every call leaves one, also a failed or cancelled one.
///
/// Bytes are bytes, times are microseconds. Lists are cut at [`Receipt::MAX_ENTRIES`], and [`Receipt::omitted`] counts
/// what was cut.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Units of fuel used; one is about one WebAssembly instruction. The same call with the same input uses the same.
    pub fuel: u64,
    /// Wall time from start to end, with everything that the call waited for.
    pub wall_us: u64,
    /// Time that the guest and its host calls ran on a processor: the time inside polls of the call.
    pub cpu_us: u64,
    /// Largest sum at any moment of everything that counts as memory of the call: its linear memories and tables, and
    /// what the host held for it, such as open files, headers and values on their way.
    pub peak_memory: u64,
    /// Largest part of it that the host held.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub peak_host_memory: u64,
    /// Bytes of arguments given to the guest.
    pub bytes_in: u64,
    /// Bytes of content that the guest returned.
    pub bytes_out: u64,
    /// Bytes that the guest wrote to standard output, standard error and the log, kept or not.
    pub log_bytes: u64,
    /// Hosts contacted, as `host:port`, in order of first contact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Files opened, by their guest paths, in order of first opening.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileTouched>,
    /// Buckets used, by their names on the host, in order of first use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<BucketTouched>,
    /// What the guest asked for and did not get.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denials: Vec<Denial>,
    /// Entries left out of the lists above.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u64,
    /// What the session of an agent used, where the tool is one. Its fuel, bytes, hosts and files are those of its own
    /// calls together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Box<AgentUse>>,
}

/// What the session of an agent used that ran inside a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentUse {
    /// Requests to its model.
    pub steps: u64,
    /// Calls of its tools, those of further agents included.
    pub calls: u64,
    /// Bytes that those returned.
    pub bytes: u64,
    /// Tokens, those of further agents included.
    pub usage: Usage,
    /// What the tokens cost, in millionths of a unit of money; absent where the agent knows no prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
}

impl AgentUse {
    /// Adds what another session used. The cost is known where both are.
    pub fn add(&mut self, other: Self) {
        self.steps = self.steps.saturating_add(other.steps);
        self.calls = self.calls.saturating_add(other.calls);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.usage.add(other.usage);
        self.cost_micros = match (self.cost_micros, other.cost_micros) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            _ => None,
        };
    }
}

/// A file that a call opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTouched {
    /// Path as the guest sees it.
    pub path: String,
    /// Whether it was opened for writing, created, renamed or removed.
    pub write: bool,
}

/// A bucket that a call used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketTouched {
    /// Its name.
    pub bucket: String,
    /// Whether something in it was to be changed.
    pub write: bool,
}

/// Something that a guest asked for and did not get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// What kind of thing: `http`, `file`, `env`, `socket`, `dns`, `keyvalue`, …
    pub what: String,
    /// Which one, such as `example.com:443` or `/work/secret.txt`.
    pub target: String,
    /// For people: the grant that would allow it, as [`crate::Grant`] is written; absent if none would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_with: Option<String>,
    /// For people: the denial that refused it, although a grant allows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied_by: Option<String>,
}

impl Receipt {
    /// Entries kept in each list. A guest that opens a million files must not fill the host's memory with their names.
    pub const MAX_ENTRIES: usize = 64;

    /// Bytes of a text in a list, such as a path; whoever notes a longer one cuts it.
    pub const MAX_TEXT: usize = 4 << 10;

    /// Entries in all lists.
    pub fn entries(&self) -> usize {
        self.hosts.len() + self.files.len() + self.buckets.len() + self.denials.len()
    }

    /// Adds what another cell of the same call used: sums, and the largest of the peaks.
    pub fn merge(&mut self, other: Self) {
        // All fields by name, so that a new one cannot be forgotten here.
        let Self {
            fuel,
            wall_us,
            cpu_us,
            peak_memory,
            peak_host_memory,
            bytes_in,
            bytes_out,
            log_bytes,
            hosts,
            files,
            buckets,
            denials,
            omitted,
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
        self.agent = match (self.agent.take(), agent) {
            (Some(mut sum), Some(next)) => {
                sum.add(*next);
                Some(sum)
            }
            (sum, next) => sum.or(next),
        };
    }

    /// Notes a host that was contacted.
    pub fn note_host(&mut self, host: String) {
        if !self.hosts.contains(&host) {
            push_capped(&mut self.hosts, host, &mut self.omitted);
        }
    }

    /// Notes a file that was opened; a later opening for writing marks the earlier entry.
    pub fn note_file(&mut self, path: String, write: bool) {
        if let Some(known) = self.files.iter_mut().find(|f| f.path == path) {
            known.write |= write;
        } else {
            push_capped(&mut self.files, FileTouched { path, write }, &mut self.omitted);
        }
    }

    /// Notes a bucket that was used; a later change marks the earlier entry.
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

    /// Notes a denial; the same denial counts once.
    pub fn note_denial(&mut self, denial: Denial) {
        if !self.denials.contains(&denial) {
            push_capped(&mut self.denials, denial, &mut self.omitted);
        }
    }
}

fn push_capped<T>(list: &mut Vec<T>, entry: T, omitted: &mut u64) {
    if list.len() < Receipt::MAX_ENTRIES {
        list.push(entry);
    } else {
        *omitted += 1;
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde asks for"
)]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_cut_at_their_limit_and_the_rest_is_counted() {
        let mut receipt = Receipt::default();
        for i in 0..Receipt::MAX_ENTRIES {
            receipt.note_file(format!("/f{i}"), false);
        }
        assert_eq!((receipt.files.len(), receipt.omitted), (Receipt::MAX_ENTRIES, 0));
        receipt.note_file("/one-more".into(), false);
        assert_eq!((receipt.files.len(), receipt.omitted), (Receipt::MAX_ENTRIES, 1));
    }

    #[test]
    fn a_file_opened_twice_is_listed_once_and_written_if_either_opening_wrote() {
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
    fn merged_receipts_hold_every_part_of_both() {
        let receipt = |n: u64, name: &str| Receipt {
            fuel: n,
            wall_us: n,
            cpu_us: n,
            peak_memory: n,
            peak_host_memory: n,
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
            }],
            omitted: n,
            agent: Some(Box::new(AgentUse {
                steps: n,
                ..AgentUse::default()
            })),
        };
        let mut sum = receipt(1, "a");
        sum.merge(receipt(2, "b"));
        let sum = serde_json::to_value(&sum).unwrap();
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
            (&sum["peak_memory"], &sum["peak_host_memory"]),
            (&2.into(), &2.into())
        );
        for field in ["hosts", "files", "buckets", "denials"] {
            assert_eq!(sum[field].as_array().unwrap().len(), 2, "{field}");
        }
        assert_eq!(sum["agent"]["steps"], 3);
    }

    #[test]
    fn a_bucket_used_twice_is_listed_once_and_written_if_either_use_wrote() {
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
            });
        }
        assert_eq!(receipt.entries(), 1 + 2 + 3 + 4);
    }

    #[test]
    fn a_sum_of_agents_has_a_cost_only_where_both_are_known() {
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
