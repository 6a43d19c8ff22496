//! Text form of grants: one line each, the same in configuration, on the command line, in a lock file and in the hint
//! of a denial.
//!
//! | line | meaning |
//! |---|---|
//! | `read=PATH` | list the directory and read the files below it |
//! | `write=PATH` | read, change, create and delete below it |
//! | `read+create=PATH` | any combination of `read`, `modify`, `create`, `delete` |
//! | `read=PATH:GUEST` | the same, seen by the tool at the absolute path GUEST |
//! | `env=NAME` | the environment variable of that name |
//! | `env=NAME=VALUE` | a variable with this value |
//! | `http=example.com` | `GET` and `HEAD` over `https` on port 443 |
//! | `http=GET,POST https://*.example.com:8443/api` | these methods, every name below `example.com`, this port, paths below `/api` |
//! | `http=http://127.0.0.1:8080` | a private address, allowed because the grant names it |
//! | `http-private=https://intranet.example` | a name that may resolve to a private address |
//! | `http=*` | every public host |
//! | `keyvalue=NAME` | read and change the bucket of that name |
//! | `keyvalue-read=NAME` | read the bucket |
//! | `keyvalue=NAME:GUEST` | the same, seen by the tool under the name GUEST |
//!
//! Three kinds of lines deny. They override every grant, in any order:
//!
//! | line | meaning |
//! |---|---|
//! | `deny=PATH` | the file, or the directory with everything below it; it need not exist yet |
//! | `deny-http=PATTERN` | matching requests, in the syntax of `http=`; omitted parts match every method, scheme, port and path |
//! | `deny-keyvalue=NAME` | the bucket of that name |

mod parse;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::denial::HttpDenial;
use crate::policy::{BucketGrant, DirAccess, HttpGrant};

/// A parsed grant. [`std::fmt::Display`] prints the shortest equivalent line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Grant {
    /// A directory; the paths are kept as written.
    Dir {
        /// Directory on the host, possibly relative.
        host: String,
        /// Absolute path at which the guest sees it; `None` means the same path, with relative paths placed below `/`.
        guest: Option<String>,
        /// Access rights of the guest.
        access: DirAccess,
    },
    /// An environment variable.
    Env {
        /// Name of the variable.
        name: String,
        /// Value of the variable; `None` means the host's value.
        value: Option<String>,
    },
    /// HTTP requests.
    Http(HttpGrant),
    /// A bucket of the host's key-value store.
    Bucket(BucketGrant),
    /// A denied file or directory; the path is kept as written.
    Deny {
        /// Path on the host, possibly relative.
        host: String,
    },
    /// Denied HTTP requests.
    DenyHttp(HttpDenial),
    /// A denied bucket.
    DenyBucket {
        /// Name of the bucket.
        bucket: String,
    },
}

/// A line that is not a valid grant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid grant `{}`: {reason}", line.escape_debug())]
pub struct InvalidGrant {
    /// The rejected line.
    pub line: String,
    /// Reason for the rejection.
    pub reason: String,
}

impl Grant {
    /// Returns `true` if the line denies instead of granting.
    pub fn is_denial(&self) -> bool {
        match self {
            Self::Deny { .. } | Self::DenyHttp(_) | Self::DenyBucket { .. } => true,
            Self::Dir { .. } | Self::Env { .. } | Self::Http(_) | Self::Bucket(_) => false,
        }
    }

    /// Returns the path at which a guest sees a directory granted as `host`: the written path taken as absolute (`.` is
    /// `/`, `./docs` is `/docs`, `/data` is `/data`), so that paths relative to the working directory of the user mean
    /// the same to the guest.
    pub fn guest_path(host: &str) -> String {
        let mut parts: Vec<&str> = Vec::new();
        for part in host.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop();
                }
                part => parts.push(part),
            }
        }
        format!("/{}", parts.join("/"))
    }
}

/// Writes the pattern of HTTP requests after the `=` of a line.
fn write_http(
    f: &mut std::fmt::Formatter<'_>,
    methods: &[String],
    schemes: &[String],
    host: &str,
    ports: &[u16],
    path: &str,
) -> std::fmt::Result {
    if !methods.is_empty() {
        write!(f, "{} ", methods.join(","))?;
    }
    if let [scheme] = schemes {
        write!(f, "{scheme}://")?;
    }
    f.write_str(host)?;
    if let [port] = ports {
        write!(f, ":{port}")?;
    }
    f.write_str(path)
}

fn bracketless(host: &str) -> &str {
    host.strip_prefix('[')
        .and_then(|h| h.strip_suffix(']'))
        .unwrap_or(host)
}

