//! Paths that are denied to every tool: files that Toolcell itself reads, trusts and stores.
//!
//! With write access, a tool could change its own grants, approvals, or compiled code; with read access, it could read
//! other sessions. These paths are denials in every policy, so that a grant of a parent directory does not include
//! them.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use toolcell_core::denial::{Denials, DeniedUse, PathDenial};
use toolcell_core::policy::DirGrant;
use toolcell_core::protected::PROGRAMS;

use crate::config::grants::{self, ResolvedGrant};
use crate::config::source::Layer;
use crate::config::{ComponentSource, Settings};
use crate::environment::Environment;
use crate::error::Failure;
use crate::ui::terminal::{Own, text};

/// Origin of the denial of a component.
const COMPONENT: &str = "the component";

/// Variables that name files and directories of certificates, which are trusted in connections to providers and in
/// requests of tools.
const CERTIFICATES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Variables that name files and directories of libraries, scripts and configuration which every program, shell, Git or
/// interactive Python loads. Search paths of modules (`PYTHONPATH`, `NODE_PATH`) are not among them: they name the sources
/// that a user works on.
const LOADED: [&str; 22] = [
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LD_AUDIT",
    "DYLD_LIBRARY_PATH",
    "DYLD_FRAMEWORK_PATH",
    "DYLD_FALLBACK_LIBRARY_PATH",
    "DYLD_FALLBACK_FRAMEWORK_PATH",
    "DYLD_INSERT_LIBRARIES",
    "GCONV_PATH",
    "OPENSSL_CONF",
    "OPENSSL_MODULES",
    "OPENSSL_ENGINES",
    "BASH_ENV",
    "ENV",
    "ZDOTDIR",
    "GIT_CONFIG",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_EXEC_PATH",
    "GIT_TEMPLATE_DIR",
    "PYTHONSTARTUP",
    "PYTHONHOME",
];

/// Variables with options for every start of a program, which may name files to load: `--require ./a.js`, `-javaagent:a.jar`.
const OPTIONS: [&str; 6] = [
    "NODE_OPTIONS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
    "RUBYOPT",
    "PERL5OPT",
];

/// Variables that move a directory of the home directory (XDG Base Directory Specification), each with its place without them.
const MOVED: [(&str, &str); 2] = [("XDG_CONFIG_HOME", ".config"), ("XDG_DATA_HOME", ".local/share")];

/// Maximum number of symbolic links followed to a program, as on Linux.
const MAX_LINKS: usize = 40;

/// Returns the denials for every tool and hook.
pub(crate) fn own_places(settings: &Settings, environment: &Environment) -> Vec<PathDenial> {
    let mut places = Vec::new();
    // A configuration can name one file for thousands of components.
    let mut known = BTreeSet::new();
    let mut add = |path: &Path, uses, what: &'static str| {
        if known.insert((path.to_owned(), uses == DeniedUse::All, what)) {
            places.push(denial(path, uses, what, environment));
        }
    };
    let directories = [
        &environment.config_dir,
        &environment.cache_dir,
        &environment.data_dir,
        &environment.state_dir,
    ];
    for dir in directories.into_iter().flatten() {
        add(dir, DeniedUse::All, "Toolcell's own directory");
    }
    if let Some(log) = &settings.log {
        add(&log.dir.value, DeniedUse::All, "the directory of logs");
    }
    for secret in settings.secrets.values() {
        if let Some(file) = &secret.value.file {
            let path = environment.path(file, &environment.cwd);
            add(&path, DeniedUse::All, "the file of a secret");
        }
    }
    for source in &settings.files {
        let uses = match source.layer {
            Layer::User => DeniedUse::All,
            Layer::Project => DeniedUse::Change,
        };
        add(&source.path, uses, "the configuration");
    }
    let hooks = settings.hooks.values().map(|hook| &hook.component);
    for component in settings.tools.values().chain(hooks) {
        if let ComponentSource::File(path) = &component.component {
            add(&path.value, DeniedUse::Change, COMPONENT);
        }
    }
    for server in settings.mcp.values() {
        if let Some(file) = server.token_file() {
            add(file, DeniedUse::All, "the tokens for an MCP server");
        }
        for path in server.files(environment) {
            add(&path, DeniedUse::Change, "the command of an MCP server");
        }
    }
    let agents = settings.agents.values().map(|agent| &agent.provider);
    let profiles = settings.profiles.values();
    for provider in std::iter::once(&settings.provider).chain(agents).chain(profiles) {
        if let Some(command) = &provider.token_command {
            for path in command.value.files(environment) {
                add(&path, DeniedUse::Change, "the command for tokens");
            }
        }
    }
    if let Some(file) = &settings.overrides.system_file {
        add(file, DeniedUse::Change, "the file of instructions");
    }
    for path in CERTIFICATES.iter().flat_map(|name| environment.paths(name)) {
        add(&path, DeniedUse::Change, "the certificates");
    }
    let options = OPTIONS.iter().filter_map(|name| environment.var(name));
    let options = options
        .flat_map(files_in_options)
        .map(|file| environment.cwd.join(file));
    for path in LOADED
        .iter()
        .flat_map(|name| paths_in(name, environment))
        .chain(options)
    {
        // An empty part means each working directory, and denying that would deny everything.
        if !environment.cwd.starts_with(&path) {
            add(&path, DeniedUse::Change, "what programs load");
        }
    }
    for scratch in scratch_dirs(settings, environment) {
        add(&scratch, DeniedUse::All, "the scratch directory");
    }
    places
}

