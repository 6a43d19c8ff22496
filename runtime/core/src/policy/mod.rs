//! What a call may do: grants and limits, plain data.
//!
//! [`Policy::default`] grants nothing and sets limits that suit ordinary tools. Policies are made by people (the command
//! line reads them from configuration); nothing that a tool or a model says changes one.

pub mod approval;
pub mod denial;
pub mod grant;
pub mod grant_risk;
pub mod place;
pub mod protected;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::denial::{BucketDenial, Denials, DeniedUse, PathDenial};
use self::grant::{Grant, InvalidGrant};
use crate::secret::SecretBinding;

/// Grants and limits of one tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// What the tool may reach. Empty by default.
    pub grants: Grants,
    /// How much it may use.
    pub limits: Limits,
}

/// What a tool may reach. Everything that is not listed is denied.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Grants {
    /// Directories of the host.
    pub dirs: Vec<DirGrant>,
    /// Environment variables, as names and the values that the guest sees.
    pub env: Vec<(String, String)>,
    /// HTTP requests.
    pub http: Vec<HttpGrant>,
    /// Buckets of the host's key-value store.
    pub buckets: Vec<BucketGrant>,
    /// Secrets that the host adds to requests; their values are not here.
    pub secrets: Vec<SecretBinding>,
    /// What is refused whatever else is granted.
    #[serde(skip_serializing_if = "Denials::is_empty")]
    pub denied: Denials,
}

/// A directory of the host that a guest sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirGrant {
    /// Directory on the host.
    pub host: PathBuf,
    /// Absolute path at which the guest sees it, such as `/work`.
    pub guest: String,
    /// What the guest may do there.
    pub access: DirAccess,
    /// A directory on the host that takes all changes in place of `host`, which stays as it is; made where it does not
    /// exist. The guest sees both as one. Afterwards the changes can be listed, and carried out or thrown away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlay: Option<PathBuf>,
}

/// What a guest may do in a directory and all below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DirAccess {
    /// List directories and read files. Without it nothing is visible.
    pub read: bool,
    /// Change the contents of existing files.
    pub write: bool,
    /// Make new files, directories and links.
    pub create: bool,
    /// Remove or rename files and directories.
    pub delete: bool,
}

/// HTTP requests that a guest may send. Each field narrows the grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpGrant {
    /// Host: a DNS name, `*.example.com` for every name below it (not `example.com` itself), or an IP address in its
    /// canonical form. Compared without regard to case, after IDNA to ASCII.
    pub host: String,
    /// Ports; empty means the default port of the scheme.
    #[serde(default)]
    pub ports: Vec<u16>,
    /// Schemes, `https` and `http`; empty means `https` alone.
    #[serde(default)]
    pub schemes: Vec<String>,
    /// Methods in capitals; empty means `GET` and `HEAD`.
    #[serde(default)]
    pub methods: Vec<String>,
    /// Prefix of the path, by whole segments; empty means every path.
    #[serde(default)]
    pub path: String,
    /// Whether the name may lead to a private, loopback or link-local address.
    #[serde(default)]
    pub private: bool,
}

/// A bucket of the host's key-value store that a guest may open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketGrant {
    /// Name of the bucket.
    pub bucket: String,
    /// The name under which the guest opens it.
    pub guest: String,
    /// Whether the guest may change what is in it.
    pub write: bool,
}

/// How much one call may use.
///
/// | limit | unit | default | why |
/// |---|---|---|---|
/// | `fuel` | about one instruction each | 20,000,000,000 | some ten seconds of work; the wall time ends most runaways first |
/// | `wall_ms` | milliseconds | 30,000 | longer than a slow web page, shorter than a person's patience |
/// | `memory` | bytes: linear memories, tables, and what the host holds for the call | 256 MiB | a language runtime and a large document beside it |
/// | `output` | bytes | 4 MiB | more than any context window reads; the loop cuts further for the model |
/// | `log` | bytes of stdout, stderr and log together | 64 KiB | enough to find an error in |
/// | `table_elements` | elements, all tables together | 200,000 | the largest language runtimes have some ten thousand |
/// | `handles` | resources that a guest holds | 1,000 | open files, streams and requests at one time |
/// | `http_requests` | requests of one call | 64 | a tool that crawls asks for more by name |
/// | `http_body` | bytes of one response body | 16 MiB | a large document |
/// | `file_bytes` | bytes written to files in one call | 256 MiB | a large build; a runaway fills no disk |
/// | `file_count` | files and directories made in one call | 10,000 | an unpacked archive; a runaway uses up no inodes |
/// | `keyvalue_bytes` | bytes of keys and values, read and written in one call | 256 MiB | a full bucket, four times |
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Units of fuel.
    pub fuel: u64,
    /// Wall time in milliseconds, with everything that the call waits for.
    pub wall_ms: u64,
    /// Bytes of memory: linear memories, tables, and what the host holds for the call, all together.
    pub memory: u64,
    /// Bytes of an answer.
    pub output: u64,
    /// Bytes of standard output, standard error and log messages that are kept; the rest is counted and dropped.
    pub log: u64,
    /// Table elements, all tables together.
    pub table_elements: u64,
    /// Resources that a guest holds at one time.
    pub handles: u32,
    /// HTTP requests of one call.
    pub http_requests: u32,
    /// Bytes of one HTTP response body.
    pub http_body: u64,
    /// Bytes written to files in one call.
    pub file_bytes: u64,
    /// Files and directories made in one call.
    pub file_count: u64,
    /// Bytes of keys and values that one call reads from buckets and writes to them.
    pub keyvalue_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fuel: 20_000_000_000,
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
    /// The wall time as a duration.
    pub fn wall_time(&self) -> Duration {
        Duration::from_millis(self.wall_ms)
    }
}

impl Policy {
    /// The default limits and these grants, as people write them ([`Grant`]): `read=docs`, `env=LANG=C`,
    /// `http=example.com`. A relative directory starts where the process works when a call opens it.
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
    /// When a line is no grant, names a variable without its value (libraries read no environment), or puts a second
    /// directory or bucket where the tool already sees one.
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
                    return Err(format!("a directory is granted at `{guest}` already"));
                }
                self.dirs.push(DirGrant {
                    host: host.into(),
                    guest,
                    access,
                    overlay: None,
                });
            }
            Grant::Env { name, value } => {
                let value = value.ok_or_else(|| format!("its value is missing: `env={name}=VALUE`"))?;
                self.env.push((name, value));
            }
            Grant::Http(http) => self.http.push(http),
            Grant::Bucket(bucket) => {
                let guest = &bucket.guest;
                if self.buckets.iter().any(|known| known.guest == *guest) {
                    return Err(format!("a bucket is granted under the name `{guest}` already"));
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
    /// Read only.
    pub const READ: Self = Self {
        read: true,
        write: false,
        create: false,
        delete: false,
    };
    /// Everything.
    pub const WRITE: Self = Self {
        read: true,
        write: true,
        create: true,
        delete: true,
    };

    /// Whether anything can be changed.
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
    fn a_policy_is_made_of_grants_as_people_write_them() {
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
    fn each_right_but_reading_changes_a_directory() {
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
    fn denials_stand_beside_the_grants_of_a_policy() {
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
    fn a_line_that_cannot_be_granted_is_refused_with_its_reason() {
        for (lines, reason) in [
            (vec!["reed=."], "`reed` is none of"),
            (vec!["env=HOME"], "its value is missing: `env=HOME=VALUE`"),
            (vec!["read=.", "read=other:/"], "granted at `/` already"),
            (vec!["keyvalue=a", "keyvalue-read=b:a"], "the name `a` already"),
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
}
