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

use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::denial::HttpDenial;
use crate::keyvalue::is_bucket_name;
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

impl FromStr for Grant {
    type Err = InvalidGrant;

    fn from_str(line: &str) -> Result<Self, InvalidGrant> {
        let fail = |reason: String| InvalidGrant {
            line: line.to_owned(),
            reason,
        };
        if line.trim().contains(char::is_control) {
            return Err(fail("control characters are not allowed in a grant".into()));
        }
        let (kind, rest) = line.split_once('=').ok_or_else(|| {
            fail("expected KIND=VALUE, such as `read=.`, `env=LANG` or `http=example.com`".into())
        })?;
        let (kind, rest) = (kind.trim(), rest.trim());
        if rest.is_empty() {
            return Err(fail(format!("value missing after `{}=`", kind.escape_debug())));
        }
        match kind {
            "env" => parse_env(rest).map_err(fail),
            "http" => parse_http(rest, false).map(Self::Http).map_err(fail),
            "http-private" => parse_http(rest, true).map(Self::Http).map_err(fail),
            "keyvalue" => parse_bucket(rest, true).map(Self::Bucket).map_err(fail),
            "keyvalue-read" => parse_bucket(rest, false).map(Self::Bucket).map_err(fail),
            "deny" => parse_denied_path(rest).map_err(fail),
            "deny-http" => {
                let grant = parse_http(rest, false).map_err(fail)?;
                Ok(Self::DenyHttp(deny_http(grant)))
            }
            "deny-keyvalue" if is_bucket_name(rest) => Ok(Self::DenyBucket {
                bucket: rest.to_owned(),
            }),
            "deny-keyvalue" => Err(fail(no_bucket(rest))),
            _ => parse_dir(kind, rest).map_err(fail),
        }
    }
}

fn parse_env(rest: &str) -> Result<Grant, String> {
    let (name, value) = match rest.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (rest, None),
    };
    let well_formed = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if well_formed {
        Ok(Grant::Env {
            name: name.to_owned(),
            value,
        })
    } else {
        Err(format!(
            "invalid environment variable name `{}`",
            name.escape_debug()
        ))
    }
}

fn parse_dir(kind: &str, rest: &str) -> Result<Grant, String> {
    let mut access = DirAccess {
        read: false,
        write: false,
        create: false,
        delete: false,
    };
    for right in kind.split('+') {
        match right {
            "read" => access.read = true,
            "modify" => access.write = true,
            "create" => access.create = true,
            "delete" => access.delete = true,
            "write" => access = DirAccess::WRITE,
            other => {
                return Err(format!(
                    "unknown kind `{}`, expected one of read, write, modify, create, delete, env, http, http-private, keyvalue, keyvalue-read, deny, deny-http, deny-keyvalue",
                    other.escape_debug()
                ));
            }
        }
    }
    // The guest path is absolute, so `:/` separates it. In a Windows path such as `C:/x`, the colon is the second
    // character.
    let drive = usize::from(cfg!(windows));
    let (host, guest) = match rest.rfind(":/") {
        Some(at) if at > drive => (&rest[..at], Some(&rest[at + 1..])),
        _ => (rest, None),
    };
    if guest.is_some_and(|g| g.split('/').any(|part| part == "..")) {
        return Err("the guest path must not contain `..`".into());
    }
    let guest = guest.map(Grant::guest_path);
    // Trailing white space would be lost when the line is printed and parsed again.
    if guest.as_ref().is_some_and(|g| g.ends_with(char::is_whitespace)) {
        return Err("the guest path must not end with white space".into());
    }
    Ok(Grant::Dir {
        host: host.to_owned(),
        guest,
        access,
    })
}

/// A denied path is taken as it is written. What other programs expand, and we do not, would deny nothing.
fn parse_denied_path(rest: &str) -> Result<Grant, String> {
    if let Some(bad) = rest.chars().find(|c| "*?[]$\"".contains(*c)) {
        // The parts before the first one with such a character hold everything that was meant.
        let parts = rest.trim_start_matches('"').split('/');
        let plain: Vec<&str> = parts
            .take_while(|part| !part.contains(['*', '?', '[', ']', '$', '"']))
            .collect();
        let how = match plain.join("/") {
            dir if dir.is_empty() => {
                "name a file, or a directory, which includes everything below it".to_owned()
            }
            dir => format!("`deny={}` includes everything below it", dir.escape_debug()),
        };
        return Err(format!("`{bad}` is not expanded in a denied path: {how}"));
    }
    Ok(Grant::Deny {
        host: rest.to_owned(),
    })
}

