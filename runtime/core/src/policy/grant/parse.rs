//! Parser of the lines of grants and denials.

use std::net::IpAddr;
use std::str::FromStr;

use super::{Grant, InvalidGrant, bracketless};
use crate::denial::HttpDenial;
use crate::keyvalue::is_bucket_name;
use crate::policy::url_reading::{climbs, is_unusual_address};
use crate::policy::{BucketGrant, DirAccess, HttpGrant};

/// Maximum length of a denied path, in bytes: that of a path on Linux (`PATH_MAX`).
const MAX_DENIED_PATH: usize = 4_096;

/// Maximum number of parts of a denied path. Each is looked up when a call begins.
const MAX_DENIED_PARTS: usize = 128;

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
            "http" => parse_http_grant(rest, false).map_err(fail),
            "http-private" => parse_http_grant(rest, true).map_err(fail),
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
    // The guest path is absolute, so `:/` separates it.
    let (host, guest) = match rest.rfind(":/") {
        Some(at) if at > 0 => (&rest[..at], Some(&rest[at + 1..])),
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
    let parts = rest.split('/').filter(|part| !part.is_empty()).count();
    if rest.len() > MAX_DENIED_PATH || parts > MAX_DENIED_PARTS {
        return Err(format!(
            "the denied path has {} bytes and {parts} parts, at most {MAX_DENIED_PATH} and {MAX_DENIED_PARTS} are possible",
            rest.len()
        ));
    }
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

/// A grant whose path no request can have is a mistake. A denial of it is compared with every reading of a path.
fn parse_http_grant(rest: &str, private: bool) -> Result<Grant, String> {
    let grant = parse_http(rest, private)?;
    if let Some(c) = (grant.path.chars()).find(|c| !c.is_ascii() || "\"<>`{}".contains(*c)) {
        let mut bytes = [0; 4];
        let code: String = c
            .encode_utf8(&mut bytes)
            .bytes()
            .map(|byte| format!("%{byte:02X}"))
            .collect();
        return Err(format!(
            "the path is compared as it is sent, and `{}` is sent as `{code}`; write that",
            c.escape_debug()
        ));
    }
    if climbs(&grant.path) {
        return Err(
            "servers could read an upward step (`..`) in the path, and no request with such a path is allowed".into(),
        );
    }
    Ok(Grant::Http(grant))
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
    let path = path.trim_end_matches('/');
    let is_address = bracketless(&host).parse::<IpAddr>().is_ok();
    if is_address && path.len() > 1 && path[1..].bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!(
            "`{}` is not an address: ranges of addresses are not supported; name each address or a host name",
            after.escape_debug()
        ));
    }
    let named_private = host == "localhost" || is_address;
    Ok(HttpGrant {
        host,
        ports: port.into_iter().collect(),
        schemes,
        methods,
        path: path.to_owned(),
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
    let below = host.strip_prefix("*.");
    let name = below.unwrap_or(host);
    if is_unusual_address(name) || (below.is_some() && name.parse::<IpAddr>().is_ok()) {
        return Err(format!(
            "`{}` ends with a number and is no IP address in full, such as `192.0.2.1`: it could match nothing",
            host.escape_debug()
        ));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_grant_that_can_match_nothing_is_refused() {
        for (line, reason) in [
            ("http=127.1", "ends with a number"),
            ("http-private=http://10.1:80/x", "ends with a number"),
            ("http-private=intranet.5", "ends with a number"),
            ("http=1.2.3.256", "ends with a number"),
            ("http=0x7f000001", "ends with a number"),
            ("http=*.10.0.0.1", "ends with a number"),
            // A denial of no host would deny everything.
            ("deny-http=127.1", "ends with a number"),
            ("http=example.com/größe", "`ö` is sent as `%C3%B6`"),
            ("http=example.com/{id}", "`{` is sent as `%7B`"),
            ("http=example.com/a/%2e%2e/b", "upward step"),
        ] {
            let error = line.parse::<Grant>().unwrap_err().to_string();
            assert!(error.contains(reason), "{line}: {error}");
        }
        for line in [
            // Names in a network of one's own have any form.
            "http-private=https://nonsense",
            "http-private=https://1.intranet",
            "http-private=0xyz",
            "http-private=10.0.0.1",
            "http-private=[fd00::1]:8080",
            "http=example.com/gr%C3%B6%C3%9Fe",
            "deny-http=example.com/größe",
            "deny-http=example.com/a/%2e%2e/b",
        ] {
            assert!(line.parse::<Grant>().is_ok(), "{line}");
        }
    }

    #[test]
    fn denied_path_has_up_to_4096_bytes_and_128_parts() {
        let bytes = |bytes: usize| format!("deny={}", "a".repeat(bytes)).parse::<Grant>();
        assert!(bytes(MAX_DENIED_PATH).is_ok());
        let error = bytes(MAX_DENIED_PATH + 1).unwrap_err().to_string();
        assert!(error.contains("has 4097 bytes and 1 parts"), "{error}");
        let parts = |parts: usize| format!("deny=/{}", "a//".repeat(parts)).parse::<Grant>();
        assert!(parts(MAX_DENIED_PARTS).is_ok());
        let error = parts(MAX_DENIED_PARTS + 1).unwrap_err().to_string();
        assert!(error.contains("and 129 parts"), "{error}");
    }
}