/// Endings that programs add to the name of a file to load.
const ENDINGS: [&str; 6] = ["", ".js", ".cjs", ".json", ".node", ".rb"];

/// Returns what may be a file in the options of a program: a word with a slash or a dot, its part after `=`, `:` or `@`, and what
/// follows the letter of `-I` and `-r`.
fn files_in_options(options: &str) -> impl Iterator<Item = String> {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '=' | ':' | ',' | ';' | '"' | '\'' | '@');
    let words = options.split(is_end).flat_map(|word| {
        let named = ["-I", "-r"].iter().find_map(|letter| word.strip_prefix(letter));
        let is_path = word.contains(['/', '.']) && !word.starts_with('-');
        [named, is_path.then_some(word)].into_iter().flatten()
    });
    words
        .filter(|word| !word.is_empty())
        .flat_map(|word| ENDINGS.iter().map(move |ending| format!("{word}{ending}")))
}

/// Returns the paths in the value of a variable, which some programs also divide by blanks or semicolons.
fn paths_in(name: &str, environment: &Environment) -> impl Iterator<Item = PathBuf> {
    let value = environment.var(name).unwrap_or_default();
    let words = value.split([' ', '\t', ';', ':']).filter(|word| !word.is_empty());
    let words = words.map(|word| environment.cwd.join(word));
    environment.paths(name).chain(words)
}

/// Returns the directories that variables have moved out of the home directory, without links, each with its place there.
fn moved(environment: &Environment) -> impl Iterator<Item = (PathBuf, &'static str)> {
    MOVED.into_iter().filter_map(|(name, place)| {
        // The specification ignores relative paths.
        let dir = environment
            .var(name)
            .map(PathBuf::from)
            .filter(|dir| dir.is_absolute())?;
        Some((dir.canonicalize().unwrap_or(dir), place))
    })
}

/// Returns the path in the home directory for which one stands that lies in a directory which a variable has moved.
pub(super) fn path_in_home(path: &Path, environment: &Environment) -> Option<PathBuf> {
    let home = environment.home.as_deref()?;
    moved(environment).find_map(|(dir, place)| Some(home.join(place).join(path.strip_prefix(dir).ok()?)))
}

/// Returns what starts programs in directories that variables have moved: the names of the list in the home directory.
fn moved_programs(environment: &Environment) -> impl Iterator<Item = PathBuf> {
    moved(environment).flat_map(|(dir, place)| {
        PROGRAMS
            .iter()
            .filter_map(move |name| match name.strip_prefix(place)? {
                "" => Some(dir.clone()),
                rest => Some(dir.join(rest.strip_prefix('/')?)),
            })
    })
}

