//! Policies: grants and limits of a call, as plain data.
//!
//! [`Policy::default`] grants nothing and sets limits that suit ordinary tools. Policies come from the embedder (the
//! CLI reads them from configuration); no output of a tool or model changes one.

pub mod approval;
pub mod denial;
pub mod grant;
pub mod grant_risk;
pub mod place;
pub mod protected;
pub mod url_reading;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::denial::{BucketDenial, Denials, DeniedUse, PathDenial};
use self::grant::{Grant, InvalidGrant};
use crate::secret::SecretBinding;
use crate::units;

/// Grants and limits of one tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Resources that the tool may access. Empty by default.
    pub grants: Grants,
    /// Limits on the resource use of each call.
    pub limits: Limits,
}

/// Resources that a tool may access. Everything that is not listed is denied.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Grants {
    /// Directories of the host.
    pub dirs: Vec<DirGrant>,
    /// Environment variables, as pairs of name and value.
    pub env: Vec<(String, String)>,
    /// HTTP requests.
    pub http: Vec<HttpGrant>,
    /// Buckets of the host's key-value store.
    pub buckets: Vec<BucketGrant>,
    /// Secrets that the host adds to requests; the values are stored elsewhere ([`Secrets`](crate::Secrets)).
    pub secrets: Vec<SecretBinding>,
    /// Denials, which override all grants.
    #[serde(skip_serializing_if = "Denials::is_empty")]
    pub denied: Denials,
}

/// A directory of the host that is visible to a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirGrant {
    /// Directory on the host.
    pub host: PathBuf,
    /// Absolute path at which the guest sees it, such as `/work`.
    pub guest: String,
    /// Access rights of the guest.
    pub access: DirAccess,
    /// Directory on the host that receives all changes instead of `host`, which stays unmodified; created if missing.
    /// The guest sees the merged content. Afterwards the changes can be listed, and committed or discarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlay: Option<PathBuf>,
}

/// Access rights to a directory and everything below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DirAccess {
    /// List directories and read files. Without this right nothing is visible.
    pub read: bool,
    /// Change the contents of existing files.
    pub write: bool,
    /// Create files, directories and links.
    pub create: bool,
    /// Remove or rename files and directories.
    pub delete: bool,
}

/// HTTP requests that a guest may send. Each field narrows the grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpGrant {
    /// Host: a DNS name, `*.example.com` for every name below it (not `example.com` itself), or an IP address in its
    /// canonical form. Compared case-insensitively, after IDNA to ASCII.
    pub host: String,
    /// Ports; empty means the default port of the scheme.
    #[serde(default)]
    pub ports: Vec<u16>,
    /// Schemes, `https` and `http`; empty means `https` alone.
    #[serde(default)]
    pub schemes: Vec<String>,
    /// Methods in upper case; empty means `GET` and `HEAD`.
    #[serde(default)]
    pub methods: Vec<String>,
    /// Path prefix, by whole segments; empty means every path.
    #[serde(default)]
    pub path: String,
    /// Allows the name to resolve to a private, loopback or link-local address.
    #[serde(default)]
    pub private: bool,
}

/// A bucket of the host's key-value store that a guest may open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketGrant {
    /// Name of the bucket.
    pub bucket: String,
    /// Name under which the guest opens it.
    pub guest: String,
    /// Allows changes to the bucket.
    pub write: bool,
}

