//! Directory grants that give away more than a person who writes them may think.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use crate::policy::DirGrant;

/// Why a grant needs a second look. [`fmt::Display`] ends the sentence "this directory …".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Danger {
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
const KEYS: [&str; 14] = [
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/gh",
    ".docker",
    ".gnupg",
    ".kube",
    ".local/share/keyrings",
    ".mozilla",
    ".password-store",
    ".ssh",
    ".config/google-chrome",
    ".terraform.d",
    "Library/Keychains",
];

/// Why a grant is dangerous; `None` if nothing is known against it.
///
/// Looks at the path alone and touches no file. `grant.host` should be absolute and free of symbolic links; `home` is the
/// home directory of the person, `None` where it is not known.
pub fn dangerous(grant: &DirGrant, home: Option<&Path>) -> Option<Danger> {
    let host = resolve_dots(&grant.host);
    let is_socket = host
        .extension()
        .is_some_and(|extension| extension == "sock" || extension == "socket");
    if is_socket || SOCKETS.iter().any(|dir| host.starts_with(dir)) {
        return Some(Danger::Socket);
    }
    if host.has_root() && host.parent().is_none() {
        return Some(Danger::Root);
    }
    if let Some(home) = home.map(resolve_dots).filter(|home| home.has_root()) {
        if home.starts_with(&host) {
            return Some(Danger::Home);
        }
        let meets = |keys: &str| {
            let keys = home.join(keys);
            keys.starts_with(&host) || host.starts_with(&keys)
        };
        if KEYS.iter().any(|keys| meets(keys)) {
            return Some(Danger::Keys);
        }
        // The home directory of `root` is a system directory for everybody else.
        if host.starts_with(&home) {
            return None;
        }
    }
    let is_homes = host == Path::new("/home") || host == Path::new("/Users");
    if is_homes {
        return Some(Danger::Home);
    }
    let in_system = SYSTEM.iter().any(|dir| host.starts_with(dir));
    in_system.then_some(Danger::System)
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

impl fmt::Display for Danger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Root => "is a whole file system",
            Self::Home => "holds your home directory, with keys, mail and history",
            Self::Keys => "holds keys or credentials",
            Self::System => "belongs to the operating system",
            Self::Socket => "holds sockets of running services, which can do anything that the service can",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::DirAccess;

    fn danger(host: &str, home: Option<&str>) -> Option<Danger> {
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
            ("/", Some(Danger::Root)),
            ("//", Some(Danger::Root)),
            ("/work/..", Some(Danger::Root)),
            ("/home/ada", Some(Danger::Home)),
            ("/home/ada/", Some(Danger::Home)),
            ("/home/ada/work/..", Some(Danger::Home)),
            ("/home", Some(Danger::Home)),
            ("/home/ada/.ssh", Some(Danger::Keys)),
            ("/home/ada/.ssh/keys", Some(Danger::Keys)),
            ("/home/ada/.config", Some(Danger::Keys)),
            ("/etc", Some(Danger::System)),
            ("/proc/self", Some(Danger::System)),
            ("/var/run/docker.sock", Some(Danger::Socket)),
            ("/run/user/1000", Some(Danger::Socket)),
            ("/tmp/agent.sock", Some(Danger::Socket)),
            ("/home/ada/work", None),
            ("/home/ada/.config/toolcell", None),
            ("/home/adam", None),
            ("/work", None),
            ("/etcetera", None),
            ("/tmp/x", None),
        ] {
            assert_eq!(danger(host, Some("/home/ada")), expected, "{host}");
        }
    }

    #[test]
    fn without_a_known_home_all_homes_are_guarded() {
        assert_eq!(danger("/home", None), Some(Danger::Home));
        assert_eq!(danger("/Users", None), Some(Danger::Home));
        assert_eq!(danger("/", None), Some(Danger::Root));
        assert_eq!(danger("/home/ada/work", None), None);
    }

    #[test]
    fn the_home_of_root_is_a_home() {
        assert_eq!(danger("/root", Some("/root")), Some(Danger::Home));
        assert_eq!(danger("/root/work", Some("/root")), None);
        assert_eq!(danger("/root/work", Some("/home/ada")), Some(Danger::System));
    }
}