/// Returns the denials of changes to programs that are started outside of every cell: this executable, and unless
/// `dangerous`, what is in a directory of `PATH` or in one that a variable has moved out of the home directory.
fn programs(dangerous: bool, environment: &Environment) -> Vec<PathDenial> {
    let own = environment.executables.iter().cloned();
    let own = own.map(|path| (path, "Toolcell's own executable"));
    let others = environment.program_dirs().filter(|_| !dangerous);
    let others = others.map(|path| (path, "the directory of programs (PATH)"));
    let moved = moved_programs(environment).filter(|_| !dangerous);
    let moved = moved.map(|path| (path, "what starts programs (XDG)"));
    let mut known = BTreeSet::new();
    own.chain(others)
        .chain(moved)
        .filter(|(path, _)| known.insert(path.clone()))
        .map(|(path, what)| denial(&path, DeniedUse::Change, what, environment))
        .collect()
}

/// Returns those denials of [`programs`] that concern granted directories, because each takes time in every call.
pub(crate) fn programs_in(dirs: &[DirGrant], dangerous: bool, environment: &Environment) -> Vec<PathDenial> {
    let dirs: Vec<_> = dirs.iter().filter(|dir| dir.access.can_change()).collect();
    // Each directory of `PATH` is looked up, of which there are many.
    if dirs.is_empty() {
        return Vec::new();
    }
    let is_below = |path: &Path| (dirs.iter()).any(|dir| path.starts_with(&dir.host) && path != dir.host);
    let mut programs = programs(dangerous, environment);
    programs.retain(|denial| steps_to(&denial.host).iter().any(|step| is_below(step)));
    programs
}

/// Returns a path as it is written, after each symbolic link on its way, and without any.
fn steps_to(path: &Path) -> Vec<PathBuf> {
    let mut steps: Vec<PathBuf> = path.canonicalize().into_iter().collect();
    let mut next = Some(path.to_owned());
    while let Some(step) = next.filter(|_| steps.len() <= MAX_LINKS) {
        let mut parts: Vec<&Path> = step.ancestors().collect();
        parts.reverse();
        let link = parts.iter().find_map(|part| Some((part, part.read_link().ok()?)));
        next = link.map(|(link, target)| {
            let rest = step.strip_prefix(link).unwrap_or(Path::new(""));
            let joined = link.parent().unwrap_or(Path::new("/")).join(target).join(rest);
            let mut plain = PathBuf::new();
            for part in joined.components() {
                match part {
                    Component::ParentDir => _ = plain.pop(),
                    part => plain.push(part),
                }
            }
            plain
        });
        steps.push(step);
    }
    steps
}

/// Returns the denial of changes to a component.
pub(crate) fn component(path: &Path, environment: &Environment) -> PathDenial {
    denial(path, DeniedUse::Change, COMPONENT, environment)
}

/// Returns the denial of a path as it is written: with the links that lead to it, which are denied as well.
fn denial(path: &Path, uses: DeniedUse, what: &'static str, environment: &Environment) -> PathDenial {
    PathDenial {
        host: path.to_owned(),
        uses,
        by: text!("{} `{}`", Own(what), environment.shown(path)).inert(),
    }
}

/// Returns the denials for every tool: those of the configuration, [`own_places`], and unless `dangerous`, those of
/// files that start programs.
///
/// # Errors
/// A line cannot be resolved on this machine.
pub(crate) fn denials_of_all(
    settings: &Settings,
    dangerous: bool,
    environment: &Environment,
) -> Result<Denials, Failure> {
    let lines = settings.deny.iter();
    let denied = lines
        .map(|line| line.resolve(environment))
        .collect::<Result<Vec<ResolvedGrant>, Failure>>()?;
    let mut denials = grants::combine(&denied, environment)?.denied;
    denials.paths.extend(own_places(settings, environment));
    denials.paths.extend(programs(dangerous, environment));
    denials.programs = dangerous;
    Ok(denials)
}