/// Resource limits of one call.
///
/// | limit | unit | default | reason |
/// |---|---|---|---|
/// | `fuel` | about one instruction each | 1,000,000,000,000 | more than any language computes in the wall time, which is the first limit |
/// | `wall_ms` | milliseconds | 30,000 | longer than a slow web page, short enough for a waiting user |
/// | `memory` | bytes: linear memories, tables, and what the host holds for the call | 256 MiB | a language runtime and a large document beside it |
/// | `output` | bytes | 4 MiB | more than any context window holds; the loop truncates further for the model |
/// | `log` | bytes of stdout, stderr and log together | 64 KiB | enough to find an error |
/// | `table_elements` | elements, all tables together | 200,000 | the largest language runtimes have some ten thousand |
/// | `handles` | resources that a guest holds | 1,000 | open files, streams and requests at one time |
/// | `http_requests` | requests of one call | 64 | a crawler needs a higher limit in its configuration |
/// | `http_body` | bytes of one response body | 16 MiB | a large document |
/// | `file_bytes` | bytes written to files in one call | 256 MiB | a large build; a runaway fills no disk |
/// | `file_count` | files and directories created in one call | 10,000 | an unpacked archive; a runaway uses up no inodes |
/// | `keyvalue_bytes` | bytes of keys and values, read and written in one call | 256 MiB | a full bucket, twice |
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Fuel, in units of about one instruction.
    pub fuel: u64,
    /// Wall time in milliseconds, including all waiting.
    pub wall_ms: u64,
    /// Bytes of memory: linear memories, tables, and what the host holds for the call, in total.
    pub memory: u64,
    /// Bytes of a result.
    pub output: u64,
    /// Bytes of standard output, standard error and log messages that are kept; the rest is counted and dropped.
    pub log: u64,
    /// Table elements, in total over all tables.
    pub table_elements: u64,
    /// Resources that a guest holds at a time.
    pub handles: u32,
    /// HTTP requests of one call.
    pub http_requests: u32,
    /// Bytes of one HTTP response body.
    pub http_body: u64,
    /// Bytes written to files in one call.
    pub file_bytes: u64,
    /// Files and directories created in one call.
    pub file_count: u64,
    /// Bytes of keys and values that one call reads from buckets and writes to them.
    pub keyvalue_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fuel: 1_000_000_000_000,
            wall_ms: 30_000,
            memory: 256 << 20,
            output: 4 << 20,
            log: 64 << 10,
            table_elements: 200_000,
            handles: 1_000,
            http_requests: 64,
            http_body: 16 << 20,
            file_bytes: 256 << 20,
            file_count: 10_000,
            keyvalue_bytes: 256 << 20,
        }
    }
}

impl Limits {
    /// Returns the wall time as a duration.
    pub fn wall_time(&self) -> Duration {
        Duration::from_millis(self.wall_ms)
    }

    /// Returns the target of the [`Denial`](crate::receipt::Denial) in the receipt of a call that went beyond one of the
    /// limits which its guest sees as an error: `http_requests`, `http_body`, `file_bytes`, `file_count` or `keyvalue_bytes`. No
    /// path, no URL and no bucket looks like it.
    pub fn too_much(name: &str, limit: u64) -> String {
        let counted = |unit: &str| {
            let s = if limit == 1 { "" } else { "s" };
            format!("{} {unit}{s}", units::count(limit))
        };
        let limit = match name {
            "http_requests" => format!("{} in one call", counted("request")),
            "http_body" => format!("{} in the body of one response", units::size(limit)),
            "file_bytes" => format!("{} written in one call", units::size(limit)),
            "keyvalue_bytes" => format!("{} of buckets in one call", units::size(limit)),
            _ => format!("{} created in one call", counted("file")),
        };
        format!("more than {limit}")
    }
}

impl Policy {
    /// Creates a policy with default limits from grants in text form ([`Grant`]): `read=docs`, `env=LANG=C`,
    /// `http=example.com`. A relative directory is resolved against the working directory of the process when a call
    /// opens it.
    ///
    /// ```
    /// use toolcell_core::Policy;
    ///
    /// let policy = Policy::granting(["read=docs", "http=*.example.com"])?;
    /// assert_eq!(policy.grants.dirs[0].guest, "/docs");
    /// # Ok::<(), toolcell_core::grant::InvalidGrant>(())
    /// ```
    ///
    /// # Errors
    /// If a line is not a valid grant, names a variable without a value (libraries do not read the environment), or
    /// maps a second directory or bucket to a name in use.
    pub fn granting<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidGrant> {
        let mut policy = Self::default();
        for line in lines {
            let added = policy.grants.add(line.parse()?);
            added.map_err(|reason| InvalidGrant {
                line: line.to_owned(),
                reason,
            })?;
        }
        Ok(policy)
    }
}

