//! Directory grants that give away more than a person who writes them may think.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use crate::policy::DirGrant;
use crate::protected::protection;

/// Why a grant needs a second look. [`fmt::Display`] ends the sentence "this directory …".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrantRisk {
    /// The root of a file system.
    Root,
    /// The home directory, or a directory that holds it.
    Home,
    /// A directory of keys and credentials, or one above it that is not the home directory.
    Keys,
    /// A directory of the operating system.
    System,
    /// A socket or a directory of sockets, such as the one of a container engine: whoever may talk to it may do anything.
    Socket,
    /// A directory from which programs are started, or that says which: whoever may write there runs outside of a cell.
    Programs,
}

/// Directories of the operating system. A grant of one of them or of anything below needs a second look.
const SYSTEM: [&str; 13] = [
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/private/etc",
    "/proc",
    "/root",
    "/sbin",
    "/sys",
    "/usr",
    "/System",
    "/Library",
];

/// Directories of sockets and of state of running services.
const SOCKETS: [&str; 4] = ["/run", "/var/run", "/private/var/run", "/var/lib/docker"];

/// Directories below the home directory that hold keys.
const KEYS: [&str; 28] = [
    ".aws",
    ".azure",
    ".cargo",
    ".config/chromium",
    ".config/evolution",
    ".config/gcloud",
    ".config/gh",
    ".config/git",
    ".config/google-chrome",
    ".config/op",
    ".config/rclone",
    ".docker",
    ".gem",
    ".gnupg",
    ".kube",
    ".local/share/evolution",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".m2",
    ".mozilla",
    ".password-store",
    ".ssh",
    ".terraform.d",
    ".thunderbird",
    "Library/Application Support",
    "Library/Keychains",
    "Library/Mail",
    "Library/Messages",
];

/// Directories below the home directory that start programs, beside those whose names begin with a dot: what lies in those
/// is configuration, which says what shells, desktops and editors start.
const PROGRAMS: [&str; 8] = [
    "Applications",
    "Library",
    "Mail",
    "Maildir",
    "bin",
    "go/bin",
    "sbin",
    "scripts",
];

/// Directories with a dot that hold nothing but what can be made again.
const CACHES: [&str; 1] = [".cache"];

/// Directories from which the system starts programs at times and events. What else the system has is [`SYSTEM`].
const SCHEDULES: [&str; 4] = ["/opt", "/srv/git", "/var/spool/at", "/var/spool/cron"];

/// Why a grant is dangerous; `None` if nothing is known against it.
///
/// Looks at the path alone and touches no file. `grant.host` should be absolute and free of symbolic links; `home` is the
/// home directory of the person, `None` where it is not known.
pub fn dangerous(grant: &DirGrant, home: Option<&Path>) -> Option<GrantRisk> {
    let host = resolve_dots(&grant.host);
    let is_socket = host
        .extension()
        .is_some_and(|extension| extension == "sock" || extension == "socket");
    if is_socket || SOCKETS.iter().any(|dir| host.starts_with(dir)) {
        return Some(GrantRisk::Socket);
    }
    if host.has_root() && host.parent().is_none() {
        return Some(GrantRisk::Root);
    }
    if let Some(home) = home.map(resolve_dots).filter(|home| home.has_root()) {
        if home.starts_with(&host) {
            return Some(GrantRisk::Home);
        }
        let meets = |keys: &str| {
            let keys = home.join(keys);
            keys.starts_with(&host) || host.starts_with(&keys)
        };
        if KEYS.iter().any(|keys| meets(keys)) {
            return Some(GrantRisk::Keys);
        }
        if grant.access.can_change() && starts_programs(&host, &home) {
            return Some(GrantRisk::Programs);
        }
        // The home directory of `root` is a system directory for everybody else.
        if host.starts_with(&home) {
            let is_protected = grant.access.can_change() && is_protected(&host);
            return is_protected.then_some(GrantRisk::Programs);
        }
    }
    let is_homes = host == Path::new("/home") || host == Path::new("/Users");
    if is_homes {
        return Some(GrantRisk::Home);
    }
    if SYSTEM.iter().any(|dir| host.starts_with(dir)) {
        return Some(GrantRisk::System);
    }
    let is_schedule = SCHEDULES.iter().any(|dir| host.starts_with(dir));
    (grant.access.can_change() && (is_schedule || is_protected(&host))).then_some(GrantRisk::Programs)
}

/// Whether the directory is, or lies in, one that starts programs wherever it lies, such as `.git` and `.vscode`.
fn is_protected(host: &Path) -> bool {
    protection("", &host.to_string_lossy()).is_some()
}

/// Whether a directory is one that says what is started, or lies in one, or above one that is not the home directory.
fn starts_programs(host: &Path, home: &Path) -> bool {
    let Ok(below) = host.strip_prefix(home) else {
        return false;
    };
    let is_hidden = below
        .components()
        .next()
        .is_some_and(|first| first.as_os_str().as_encoded_bytes().starts_with(b"."));
    let is_cache = CACHES.iter().any(|cache| below.starts_with(cache));
    let meets = |programs: &&str| {
        let programs = Path::new(programs);
        programs.starts_with(below) || below.starts_with(programs)
    };
    (is_hidden && !is_cache) || PROGRAMS.iter().any(meets)
}

