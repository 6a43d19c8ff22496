//! Detection of directory grants that give away more than they seem to.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use crate::policy::DirGrant;
use crate::protected::protection;

/// Reason why a grant is risky. [`fmt::Display`] completes the sentence "this directory …".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrantRisk {
    /// Root of a file system.
    Root,
    /// Home directory, or a directory that contains it.
    Home,
    /// Directory of keys and credentials, or a parent of one below the home directory.
    Keys,
    /// Directory of the operating system.
    System,
    /// Socket or directory of sockets, such as that of a container engine: access to it can mean full control of the
    /// host.
    Socket,
    /// Directory from which programs are started, or whose files configure that: write access allows execution outside
    /// of a cell.
    Programs,
}

/// Directories of the operating system: its programs, and what it and the services of root run, or read as their
/// configuration or state. A grant of one of them, of anything below, or of a directory that holds one is risky.
/// Temporary directories (`/tmp`, `/var/tmp`, `/var/folders`), logs and files that are served (`/var/log`, `/var/www`,
/// `/srv`) are not among them.
const SYSTEM: [&str; 41] = [
    "/bin",
    "/boot",
    "/dev",
    "/efi",
    "/etc",
    "/gnu",
    "/lib",
    "/lib32",
    "/lib64",
    "/libexec",
    "/libx32",
    "/nix",
    "/opt",
    "/proc",
    "/rescue",
    "/root",
    "/sbin",
    "/snap",
    "/sys",
    "/usr",
    "/System",
    "/Library",
    "/var/at",
    "/var/backups",
    "/var/cache",
    "/var/cron",
    "/var/db",
    "/var/lib",
    "/var/local",
    "/var/opt",
    "/var/root",
    "/var/snap",
    "/var/spool",
    // What `/etc` and `/var` lead to on macOS.
    "/private/etc",
    "/private/var/at",
    "/private/var/backups",
    "/private/var/cron",
    "/private/var/db",
    "/private/var/lib",
    "/private/var/root",
    "/private/var/spool",
];

/// Directories of sockets and of runtime state of services.
const SOCKETS: [&str; 4] = ["/run", "/var/run", "/private/var/run", "/var/lib/docker"];

/// Directories below the home directory that contain keys.
const KEYS: [&str; 38] = [
    ".android",
    ".aws",
    ".azure",
    ".bitwarden",
    ".cargo",
    ".claude",
    ".codex",
    ".composer",
    ".config/chromium",
    ".config/evolution",
    ".config/gcloud",
    ".config/gh",
    ".config/git",
    ".config/google-chrome",
    ".config/op",
    ".config/rclone",
    ".docker",
    ".electrum",
    ".fly",
    ".gem",
    ".gnupg",
    ".gradle",
    ".ivy2",
    ".kube",
    ".local/share/evolution",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".m2",
    ".mozilla",
    ".password-store",
    ".pki",
    ".ssh",
    ".terraform.d",
    ".thunderbird",
    "Library/Application Support",
    "Library/Keychains",
    "Library/Mail",
    "Library/Messages",
];

/// Directories below the home directory that start programs, in addition to dot directories, whose configuration
/// determines what shells, desktops and editors start.
const PROGRAMS: [&str; 13] = [
    "Applications",
    "Library",
    "Mail",
    "Maildir",
    "anaconda3",
    "bin",
    "go/bin",
    "mambaforge",
    "miniconda3",
    "miniforge3",
    "perl5",
    "sbin",
    "scripts",
];

/// Dot directory whose subdirectories contain data that can be recreated. Not itself, because shells and hooks run some of its
/// files.
const CACHE: &str = ".cache";

/// Beginnings of the names in [`CACHE`] that are run: hooks, prompts of shells, environments of interpreters.
const RUN_CACHES: [&str; 10] = [
    "bazel",
    "gitstatus",
    "huggingface", // Models of some libraries contain code.
    "nix",
    "p10k",
    "pre-commit",
    "prek",
    "pypoetry",
    "uv",
    "zsh",
];

/// Directories from which programs are started by users or by services, in addition to [`SYSTEM`].
const SHARED: [&str; 2] = ["/Applications", "/srv/git"];

/// Returns the reason why a grant is risky, or `None` if no risk is known.
///
/// Inspects the path alone, without file system access. `grant.host` should be absolute and free of symbolic links;
/// `home` is the home directory of the user, or `None` if unknown.
pub fn dangerous(grant: &DirGrant, home: Option<&Path>) -> Option<GrantRisk> {
    let host = resolve_dots(&grant.host);
    if host.has_root() && host.parent().is_none() {
        return Some(GrantRisk::Root);
    }
    let is_socket = host
        .extension()
        .is_some_and(|extension| extension == "sock" || extension == "socket");
    if is_socket || meets(&host, &SOCKETS) {
        return Some(GrantRisk::Socket);
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
        // The home directory of `root` is a system directory for all other users.
        if host.starts_with(&home) {
            let is_protected = grant.access.can_change() && is_protected(&host);
            return is_protected.then_some(GrantRisk::Programs);
        }
    }
    let is_homes = host == Path::new("/home") || host == Path::new("/Users");
    if is_homes {
        return Some(GrantRisk::Home);
    }
    if meets(&host, &SYSTEM) {
        return Some(GrantRisk::System);
    }
    (grant.access.can_change() && (meets(&host, &SHARED) || is_protected(&host)))
        .then_some(GrantRisk::Programs)
}

