//! Resolved grants: paths made absolute and real, values of variables read, and tests if one grant covers another.

use std::path::Path;

use toolcell_core::denial::{BucketDenial, DeniedUse, HttpDenial, PathDenial};
use toolcell_core::policy::{BucketGrant, DirAccess, DirGrant, Grants, HttpGrant};
use toolcell_core::{Grant, grant::InvalidGrant};

use crate::config::Origin;
use crate::config::source::PROJECT;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::escape;
use crate::ui::terminal::{Shown, text};

/// A grant resolved on this machine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ResolvedGrant {
    /// An existing directory, without symbolic links in its path.
    Dir(DirGrant),
    /// An environment variable; `None` means the host's own value.
    Env(String, Option<String>),
    /// HTTP requests.
    Http(HttpGrant),
    /// A bucket.
    Bucket(BucketGrant),
    /// A denied file or directory, existing or not.
    Deny(PathDenial),
    /// Denied HTTP requests.
    DenyHttp(HttpDenial),
    /// A denied bucket.
    DenyBucket(BucketDenial),
}

/// A grant flag: for one component, or for all in use.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FlagGrant {
    /// Name of the component; `None` means all.
    pub(crate) component: Option<String>,
    /// The grant.
    pub(crate) grant: Grant,
}

impl std::str::FromStr for FlagGrant {
    type Err = InvalidGrant;

    /// Parses `[COMPONENT:]GRANT`, where the component may be `project:NAME`. A component name contains no `=`, and a
    /// grant has one before any colon.
    fn from_str(text: &str) -> Result<Self, InvalidGrant> {
        // A component of a project has a colon in its name.
        let before_grant = |rest: &str| {
            rest.find(':')
                .filter(|at| !rest[..*at].contains('=') && rest[*at..].contains('='))
        };
        let of_project = text.strip_prefix(PROJECT).and_then(before_grant);
        let at = of_project
            .map(|at| at + PROJECT.len())
            .or_else(|| before_grant(text));
        let (component, grant) = match at {
            Some(at) => (Some(text[..at].trim().to_owned()), &text[at + 1..]),
            None => (None, text),
        };
        Ok(Self {
            component,
            grant: grant.parse()?,
        })
    }
}

/// Resolves a grant. Relative paths start at `base`.
///
/// # Errors
/// Returns an error if a directory does not exist, is not a directory, or is inaccessible.
pub(crate) fn resolve(
    grant: &Grant,
    base: &Path,
    environment: &Environment,
) -> Result<ResolvedGrant, Failure> {
    match grant {
        Grant::Dir { host, guest, access } => {
            let path = environment.path(host, base);
            let fail = || Failure::new(Exit::Config, text!("cannot grant `{}`", grant));
            let real = path.canonicalize().map_err(|e| {
                let fail = fail().because(e);
                let at_guest = host.rsplit_once(':');
                if let Some((dir, guest)) = at_guest.filter(|(dir, _)| environment.path(dir, base).is_dir()) {
                    return fail.hint(text!("the path that tools see is absolute: `{}:/{}`", dir, guest));
                }
                match path.parent().filter(|parent| parent.is_dir()) {
                    Some(_) => fail.hint(text!(
                        "create it first: mkdir {}",
                        escape::shell_path(&environment.shown(&path))
                    )),
                    None => fail.hint(text!(
                        "`{}` does not exist; check the path",
                        environment.shown(&path)
                    )),
                }
            })?;
            if !real.is_dir() {
                return Err(fail()
                    .why(text!("`{}` is not a directory", environment.shown(&path)))
                    .hint("grant the directory that holds it"));
            }
            let guest = guest.clone().unwrap_or_else(|| {
                let from_home = host.starts_with('~');
                Grant::guest_path(if from_home {
                    real.to_str().unwrap_or(host)
                } else {
                    host
                })
            });
            Ok(ResolvedGrant::Dir(DirGrant {
                host: real,
                guest,
                access: *access,
                overlay: None,
            }))
        }
        Grant::Env { name, value } => Ok(ResolvedGrant::Env(name.clone(), value.clone())),
        Grant::Http(http) => Ok(ResolvedGrant::Http(http.clone())),
        Grant::Bucket(bucket) => Ok(ResolvedGrant::Bucket(bucket.clone())),
        Grant::Deny { host } => {
            let path = environment.path(host, base);
            check_denied(grant, host, &path)?;
            Ok(ResolvedGrant::Deny(PathDenial {
                host: path,
                uses: DeniedUse::All,
                by: grant.to_string(),
            }))
        }
        Grant::DenyHttp(denial) => Ok(ResolvedGrant::DenyHttp(denial.clone())),
        Grant::DenyBucket { bucket } => Ok(ResolvedGrant::DenyBucket(BucketDenial {
            bucket: bucket.clone(),
            by: grant.to_string(),
        })),
    }
}