/// The path without `.` and `..`, as it reads.
fn resolve_dots(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                resolved.pop();
            }
            part => resolved.push(part),
        }
    }
    resolved
}

impl fmt::Display for GrantRisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Root => "is a whole file system",
            Self::Home => "holds your home directory, with keys, mail and history",
            Self::Keys => "holds keys or credentials",
            Self::System => "belongs to the operating system",
            Self::Programs => "starts programs, or says which are started, outside of every cell",
            Self::Socket => "holds sockets of running services, which can do anything that the service can",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::DirAccess;

    fn danger(host: &str, home: Option<&str>) -> Option<GrantRisk> {
        let grant = DirGrant {
            host: host.into(),
            guest: "/".into(),
            access: DirAccess::READ,
            overlay: None,
        };
        dangerous(&grant, home.map(Path::new))
    }

    #[test]
    fn dangerous_grants_are_told_from_ordinary_ones() {
        for (host, expected) in [
            ("/", Some(GrantRisk::Root)),
            ("//", Some(GrantRisk::Root)),
            ("/work/..", Some(GrantRisk::Root)),
            ("/home/ada", Some(GrantRisk::Home)),
            ("/home/ada/", Some(GrantRisk::Home)),
            ("/home/ada/work/..", Some(GrantRisk::Home)),
            ("/home", Some(GrantRisk::Home)),
            ("/home/ada/.ssh", Some(GrantRisk::Keys)),
            ("/home/ada/.ssh/keys", Some(GrantRisk::Keys)),
            ("/home/ada/.config", Some(GrantRisk::Keys)),
            ("/etc", Some(GrantRisk::System)),
            ("/proc/self", Some(GrantRisk::System)),
            ("/var/run/docker.sock", Some(GrantRisk::Socket)),
            ("/run/user/1000", Some(GrantRisk::Socket)),
            ("/tmp/agent.sock", Some(GrantRisk::Socket)),
            ("/tmp/agent.socket", Some(GrantRisk::Socket)),
            ("/tmp/agent.txt", None),
            ("/home/ada/work", None),
            ("/home/ada/.config/toolcell", None),
            ("/home/ada/.cargo", Some(GrantRisk::Keys)),
            ("/home/ada/.thunderbird/x", Some(GrantRisk::Keys)),
            ("/home/ada/bin", None),
            ("/work/.git", None),
            ("/home/adam", None),
            ("/work", None),
            ("/etcetera", None),
            ("/tmp/x", None),
        ] {
            assert_eq!(danger(host, Some("/home/ada")), expected, "{host}");
        }
    }

    #[test]
    fn directories_that_start_programs_are_dangerous_to_change() {
        for (host, expected) in [
            ("/home/ada/bin", true),
            ("/home/ada/bin/tools", true),
            ("/home/ada/go", true),
            ("/home/ada/.local/bin", true),
            ("/home/ada/.local", false), // Holds keys, which comes first.
            ("/home/ada/.config/autostart", true),
            ("/home/ada/.config/systemd/user", true),
            ("/home/ada/.config/toolcell", true),
            ("/home/ada/.vim", true),
            ("/home/ada/.oh-my-zsh/custom", true),
            ("/home/ada/.cache/x", false),
            ("/home/ada/Mail", true),
            ("/home/ada/work", false),
            ("/home/ada/work/.cache", false),
            ("/home/ada/work/.git", true),
            ("/home/ada/work/.git/hooks", true),
            ("/home/ada/work/.github/workflows", true),
            ("/home/ada/work/.github", false),
            ("/work/.VSCode", true),
            ("/var/spool/cron/crontabs", true),
            ("/usr/local/bin", false), // Of the system, which comes first.
            ("/opt/x", true),
            ("/work", false),
        ] {
            let grant = DirGrant {
                host: host.into(),
                guest: "/".into(),
                access: DirAccess::WRITE,
                overlay: None,
            };
            let found = dangerous(&grant, Some(Path::new("/home/ada")));
            assert_eq!(found == Some(GrantRisk::Programs), expected, "{host} {found:?}");
        }
    }

    #[test]
    fn without_a_known_home_all_homes_are_guarded() {
        assert_eq!(danger("/home", None), Some(GrantRisk::Home));
        assert_eq!(danger("/Users", None), Some(GrantRisk::Home));
        assert_eq!(danger("/", None), Some(GrantRisk::Root));
        assert_eq!(danger("/home/ada/work", None), None);
    }

    #[test]
    fn the_home_of_root_is_a_home() {
        assert_eq!(danger("/root", Some("/root")), Some(GrantRisk::Home));
        assert_eq!(danger("/root/work", Some("/root")), None);
        assert_eq!(danger("/root/work", Some("/home/ada")), Some(GrantRisk::System));
    }
}