fn scratch_dirs(settings: &Settings, environment: &Environment) -> Vec<PathBuf> {
    let tools = settings.tools.values();
    tools
        .filter_map(|tool| settings.scratch_of(tool))
        .map(|dir| environment.path(&dir.value, &environment.cwd))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::config::{self, Overrides};

    #[test]
    fn programs_of_user_are_denied_in_granted_directories() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        for name in ["work/target/release", "work/bin", "other/bin"] {
            std::fs::create_dir_all(dir.join(name)).unwrap();
        }
        symlink("bin", dir.join("work/link")).unwrap();
        let path = format!("bin:{0}/work/link:{0}/other/bin::.:{0}", dir.display());
        let mut environment = Environment::for_tests(&dir.join("work"), &[("PATH", &path)]);
        environment.executables = vec![dir.join("work/target/release/toolcell")];
        let denied = |grant: &str, flags: Overrides| {
            let overrides = Overrides {
                grants: vec![grant.parse().unwrap()],
                ..flags
            };
            let settings = config::load(&environment, overrides).unwrap();
            let policy = settings.tools["files"].policy(&settings, &environment);
            policy.map(|policy| {
                let hosts = policy.grants.denied.paths.into_iter().map(|denial| denial.host);
                let shown = hosts.map(|host| host.strip_prefix(&dir).unwrap().display().to_string());
                shown.collect::<Vec<_>>()
            })
        };
        let plain = Overrides::default;
        let dangerous = || Overrides {
            dangerous: true,
            ..Overrides::default()
        };
        let own = "work/target/release/toolcell";
        assert_eq!(
            denied("write=.", plain()).unwrap(),
            [own, "work/bin", "work/link"]
        );
        assert_eq!(denied("write=.", dangerous()).unwrap(), [own]);
        assert_eq!(denied("read=.", plain()).unwrap(), [""; 0]);
        assert_eq!(denied("write=target", plain()).unwrap(), [own]);
        // A directory of `PATH` itself, unless it is the working directory by an empty entry.
        for grant in ["write=bin", "write=link", "write=../other/bin", "write=.."] {
            assert_eq!(
                denied(grant, plain()).unwrap_err().exit,
                crate::error::Exit::Denied
            );
            denied(grant, dangerous()).unwrap();
        }
        assert_eq!(denied("read=bin", plain()).unwrap(), [""; 0]);
    }

    #[test]
    fn configured_paths_are_denied_as_they_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["v1", "dotfiles"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        std::fs::write(at("v1/t.wasm"), "").unwrap();
        let text = "[tools.a]\ncomponent = \"link.wasm\"\n[hooks.b]\ncomponent = \"cur/t.wasm\"\n\
            [log]\ndir = \"logs\"\n[secrets.k]\nfile = \"key\"\n\
            [provider]\ntoken_command = [\"sh\", \"-c\", \"./tok.sh --audience x\"]\n";
        std::fs::write(at("dotfiles/config"), text).unwrap();
        for (target, link) in [
            ("v1/t.wasm", "link.wasm"),
            ("v1", "cur"),
            ("v1", "logs"),
            ("v1/t.wasm", "key"),
            ("dotfiles/config", "config.toml"),
            ("dotfiles", "state"),
        ] {
            symlink(target, at(link)).unwrap();
        }
        let mut environment = Environment::for_tests(dir.path(), &[]);
        environment.state_dir = Some(at("state"));
        let overrides = Overrides {
            config: Some(at("config.toml")),
            ..Overrides::default()
        };
        let settings = config::load(&environment, overrides).unwrap();
        let denied = own_places(&settings, &environment);
        for name in [
            "link.wasm",
            "cur/t.wasm",
            "logs",
            "key",
            "config.toml",
            "state",
            "./tok.sh",
        ] {
            assert!(
                denied.iter().any(|denial| denial.host == at(name)),
                "{name}: {denied:?}"
            );
        }
    }

    #[test]
    fn libraries_that_programs_load_are_denied() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path().join("work");
        let vars = [
            ("LD_LIBRARY_PATH", "lib::."),
            ("LD_PRELOAD", "/x/a.so lib2/b.so"),
            ("DYLD_LIBRARY_PATH", "y;lib3"),
            ("BASH_ENV", "env.sh"),
            ("GIT_CONFIG_GLOBAL", "git.conf"),
            (
                "NODE_OPTIONS",
                "--require=./a.js --import \"/x/b.mjs\" -r ./e --max-old-space-size=100",
            ),
            ("JDK_JAVA_OPTIONS", "@f/args"),
            ("PERL5OPT", "-Ilib4 -w"),
            ("JAVA_TOOL_OPTIONS", "-javaagent:c.jar=x"),
            ("RUBYOPT", "-r./d.rb -W0"),
            ("PYTHONPATH", "src"),
        ];
        let environment = Environment::for_tests(&cwd, &vars);
        let settings = config::load(&environment, Overrides::default()).unwrap();
        let denied = own_places(&settings, &environment);
        for (path, is_denied) in [
            (cwd.join("lib"), true),
            (PathBuf::from("/x/a.so"), true),
            (cwd.join("env.sh"), true),
            (cwd.join("git.conf"), true),
            (cwd.join("a.js"), true),
            (cwd.join("e.js"), true),
            (cwd.join("f/args"), true),
            (cwd.join("lib2/b.so"), true),
            (cwd.join("lib3"), true),
            (cwd.join("lib4"), true),
            (cwd.join("w"), false),
            (PathBuf::from("/x/b.mjs"), true),
            (cwd.join("c.jar"), true),
            (cwd.join("d.rb"), true),
            (cwd.join("100"), false),
            (cwd.join("src"), false),
            (cwd.clone(), false),
        ] {
            let is_it = |denial: &PathDenial| denial.host.components().eq(path.components());
            assert_eq!(denied.iter().any(is_it), is_denied, "{}", path.display());
        }
    }

    #[test]
    fn working_directory_in_path_is_denied_if_it_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(dir.join("work/bin")).unwrap();
        let work = dir.join("work");
        let absolute = format!("bin:{}", work.display());
        for (path, expected) in [
            ("bin::bin:.:./", &["bin"][..]),
            (&absolute, &["bin", ""]),
            ("bin:../work", &["bin", "../work"]),
        ] {
            let environment = Environment::for_tests(&work, &[("PATH", path)]);
            let denied = programs(false, &environment);
            let hosts: Vec<&Path> = denied.iter().map(|denial| denial.host.as_path()).collect();
            let expected: Vec<PathBuf> = expected.iter().map(|dir| work.join(dir)).collect();
            assert_eq!(hosts, expected, "{path}");
            let overrides = Overrides {
                grants: vec!["write=.".parse().unwrap()],
                ..Overrides::default()
            };
            let settings = config::load(&environment, overrides).unwrap();
            let policy = settings.tools["files"].policy(&settings, &environment);
            assert_eq!(policy.is_ok(), expected.len() == 1, "{path}");
        }
    }

    #[test]
    fn what_starts_programs_is_denied_where_a_variable_has_moved_it() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        for name in [
            "home",
            "work/conf/autostart",
            "work/data/systemd/user",
            "work/docs",
        ] {
            std::fs::create_dir_all(dir.join(name)).unwrap();
        }
        let at = |name: &str| dir.join(name).to_str().unwrap().to_owned();
        let (conf, data) = (at("work/conf"), at("work/data"));
        let variables = [
            ("XDG_CONFIG_HOME", conf.as_str()),
            ("XDG_DATA_HOME", data.as_str()),
        ];
        let mut environment = Environment::for_tests(&dir, &variables);
        environment.home = Some(dir.join("home"));
        let grant = |name: &str| DirGrant {
            host: dir.join(name),
            guest: "/".into(),
            access: toolcell_core::policy::DirAccess {
                write: true,
                ..toolcell_core::policy::DirAccess::READ
            },
            overlay: None,
        };
        let denied = |dangerous| -> Vec<PathBuf> {
            let denied = programs_in(&[grant("work")], dangerous, &environment).into_iter();
            denied.map(|denial| denial.host).collect()
        };
        for name in ["work/conf", "work/data/systemd", "work/data/nvim"] {
            assert!(denied(false).contains(&dir.join(name)), "{name}");
        }
        assert_eq!(denied(true), [] as [PathBuf; 0]);
        for (name, place) in [
            ("work/conf", Some("home/.config")),
            ("work/conf/autostart", Some("home/.config/autostart")),
            ("work/data/systemd/user", Some("home/.local/share/systemd/user")),
            ("work/docs", None),
            ("work", None),
        ] {
            let found = path_in_home(&dir.join(name), &environment);
            assert_eq!(found, place.map(|place| dir.join(place)), "{name}");
        }
    }

    #[test]
    fn each_link_to_a_program_is_denied() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        for name in ["work/x", "home", "opt/v1"] {
            std::fs::create_dir_all(dir.join(name)).unwrap();
        }
        std::fs::write(dir.join("opt/v1/toolcell"), "").unwrap();
        for (target, link) in [
            ("../opt/v1/toolcell", "work/toolcell"),
            ("x/../toolcell", "work/inner"),
            ("../work/inner", "home/toolcell"),
        ] {
            symlink(target, dir.join(link)).unwrap();
        }
        let mut environment = Environment::for_tests(&dir, &[("PATH", "other:home")]);
        let called = environment.program_file(Path::new("toolcell")).unwrap();
        assert_eq!(called, dir.join("home/toolcell"));
        environment.executables = vec![called.clone()];
        let dirs = |host: &str| {
            vec![DirGrant {
                host: dir.join(host),
                guest: "/".into(),
                access: toolcell_core::policy::DirAccess {
                    write: true,
                    ..toolcell_core::policy::DirAccess::READ
                },
                overlay: None,
            }]
        };
        let denied = |host: &str| {
            let denied = programs_in(&dirs(host), true, &environment).into_iter();
            denied.map(|denial| denial.host).collect::<Vec<_>>()
        };
        for host in ["work", "home", "opt/v1"] {
            assert_eq!(denied(host), [called.as_path()], "{host}");
        }
        assert_eq!(denied("work/x"), [] as [&Path; 0]);
        symlink("loop", dir.join("loop")).unwrap();
        assert_eq!(steps_to(&dir.join("loop")).len(), MAX_LINKS + 1);
    }

    #[test]
    fn instructions_and_certificates_are_not_changed_by_tools() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let variables = [("SSL_CERT_FILE", "ca.pem"), ("SSL_CERT_DIR", "certs:/etc/ssl")];
        let environment = Environment::for_tests(dir, &variables);
        let overrides = Overrides {
            system: Some("Be brief.".into()),
            system_file: Some(dir.join("style.md")),
            ..Overrides::default()
        };
        let settings = config::load(&environment, overrides).unwrap();
        let denied = own_places(&settings, &environment);
        for path in ["style.md", "ca.pem", "certs", "/etc/ssl"] {
            let is_it = |denial: &&PathDenial| denial.host == dir.join(path);
            let found = denied.iter().find(is_it).map(|denial| denial.uses);
            assert_eq!(found, Some(DeniedUse::Change), "{path}: {denied:?}");
        }
    }

    #[test]
    fn denials_of_all_tools_hold_lines_and_own_places() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config.toml");
        std::fs::write(
            &config,
            "deny = [\"private\"]\n[tools.files]\nscratch = \"scratch\"\n",
        )
        .unwrap();
        let environment = Environment::for_tests(dir.path(), &[("PATH", "bin")]);
        let overrides = Overrides {
            config: Some(config),
            ..Overrides::default()
        };
        let settings = config::load(&environment, overrides).unwrap();
        for dangerous in [false, true] {
            let denials = denials_of_all(&settings, dangerous, &environment).unwrap();
            let is_denied = |name: &str| {
                denials
                    .paths
                    .iter()
                    .any(|denial| denial.host == dir.path().join(name))
            };
            for name in ["private", "scratch", "config.toml"] {
                assert!(is_denied(name), "{name}: {denials:?}");
            }
            assert_eq!(is_denied("bin"), !dangerous);
            assert_eq!(denials.programs, dangerous);
        }
    }
}