fn parse_http(rest: &str, private: bool) -> Result<HttpGrant, String> {
    let (methods, pattern) = match rest.split_once(char::is_whitespace) {
        Some((methods, pattern)) => (methods, pattern.trim()),
        None => ("", rest),
    };
    let methods: Vec<String> = methods
        .split(',')
        .filter(|m| !m.is_empty())
        .map(str::to_ascii_uppercase)
        .collect();
    if let Some(bad) = methods
        .iter()
        .find(|m| !m.bytes().all(|b| b.is_ascii_uppercase()))
    {
        return Err(format!("invalid HTTP method `{}`", bad.escape_debug()));
    }
    let (schemes, after) = match pattern.split_once("://") {
        Some((scheme @ ("http" | "https"), after)) => (vec![scheme.to_owned()], after),
        Some((scheme, _)) => {
            return Err(format!(
                "unsupported scheme `{}`, expected http or https",
                scheme.escape_debug()
            ));
        }
        None => (Vec::new(), pattern),
    };
    let (authority, path) = match after.find('/') {
        Some(at) => (&after[..at], &after[at..]),
        None => (after, ""),
    };
    if path.contains(['?', '#', '*', '\\']) || path.split('/').any(|part| part == ".." || part == ".") {
        return Err("the path must be a plain prefix without `?`, `#`, `*`, `.` and `..`".into());
    }
    if path.contains(char::is_whitespace) {
        return Err("the URL path must not contain white space; write `%20`".into());
    }
    if authority.contains('@') {
        return Err("a grant must not contain a user name or password".into());
    }
    let (host, port) = split_port(authority)?;
    let host = host.to_ascii_lowercase();
    check_host_pattern(&host)?;
    let is_address = bracketless(&host).parse::<IpAddr>().is_ok();
    if is_address && path.len() > 1 && path[1..].bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!(
            "`{}` is not an address: ranges of addresses are not supported; name each address or a host name",
            after.escape_debug()
        ));
    }
    let named_private = host == "localhost" || bracketless(&host).parse::<IpAddr>().is_ok();
    Ok(HttpGrant {
        host,
        ports: port.into_iter().collect(),
        schemes,
        methods,
        path: path.trim_end_matches('/').to_owned(),
        private: private || named_private,
    })
}

fn parse_bucket(rest: &str, write: bool) -> Result<BucketGrant, String> {
    let (bucket, guest) = rest.split_once(':').unwrap_or((rest, rest));
    match [bucket, guest].into_iter().find(|name| !is_bucket_name(name)) {
        None => Ok(BucketGrant {
            bucket: bucket.to_owned(),
            guest: guest.to_owned(),
            write,
        }),
        Some(bad) => Err(no_bucket(bad)),
    }
}

fn no_bucket(name: &str) -> String {
    format!(
        "invalid bucket name `{}`: expected 1 to 64 characters of a-z, A-Z, 0-9, `.`, `_` and `-`, the first one a letter or a digit",
        name.escape_debug()
    )
}

/// Returns the denial of everything that a grant of the same pattern allows, extended to every method, scheme and port
/// that the pattern omits.
fn deny_http(grant: HttpGrant) -> HttpDenial {
    let mut denial = HttpDenial {
        host: grant.host,
        ports: grant.ports,
        schemes: grant.schemes,
        methods: grant.methods,
        path: grant.path,
        by: String::new(),
    };
    denial.by = Grant::DenyHttp(denial.clone()).to_string();
    denial
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

/// Splits `host:port`; an IPv6 address is enclosed in brackets (RFC 3986, section 3.2.2).
fn split_port(authority: &str) -> Result<(&str, Option<u16>), String> {
    let after_host = if authority.starts_with('[') {
        authority.find(']').map(|at| at + 1).ok_or("`[` without `]`")?
    } else {
        authority.find(':').unwrap_or(authority.len())
    };
    let (host, port) = authority.split_at(after_host);
    match port.strip_prefix(':') {
        None if port.is_empty() => Ok((host, None)),
        Some(port) => match port.parse::<u16>() {
            Ok(port) if port != 0 => Ok((host, Some(port))),
            _ => Err(format!(
                "invalid port `{}`, expected 1 to 65535",
                port.escape_debug()
            )),
        },
        None => Err(format!("unexpected `{}` after the address", port.escape_debug())),
    }
}

fn check_host_pattern(host: &str) -> Result<(), String> {
    if host == "*" || bracketless(host).parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    let name = host.strip_prefix("*.").unwrap_or(host);
    let well_formed = !name.is_empty()
        && name.len() <= 253
        && name.split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        });
    if well_formed {
        Ok(())
    } else {
        Err(format!(
            "invalid host `{}`, expected a name (in its ASCII form), `*.name`, `*` or an IP address",
            host.escape_debug()
        ))
    }
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