impl Grants {
    fn add(&mut self, grant: Grant) -> Result<(), String> {
        let by = grant.to_string();
        match grant {
            Grant::Dir { host, guest, access } => {
                let guest = guest.unwrap_or_else(|| Grant::guest_path(&host));
                if self.dirs.iter().any(|known| known.guest == guest) {
                    return Err(format!("a directory is already granted at `{guest}`"));
                }
                self.dirs.push(DirGrant {
                    host: host.into(),
                    guest,
                    access,
                    overlay: None,
                });
            }
            Grant::Env { name, value } => {
                let value = value.ok_or_else(|| format!("value missing, expected `env={name}=VALUE`"))?;
                self.env.push((name, value));
            }
            Grant::Http(http) => self.http.push(http),
            Grant::Bucket(bucket) => {
                let guest = &bucket.guest;
                if self.buckets.iter().any(|known| known.guest == *guest) {
                    return Err(format!("a bucket is already granted under the name `{guest}`"));
                }
                self.buckets.push(bucket);
            }
            Grant::Deny { host } => self.denied.paths.push(PathDenial {
                host: host.into(),
                uses: DeniedUse::All,
                by,
            }),
            Grant::DenyHttp(denial) => self.denied.http.push(denial),
            Grant::DenyBucket { bucket } => self.denied.buckets.push(BucketDenial { bucket, by }),
        }
        Ok(())
    }
}

impl DirAccess {
    /// Read access only.
    pub const READ: Self = Self {
        read: true,
        write: false,
        create: false,
        delete: false,
    };
    /// Full access.
    pub const WRITE: Self = Self {
        read: true,
        write: true,
        create: true,
        delete: true,
    };

    /// Returns `true` if any right other than reading is set.
    pub fn can_change(self) -> bool {
        self.write || self.create || self.delete
    }
}

impl Default for DirAccess {
    fn default() -> Self {
        Self::READ
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_is_built_from_grant_lines() {
        let policy = Policy::granting([
            "write=./out",
            "env=LANG=C",
            "http=POST example.com",
            "keyvalue=notes",
        ])
        .unwrap();
        let dir = &policy.grants.dirs[0];
        assert_eq!(
            (dir.host.as_path(), dir.guest.as_str()),
            ("./out".as_ref(), "/out")
        );
        assert_eq!(dir.access, DirAccess::WRITE);
        assert_eq!(policy.grants.env, [("LANG".to_owned(), "C".to_owned())]);
        assert_eq!(policy.grants.http[0].methods, ["POST"]);
        assert_eq!(policy.grants.buckets[0].bucket, "notes");
        assert_eq!(policy.limits, Limits::default());
        assert_eq!(Policy::granting([]), Ok(Policy::default()));
    }

    #[test]
    fn every_right_but_reading_allows_changes() {
        let access = |read, write, create, delete| DirAccess {
            read,
            write,
            create,
            delete,
        };
        for (access, can_change) in [
            (access(true, false, false, false), false),
            (access(false, false, false, false), false),
            (access(true, true, false, false), true),
            (access(false, false, true, false), true),
            (access(false, false, false, true), true),
        ] {
            assert_eq!(access.can_change(), can_change, "{access:?}");
        }
    }

    #[test]
    fn denials_are_part_of_the_grants_of_a_policy() {
        let lines = [
            "write=.",
            "deny=private",
            "deny-http=example.com",
            "deny-keyvalue=a",
        ];
        let denied = Policy::granting(lines).unwrap().grants.denied;
        assert_eq!(denied.paths[0].host.to_str(), Some("private"));
        assert_eq!(denied.http[0].host, "example.com");
        assert_eq!(denied.buckets[0].bucket, "a");
        assert!(!denied.programs);
        let by = [&denied.paths[0].by, &denied.http[0].by, &denied.buckets[0].by];
        assert_eq!(by, ["deny=private", "deny-http=example.com", "deny-keyvalue=a"]);
    }

    #[test]
    fn invalid_line_is_rejected_with_its_reason() {
        for (lines, reason) in [
            (vec!["reed=."], "unknown kind `reed`"),
            (vec!["env=HOME"], "value missing, expected `env=HOME=VALUE`"),
            (vec!["read=.", "read=other:/"], "already granted at `/`"),
            (vec!["keyvalue=a", "keyvalue-read=b:a"], "under the name `a`"),
        ] {
            let error = Policy::granting(lines).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn wall_time_is_given_in_milliseconds() {
        let limits = Limits {
            wall_ms: 1_500,
            ..Limits::default()
        };
        assert_eq!(limits.wall_time(), Duration::from_millis(1_500));
    }

    #[test]
    fn address_may_be_followed_by_a_path_and_not_by_a_range() {
        for (line, is_valid) in [
            ("http=10.0.0.1", true),
            ("http=10.0.0.1/", true),
            ("http=10.0.0.1/a", true),
            ("http=10.0.0.1/8", false),
            ("http=example.com/8", true),
        ] {
            assert_eq!(Policy::granting([line]).is_ok(), is_valid, "{line}");
        }
    }
}