impl std::fmt::Display for Grant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dir { host, guest, access } => {
                if *access == DirAccess::WRITE {
                    f.write_str("write")?;
                } else {
                    let rights = [
                        (access.read, "read"),
                        (access.write, "modify"),
                        (access.create, "create"),
                        (access.delete, "delete"),
                    ];
                    let words: Vec<&str> = rights
                        .into_iter()
                        .filter_map(|(on, word)| on.then_some(word))
                        .collect();
                    f.write_str(&words.join("+"))?;
                }
                write!(f, "={host}")?;
                guest.as_ref().map_or(Ok(()), |guest| write!(f, ":{guest}"))
            }
            Self::Env { name, value: None } => write!(f, "env={name}"),
            Self::Env {
                name,
                value: Some(value),
            } => write!(f, "env={name}={value}"),
            Self::Http(grant) => {
                let named = grant.host == "localhost" || bracketless(&grant.host).parse::<IpAddr>().is_ok();
                f.write_str(if grant.private && !named {
                    "http-private="
                } else {
                    "http="
                })?;
                write_http(
                    f,
                    &grant.methods,
                    &grant.schemes,
                    &grant.host,
                    &grant.ports,
                    &grant.path,
                )
            }
            Self::Bucket(grant) => {
                let kind = if grant.write { "keyvalue" } else { "keyvalue-read" };
                write!(f, "{kind}={}", grant.bucket)?;
                if grant.guest == grant.bucket {
                    Ok(())
                } else {
                    write!(f, ":{}", grant.guest)
                }
            }
            Self::Deny { host } => write!(f, "deny={host}"),
            Self::DenyHttp(denial) => {
                f.write_str("deny-http=")?;
                let HttpDenial {
                    host,
                    ports,
                    schemes,
                    methods,
                    path,
                    by: _,
                } = denial;
                write_http(f, methods, schemes, host, ports, path)
            }
            Self::DenyBucket { bucket } => write!(f, "deny-keyvalue={bucket}"),
        }
    }
}

impl TryFrom<String> for Grant {
    type Error = InvalidGrant;

    fn try_from(line: String) -> Result<Self, InvalidGrant> {
        line.parse()
    }
}