/// Refuses a denied path in the syntax of something else, unless a file has that name: a list, or a guest path.
fn check_denied(grant: &Grant, host: &str, path: &Path) -> Result<(), Failure> {
    let odd = host.char_indices().find(|(_, c)| [',', ':'].contains(c));
    let Some((at, odd)) = odd.filter(|_| path.symlink_metadata().is_err()) else {
        return Ok(());
    };
    let failure = Failure::new(Exit::Config, text!("invalid grant `{}`", grant)).why(text!(
        "`{}` does not exist, and `{}` separates nothing in a denial",
        host,
        odd
    ));
    let rule = "a denial is one path on this machine, whatever tools see";
    Err(match alternatives(host).as_deref() {
        Some([first, second, ..]) => failure.hint(text!(
            "{}: write one for each path, `deny={}` and `deny={}`",
            rule,
            first,
            second
        )),
        _ if odd == ':' && at > 0 => failure.hint(text!("{}: `deny={}`", rule, &host[..at])),
        _ => failure.hint(rule),
    })
}

/// Returns the paths that a list means, written with commas or, as in a shell, in one pair of braces.
fn alternatives(list: &str) -> Option<Vec<String>> {
    let (before, inside, after) = match list.split_once('{') {
        Some((before, rest)) => {
            let (inside, after) = rest.split_once('}')?;
            (before, inside, after)
        }
        None => ("", list, ""),
    };
    if [before, inside, after]
        .iter()
        .any(|part| part.contains(['{', '}', ':']))
        || after.contains(',')
    {
        return None;
    }
    let parts = inside.split(',').map(str::trim);
    let paths: Vec<String> = parts
        .filter(|part| !part.is_empty())
        .map(|part| format!("{before}{part}{after}"))
        .collect();
    (paths.len() > 1).then_some(paths)
}

/// Combines all grants of one tool into a policy. A directory or bucket granted twice at one guest path has the rights
/// of both grants.
///
/// # Errors
/// Returns an error if two host directories have the same guest path, or two buckets the same name.
pub(crate) fn combine<'a>(
    grants: impl IntoIterator<Item = &'a ResolvedGrant>,
    environment: &Environment,
) -> Result<Grants, Failure> {
    let mut all = Grants::default();
    for grant in grants {
        match grant {
            ResolvedGrant::Dir(dir) => match all.dirs.iter_mut().find(|known| known.guest == dir.guest) {
                Some(known) if known.host == dir.host => known.access = union(known.access, dir.access),
                Some(known) => {
                    return Err(Failure::new(
                        Exit::Config,
                        text!("two directories are granted at the guest path `{}`", dir.guest),
                    )
                    .why(text!(
                        "`{}` and `{}` cannot both be mounted there",
                        environment.shown(&known.host),
                        environment.shown(&dir.host)
                    ))
                    .hint(text!(
                        "give the second one another guest path: `read={}:/other`",
                        environment.shown(&dir.host)
                    )));
                }
                None => all.dirs.push(dir.clone()),
            },
            ResolvedGrant::Env(name, value) => {
                let value = value.as_deref().or_else(|| environment.var(name));
                if let Some(value) = value {
                    all.env.retain(|(known, _)| known != name);
                    all.env.push((name.clone(), value.to_owned()));
                }
            }
            ResolvedGrant::Http(http) if all.http.contains(http) => {}
            ResolvedGrant::Http(http) => all.http.push(http.clone()),
            ResolvedGrant::Bucket(bucket) => match all.buckets.iter_mut().find(|b| b.guest == bucket.guest) {
                Some(known) if known.bucket == bucket.bucket => known.write |= bucket.write,
                Some(known) => {
                    return Err(Failure::new(
                        Exit::Config,
                        text!("two buckets are granted under the name `{}`", bucket.guest),
                    )
                    .why(text!(
                        "`{}` and `{}` cannot both be mounted there",
                        known.bucket,
                        bucket.bucket
                    ))
                    .hint(text!(
                        "give the second one another name: `keyvalue={}:other`",
                        bucket.bucket
                    )));
                }
                None => all.buckets.push(bucket.clone()),
            },
            ResolvedGrant::Deny(denial) => push_new(&mut all.denied.paths, denial),
            ResolvedGrant::DenyHttp(denial) => push_new(&mut all.denied.http, denial),
            ResolvedGrant::DenyBucket(denial) => push_new(&mut all.denied.buckets, denial),
        }
    }
    Ok(all)
}