/// Returns `true` if a directory is one of these, is below one, or holds one.
fn meets(host: &Path, dirs: &[&str]) -> bool {
    host.has_root() && (dirs.iter().map(Path::new)).any(|dir| host.starts_with(dir) || dir.starts_with(host))
}

/// Returns `true` if the directory is, or is below, one that starts programs anywhere, such as `.git` and `.vscode`.
fn is_protected(host: &Path) -> bool {
    protection("", &host.to_string_lossy()).is_some()
}

/// Returns `true` for a directory that determines which programs start, anything below one, and parents of one below
/// the home directory.
fn starts_programs(host: &Path, home: &Path) -> bool {
    let Ok(below) = host.strip_prefix(home) else {
        return false;
    };
    let is_hidden = below
        .components()
        .next()
        .is_some_and(|first| first.as_os_str().as_encoded_bytes().starts_with(b"."));
    let cache = below.strip_prefix(CACHE).ok();
    let cache = cache.and_then(|cache| cache.components().next()?.as_os_str().to_str());
    let is_cache = cache.is_some_and(|name| !RUN_CACHES.iter().any(|run| name.starts_with(run)));
    let meets = |programs: &&str| {
        let programs = Path::new(programs);
        programs.starts_with(below) || below.starts_with(programs)
    };
    (is_hidden && !is_cache) || PROGRAMS.iter().any(meets)
}

/// Resolves `.` and `..` lexically.
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
            Self::Root => "is the root of a file system",
            Self::Home => "contains your home directory, with keys, mail and history",
            Self::Keys => "contains keys or credentials",
            Self::System => "belongs to the operating system",
            Self::Programs => "starts programs outside of every cell, or configures which are started",
            Self::Socket => "contains sockets of running services; access to them allows everything that the service can do",
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
    fn risky_grants_are_distinguished_from_ordinary_ones() {
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
            ("/home/ada/.claude", Some(GrantRisk::Keys)),
            ("/home/ada/.gradle/x", Some(GrantRisk::Keys)),
            ("/home/ada/.pki", Some(GrantRisk::Keys)),
            ("/home/ada/.thunderbird/x", Some(GrantRisk::Keys)),
            ("/home/ada/bin", None),
            ("/work/.git", None),
            ("/home/adam", None),
            ("/work", None),
            ("/etcetera", None),
            ("/tmp/x", None),
            ("/var", Some(GrantRisk::Socket)),
            ("/var/lib", Some(GrantRisk::Socket)),
            ("/private/var", Some(GrantRisk::Socket)),
            ("/private", Some(GrantRisk::Socket)),
            ("/var/lib/dpkg/info", Some(GrantRisk::System)),
            ("/var/spool", Some(GrantRisk::System)),
            ("/var/spool/cron/crontabs", Some(GrantRisk::System)),
            ("/var/cache/apt", Some(GrantRisk::System)),
            ("/var/db", Some(GrantRisk::System)),
            ("/private/var/root", Some(GrantRisk::System)),
            ("/opt", Some(GrantRisk::System)),
            ("/opt/x", Some(GrantRisk::System)),
            ("/root", Some(GrantRisk::System)),
            ("/boot/efi", Some(GrantRisk::System)),
            ("/lib64", Some(GrantRisk::System)),
            ("/usr/local/bin", Some(GrantRisk::System)),
            ("/var/tmp", None),
            ("/var/tmp/x", None),
            ("/var/folders/zz/x/T", None),
            ("/private/var/folders/zz/x/T", None),
            ("/private/tmp/x", None),
            ("/var/log/app", None),
            ("/var/www/x", None),
            ("/srv/git", None),
            ("var", None),
        ] {
            assert_eq!(danger(host, Some("/home/ada")), expected, "{host}");
        }
    }

    #[test]
    fn write_access_to_directories_that_start_programs_is_risky() {
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
            ("/home/ada/.cache", true),
            ("/home/ada/.cache/pre-commit/repo1", true),
            ("/home/ada/.cache/p10k-ada", true),
            ("/home/ada/miniconda3", true),
            ("/home/ada/Mail", true),
            ("/home/ada/work", false),
            ("/home/ada/work/.cache", false),
            ("/home/ada/work/.git", true),
            ("/home/ada/work/.git/hooks", true),
            ("/home/ada/work/.github/workflows", true),
            ("/home/ada/work/.github", false),
            ("/work/.VSCode", true),
            ("/usr/local/bin", false), // A system directory, which comes first.
            ("/srv/git/x.git", true),
            ("/srv/git", true),
            ("/srv", true),
            ("/srv/www", false),
            ("/Applications/X.app", true),
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
    fn without_known_home_all_home_directories_are_risky() {
        assert_eq!(danger("/home", None), Some(GrantRisk::Home));
        assert_eq!(danger("/Users", None), Some(GrantRisk::Home));
        assert_eq!(danger("/", None), Some(GrantRisk::Root));
        assert_eq!(danger("/home/ada/work", None), None);
    }

    #[test]
    fn home_of_root_is_a_home_directory() {
        assert_eq!(danger("/root", Some("/root")), Some(GrantRisk::Home));
        assert_eq!(danger("/root/work", Some("/root")), None);
        assert_eq!(danger("/root/work", Some("/home/ada")), Some(GrantRisk::System));
    }
}