impl From<Grant> for String {
    fn from(grant: Grant) -> Self {
        grant.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(line: &str) -> Grant {
        line.parse().unwrap()
    }

    #[test]
    fn grant_is_stored_as_its_line() {
        for line in ["read=src", "http=https://example.com/api", "deny=private"] {
            assert_eq!(serde_json::to_value(grant(line)).unwrap(), line);
            let read: Grant = serde_json::from_value(line.into()).unwrap();
            assert_eq!(read, grant(line));
        }
    }

    #[test]
    fn denial_that_would_deny_nothing_is_refused() {
        for (line, hint) in [
            ("deny=private/*", "`deny=private` includes everything below it"),
            ("deny=/a/b/**/key", "`deny=/a/b` includes everything below it"),
            ("deny=pri*", "name a file, or a directory"),
            ("deny=**/key", "name a file, or a directory"),
            ("deny=a?", "name a file, or a directory"),
            ("deny=a/[bc]", "`deny=a` includes everything below it"),
            ("deny=$HOME/x", "name a file, or a directory"),
            ("deny=\"private\"", "name a file, or a directory"),
            ("deny-http=10.0.0.0/8", "ranges of addresses are not supported"),
            ("deny-http=[fd00::]/8", "ranges of addresses are not supported"),
            ("http=192.168.0.1/32", "ranges of addresses are not supported"),
            ("http=[::]/2/", "ranges of addresses are not supported"),
        ] {
            let refused = line.parse::<Grant>().unwrap_err();
            assert!(refused.reason.contains(hint), "{line}: {}", refused.reason);
        }
        for line in [
            "deny=private",
            "deny=./a b/c",
            "deny=~/x",
            "deny-http=10.0.0.1/a",
            "deny-http=10.0.0.1",
            "deny-http=10.0.0.1/8a",
        ] {
            line.parse::<Grant>().unwrap();
        }
    }

    #[test]
    fn every_form_round_trips() {
        for line in [
            "read=.",
            "write=./out",
            "read+create=/data:/in",
            "modify+delete=x",
            "env=LANG",
            "env=MODE=a=b",
            "http=example.com",
            "http=GET,POST https://*.example.com:8443/api",
            "http=http://127.0.0.1:8080",
            "http=http://[::1]:8080/x",
            "http-private=https://intranet.example",
            "http=*",
            "keyvalue=memory",
            "keyvalue-read=memory",
            "keyvalue=shop.2:memory",
            "deny=private",
            "deny=~/mail:archive",
            "deny-http=*.example.com",
            "deny-http=POST http://example.com:81/admin",
            "deny-keyvalue=memory",
        ] {
            let read = grant(line);
            assert_eq!(read.to_string(), line);
            assert_eq!(read.is_denial(), line.starts_with("deny"), "{line}");
        }
    }

    #[test]
    fn bucket_keeps_its_name_unless_the_line_renames_it() {
        for (line, bucket, guest, write) in [
            ("keyvalue=notes", "notes", "notes", true),
            ("keyvalue=notes:notes", "notes", "notes", true),
            ("keyvalue-read=shop:memory", "shop", "memory", false),
        ] {
            let Grant::Bucket(granted) = grant(line) else {
                panic!("{line}")
            };
            let seen = (granted.bucket.as_str(), granted.guest.as_str(), granted.write);
            assert_eq!(seen, (bucket, guest, write), "{line}");
        }
    }

    #[test]
    fn private_address_is_granted_only_where_the_line_names_it() {
        for (line, private) in [
            ("http=example.com", false),
            ("http=*", false),
            ("http=localhost", true),
            ("http=10.0.0.1", true),
            ("http=[fd00::1]", true),
            ("http-private=example.com", true),
        ] {
            let Grant::Http(http) = grant(line) else {
                panic!("{line}")
            };
            assert_eq!(http.private, private, "{line}");
        }
    }

    #[test]
    fn invalid_grant_is_rejected_with_a_reason() {
        for (line, reason) in [
            ("read", "KIND=VALUE"),
            ("read=", "value missing after"),
            ("re\u{1b}[8mad=.", "control character"),
            ("read=a\nwrite=/", "control character"),
            ("read=.:/a /", "white space"),
            ("http=GET example.com/a b", "white space"),
            ("reed=.", "unknown kind `reed`"),
            ("read+=x", "unknown kind ``"),
            ("read=in:/b/../c", "must not contain `..`"),
            ("env=1A", "invalid environment variable name"),
            ("http=ftp://x", "expected http or https"),
            ("http=a b c", "invalid host"),
            ("http=G3T x", "invalid HTTP method"),
            ("http=x:0", "invalid port"),
            ("http=x:99999", "invalid port"),
            ("http=user@x", "user name"),
            ("http=*.*.x", "invalid host"),
            ("http=exa*mple.com", "invalid host"),
            ("http=x/a/../b", "plain prefix"),
            ("http=[::1", "without"),
            ("http=exämple.com", "invalid host"),
            ("keyvalue=", "value missing after"),
            ("keyvalue=*", "invalid bucket name"),
            ("keyvalue=a/b", "invalid bucket name"),
            ("keyvalue=a:", "invalid bucket name"),
            ("deny-keyvalue=a/b", "invalid bucket name"),
            ("deny-keyvalue=.", "invalid bucket name"),
            ("env=A-B", "invalid environment variable name"),
            ("env==x", "invalid environment variable name"),
            ("http=[::1]x", "`x` after the address"),
            ("keyvalue-write=a", "unknown kind"),
        ] {
            let error = line.parse::<Grant>().unwrap_err().to_string();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }

    #[test]
    fn host_follows_the_limits_of_dns() {
        let (label, long) = ("a".repeat(63), "a".repeat(64));
        let name = |last: usize| format!("{label}.{label}.{label}.{}", "b".repeat(last));
        let good = ["*", "*.example.com", "a-b_c.example", "x", "127.0.0.1", "[::1]"];
        for host in good
            .map(str::to_owned)
            .into_iter()
            .chain([label.clone(), name(61)])
        {
            assert!(format!("http={host}").parse::<Grant>().is_ok(), "{host}");
        }
        let bad = [
            "*.",
            "a..b",
            ".a",
            "a.",
            "*a",
            "a.*.b",
            "*.*",
            "a+b",
            "[::1",
            "\u{e9}.com",
        ];
        for host in bad.map(str::to_owned).into_iter().chain([long, name(62)]) {
            assert!(format!("http={host}").parse::<Grant>().is_err(), "{host}");
        }
    }

    #[test]
    fn guest_path_is_the_written_path_made_absolute() {
        for (host, guest) in [
            (".", "/"),
            ("./docs", "/docs"),
            ("docs/a/", "/docs/a"),
            ("/data/x", "/data/x"),
            ("../up", "/up"),
        ] {
            assert_eq!(Grant::guest_path(host), guest, "{host}");
        }
    }

    #[test]
    fn names_of_variables_hold_letters_digits_and_underscores() {
        for name in ["A", "_", "A_B", "a1_2"] {
            let value = None;
            let name = name.to_owned();
            assert_eq!(grant(&format!("env={name}")), Grant::Env { name, value });
        }
    }

    #[test]
    fn colon_divides_paths_only_behind_a_host_path() {
        for (line, host, guest) in [
            ("read=a:/b", "a", Some("/b")),
            ("read=a:b", "a:b", None),
            ("read=:/b", ":/b", None),
        ] {
            let (host, guest) = (host.to_owned(), guest.map(str::to_owned));
            let access = DirAccess::READ;
            assert_eq!(grant(line), Grant::Dir { host, guest, access }, "{line}");
        }
    }
}