fn push_new<T: Clone + PartialEq>(list: &mut Vec<T>, item: &T) {
    if !list.contains(item) {
        list.push(item.clone());
    }
}

/// True if a denied path is a line of a configuration or a flag, named by [`ResolvedGrant::written_at`], and not one of
/// Toolcell's own.
pub(crate) fn is_denied_line(denial: &PathDenial) -> bool {
    denial.by.trim_start_matches('`').starts_with("deny=")
}

impl ResolvedGrant {
    /// Sets the name of a denial for messages about refused access: the line between backticks, and its location.
    pub(crate) fn written_at(mut self, origin: &Origin) -> Self {
        let by = match &mut self {
            Self::Deny(PathDenial { by, .. })
            | Self::DenyHttp(HttpDenial { by, .. })
            | Self::DenyBucket(BucketDenial { by, .. }) => by,
            Self::Dir(_) | Self::Env(..) | Self::Http(_) | Self::Bucket(_) => return self,
        };
        let line = text!("`{}`", *by);
        let named = match origin {
            Origin::Default => line,
            origin => text!("{} ({})", line, Shown(&origin.to_string())),
        };
        *by = named.inert();
        self
    }

    /// True if this grant covers everything that `inner` grants.
    pub(crate) fn covers(&self, inner: &Self) -> bool {
        match (self, inner) {
            (Self::Dir(outer), Self::Dir(inner)) => {
                inner.host.starts_with(&outer.host) && union(outer.access, inner.access) == outer.access
            }
            // Another value of the same variable is another grant: the value can control the tool.
            (Self::Env(..), Self::Env(..)) => self == inner,
            (Self::Http(outer), Self::Http(inner)) => http_covers(outer, inner),
            (Self::Bucket(outer), Self::Bucket(inner)) => {
                outer.bucket == inner.bucket && (outer.write || !inner.write)
            }
            _ => false,
        }
    }
}

fn union(a: DirAccess, b: DirAccess) -> DirAccess {
    DirAccess {
        read: a.read || b.read,
        write: a.write || b.write,
        create: a.create || b.create,
        delete: a.delete || b.delete,
    }
}

fn http_covers(outer: &HttpGrant, inner: &HttpGrant) -> bool {
    let all_within = |inner: &[String], outer: &[String], default: &[&str]| {
        let or_default = |list: &[String]| -> Vec<String> {
            if list.is_empty() {
                default.iter().map(|&s| s.to_owned()).collect()
            } else {
                list.to_vec()
            }
        };
        let outer = or_default(outer);
        or_default(inner).iter().all(|item| outer.contains(item))
    };
    // Without a port, a grant means the default port of each scheme, which differs by scheme.
    let ports = inner.ports == outer.ports
        || (!outer.ports.is_empty()
            && !inner.ports.is_empty()
            && inner.ports.iter().all(|port| outer.ports.contains(port)));
    host_covers(&outer.host, &inner.host)
        && all_within(&inner.schemes, &outer.schemes, &["https"])
        && all_within(&inner.methods, &outer.methods, &["GET", "HEAD"])
        && ports
        && path_covers(&outer.path, &inner.path)
        && (outer.private || !inner.private)
}

fn host_covers(outer: &str, inner: &str) -> bool {
    match outer.strip_prefix("*.") {
        _ if outer == "*" || outer == inner => true,
        // No label of a host is empty, so that something stands before the dot.
        Some(parent) => inner
            .strip_suffix(parent)
            .is_some_and(|prefix| prefix.ends_with('.')),
        None => false,
    }
}

fn path_covers(outer: &str, inner: &str) -> bool {
    let outer = outer.trim_end_matches('/');
    outer.is_empty()
        || inner
            .strip_prefix(outer)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(line: &str, base: &Path) -> ResolvedGrant {
        resolve(&line.parse().unwrap(), base, &Environment::for_tests(base, &[])).unwrap()
    }

    #[test]
    fn denied_path_with_a_separator_must_exist() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        let environment = Environment::for_tests(base, &[]);
        let deny = |line: &str| resolve(&line.parse().unwrap(), base, &environment);
        for (line, meant) in [
            ("deny=private:/x", "`deny=private`"),
            ("deny=private,docs", "`deny=private` and `deny=docs`"),
            ("deny={a,b}", "`deny=a` and `deny=b`"),
            ("deny=src/{a,b,c}/key", "`deny=src/a/key` and `deny=src/b/key`"),
        ] {
            let refused = deny(line).unwrap_err().to_string();
            assert!(refused.contains("invalid grant"), "{line}: {refused}");
            let mut out = Vec::new();
            let mut screen =
                crate::ui::terminal::Screen::new(&mut out, false, crate::ui::terminal::Size::NONE);
            deny(line).unwrap_err().print(&mut screen).unwrap();
            let shown = String::from_utf8(out).unwrap();
            assert!(shown.contains(meant), "{shown}");
            // Each proposed line can be used.
            for line in shown
                .rsplit("hint:")
                .next()
                .unwrap()
                .split('`')
                .skip(1)
                .step_by(2)
            {
                assert!(deny(line).is_ok(), "{line}");
            }
        }
        for line in ["deny={a,b", "deny={a,{b,c}}", "deny=,", "deny=:/x"] {
            assert!(deny(line).is_err(), "{line}");
        }
        std::fs::write(base.join("a,b:c"), "").unwrap();
        for line in ["deny=a,b:c", "deny=absent"] {
            assert!(deny(line).is_ok(), "{line}");
        }
    }

    #[test]
    fn grant_is_within_another_that_covers_all_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        std::fs::create_dir(base.join("ab")).unwrap();
        for (outer, inner, covered) in [
            ("read=.", "read=a/b", true),
            ("read=a", "read=.", false),
            ("read=a", "read=ab", false),
            ("read=a", "read=a/../ab", false),
            ("read=.", "write=a", false),
            ("write=.", "read+create=a", true),
            ("read+create=.", "read+modify=a", false),
            ("read+modify=.", "read+delete=a", false),
            ("read+modify=.", "read+create=a", false),
            ("modify+create+delete=.", "read=a", false),
            ("read+modify=.", "modify=a", true),
            ("read=.", "read=a:/elsewhere", true),
            ("env=A", "env=A", true),
            ("env=A", "env=A=1", false),
            ("env=A=1", "env=A", false),
            ("http=*", "http=example.com", true),
            ("http=*", "http=10.0.0.1", false),
            ("http=*", "http-private=example.com", false),
            ("http=*.example.com", "http=a.example.com", true),
            ("http=*.example.com", "http=*.b.example.com", true),
            ("http=*.example.com", "http=example.com", false),
            ("http=*.example.com", "http=*", false),
            ("http=*.example.com", "http=evilexample.com", false),
            ("http=example.com", "http=POST example.com", false),
            ("http=GET,POST example.com", "http=example.com", false),
            ("http=GET,HEAD,POST example.com", "http=example.com", true),
            ("http=example.com", "http=http://example.com", false),
            ("http=example.com", "http=https://example.com", true),
            ("http=example.com", "http=example.com:8443", false),
            ("http=example.com:8443", "http=example.com", false),
            ("http=example.com/api", "http=example.com/api/v1", true),
            ("http=example.com/api", "http=example.com/apis", false),
            ("http=example.com/api", "http=example.com", false),
            ("read=.", "env=A", false),
            ("keyvalue=a", "keyvalue=a", true),
            ("keyvalue=a", "keyvalue-read=a", true),
            ("keyvalue=a", "keyvalue=a:other", true),
            ("keyvalue-read=a", "keyvalue=a", false),
            ("keyvalue=a", "keyvalue=b", false),
            ("keyvalue=a", "keyvalue=b:a", false),
        ] {
            let is = resolved(outer, &base).covers(&resolved(inner, &base));
            assert_eq!(is, covered, "{outer} covers {inner}");
        }
    }

    #[test]
    fn symlink_is_judged_by_target_not_location() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("project")).unwrap();
        std::fs::create_dir(base.join("secret")).unwrap();
        std::os::unix::fs::symlink(base.join("secret"), base.join("project/innocent")).unwrap();
        assert!(!resolved("read=project", &base).covers(&resolved("read=project/innocent", &base)));
    }

    #[test]
    fn grant_of_command_line_may_name_its_component() {
        let parse = |text: &str| {
            let FlagGrant { component, grant } = text.parse().unwrap();
            (component, grant.to_string())
        };
        assert_eq!(parse("read=."), (None, "read=.".into()));
        assert_eq!(parse("files:read=."), (Some("files".into()), "read=.".into()));
        assert_eq!(parse("read=a:/b"), (None, "read=a:/b".into()));
        assert_eq!(parse("read=a:/b=c"), (None, "read=a:/b=c".into()));
        assert_eq!(
            parse("fetch:http=http://localhost:80"),
            (Some("fetch".into()), "http=http://localhost:80".into())
        );
        assert_eq!(parse("http=localhost:80"), (None, "http=localhost:80".into()));
        let named = |name: &str, grant: &str| (Some(name.to_owned()), grant.to_owned());
        assert_eq!(parse("project:x:read=."), named("project:x", "read=."));
        assert_eq!(parse("project:x:read=a:/b"), named("project:x", "read=a:/b"));
        // A component of the user may have this name.
        assert_eq!(parse("project:read=."), named("project", "read=."));
        assert_eq!(parse("project:read=a:/b"), named("project", "read=a:/b"));
        assert!("files:.".parse::<FlagGrant>().is_err());
    }

    #[test]
    fn directory_granted_twice_has_union_of_rights() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("x")).unwrap();
        let environment = Environment::for_tests(&base, &[("A", "1")]);
        let both = [
            resolved("read=.", &base),
            resolved("read+create=.", &base),
            resolved("env=A", &base),
            resolved("env=B", &base),
        ];
        let grants = combine(&both, &environment).unwrap();
        assert_eq!(grants.dirs.len(), 1);
        assert!(grants.dirs[0].access.create && !grants.dirs[0].access.delete);
        assert_eq!(grants.env, [("A".to_owned(), "1".to_owned())]);
        let clash = [resolved("read=.", &base), resolved("read=x:/", &base)];
        assert!(
            combine(&clash, &environment)
                .unwrap_err()
                .to_string()
                .contains("guest path `/`")
        );
    }

    #[test]
    fn bucket_granted_twice_is_writable_if_either_is() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment::for_tests(dir.path(), &[]);
        let combined =
            |lines: [&str; 2]| combine(&lines.map(|line| resolved(line, dir.path())), &environment);
        let grants = combined(["keyvalue-read=a", "keyvalue=a"]).unwrap();
        assert_eq!(grants.buckets.len(), 1);
        assert!(grants.buckets[0].write);
        let error = combined(["keyvalue=a", "keyvalue=b:a"]).unwrap_err().to_string();
        assert!(error.contains("under the name `a`"), "{error}");
    }

    #[test]
    fn ports_lie_within_others_one_by_one() {
        let grant = |ports: &[u16]| {
            let Ok(Grant::Http(mut http)) = "http=example.com".parse() else {
                panic!("no grant")
            };
            http.ports = ports.to_vec();
            http
        };
        for (outer, inner, covered) in [
            (&[80, 443][..], &[443][..], true),
            (&[80, 443], &[80, 443], true),
            (&[80, 443], &[443, 8443], false),
            (&[80, 443], &[], false),
            (&[], &[443], false),
            (&[], &[], true),
        ] {
            let is = http_covers(&grant(outer), &grant(inner));
            assert_eq!(is, covered, "{outer:?} covers {inner:?}");
        }
    }

    #[test]
    fn other_grants_and_denials_are_kept_once_each() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment::for_tests(dir.path(), &[("A", "1"), ("B", "2")]);
        let lines = [
            "http=example.com",
            "http=example.com",
            "http=example.org",
            "env=A",
            "env=B",
            "env=A=3",
            "deny=private",
            "deny=private",
            "deny=other",
            "deny-http=example.net",
            "deny-keyvalue=b",
        ];
        let grants = combine(&lines.map(|line| resolved(line, dir.path())), &environment).unwrap();
        let hosts: Vec<&str> = grants.http.iter().map(|http| http.host.as_str()).collect();
        assert_eq!(hosts, ["example.com", "example.org"]);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(grants.env, [pair("B", "2"), pair("A", "3")]);
        let denied = grants.denied;
        assert_eq!(denied.paths.len(), 2);
        assert_eq!((denied.http.len(), denied.buckets.len()), (1, 1));
    }

    #[test]
    fn denial_names_the_line_it_comes_from() {
        let base = Path::new("/");
        let by = |line: &str, origin: &Origin| match resolved(line, base).written_at(origin) {
            ResolvedGrant::Deny(PathDenial { by, .. })
            | ResolvedGrant::DenyHttp(HttpDenial { by, .. })
            | ResolvedGrant::DenyBucket(BucketDenial { by, .. }) => by,
            other => panic!("{other:?}"),
        };
        for line in ["deny=private", "deny-http=example.com", "deny-keyvalue=b"] {
            let plain = by(line, &Origin::Default);
            assert!(!plain.contains("--grant"), "{plain}");
            let named = by(line, &Origin::Flag("--grant"));
            assert_eq!(named, format!("`{line}` (--grant)"));
            assert!(named.starts_with(&plain), "{plain}");
        }
        let odd = by("deny=a` granted by you", &Origin::Flag("--grant"));
        assert_eq!(odd, "`deny=a\\u{60} granted by you` (--grant)");
    }
}
