//! Paths that are denied to every tool: files that Toolcell itself reads, trusts and stores.
//!
//! With write access, a tool could change its own grants, approvals, or compiled code; with read access, it could read
//! other sessions. These paths are denials in every policy, so that a grant of a parent directory does not include
//! them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use toolcell_core::denial::{Denials, DeniedUse, PathDenial};
use toolcell_core::policy::DirGrant;

use crate::config::grants::{self, ResolvedGrant};
use crate::config::source::Layer;
use crate::config::{ComponentSource, Settings};
use crate::environment::Environment;
use crate::error::Failure;

/// Origin of the denial of a component.
const COMPONENT: &str = "the component";

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
        if let Some(file) = &secret.file {
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
    let agents = settings.agents.values().map(|agent| &agent.provider);
    for provider in std::iter::once(&settings.provider).chain(agents) {
        // Any word of the command can be a program or a script.
        let words = provider.token_command.iter().flat_map(|command| &command.value.0);
        for path in words.map(|word| environment.path(word, &environment.cwd)) {
            if path.is_file() {
                add(&path, DeniedUse::Change, "the command for tokens");
            }
        }
    }
    for scratch in scratch_dirs(settings, environment) {
        add(&scratch, DeniedUse::All, "the scratch directory");
    }
    places
}

/// Returns the denials of changes to programs that are started outside of every cell: this executable, and unless
/// `dangerous`, what is in a directory of `PATH`.
fn programs(dangerous: bool, environment: &Environment) -> Vec<PathDenial> {
    let own = environment.executable.clone().into_iter();
    let own = own.map(|path| (path, "Toolcell's own executable"));
    let others = environment.program_dirs().filter(|_| !dangerous);
    let others = others.map(|path| (path, "the directory of programs (PATH)"));
    let mut known = BTreeSet::new();
    own.chain(others)
        .filter(|(path, _)| *path != environment.cwd && known.insert(path.clone()))
        .map(|(path, what)| denial(&path, DeniedUse::Change, what, environment))
        .collect()
}

/// Returns those denials of [`programs`] that concern granted directories, because each takes time in every call.
pub(crate) fn programs_in(dirs: &[DirGrant], dangerous: bool, environment: &Environment) -> Vec<PathDenial> {
    let is_below = |path: &Path| {
        let mut dirs = dirs.iter().filter(|dir| dir.access.can_change());
        dirs.any(|dir| path.starts_with(&dir.host) && path != dir.host)
    };
    let is_granted = |denial: &PathDenial| {
        is_below(&denial.host) || denial.host.canonicalize().is_ok_and(|real| is_below(&real))
    };
    let mut programs = programs(dangerous, environment);
    programs.retain(is_granted);
    programs
}

/// Returns the denial of changes to a component.
pub(crate) fn component(path: &Path, environment: &Environment) -> PathDenial {
    denial(path, DeniedUse::Change, COMPONENT, environment)
}

/// Returns the denial of a path as it is written: with the links that lead to it, which are denied as well.
fn denial(path: &Path, uses: DeniedUse, what: &str, environment: &Environment) -> PathDenial {
    PathDenial {
        host: path.to_owned(),
        uses,
        by: format!("{what} `{}`", environment.shown(path)),
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
        let path = format!("bin:{0}/work/link:{0}/other/bin::{0}/work:{0}", dir.display());
        let mut environment = Environment::for_tests(&dir.join("work"), &[("PATH", &path)]);
        environment.executable = Some(dir.join("work/target/release/toolcell"));
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
        // A directory of `PATH` itself, unless it is the working directory, which an empty entry means.
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
            [provider]\ntoken_command = [\"sh\", \"./tok.sh\"]\n";
        std::fs::write(at("tok.sh"), "").unwrap();
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
    fn working_directory_in_path_is_not_denied_for_itself() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(dir.join("work/bin")).unwrap();
        let environment = Environment::for_tests(&dir.join("work"), &[("PATH", "bin::bin")]);
        let denied = programs(false, &environment);
        let hosts: Vec<&Path> = denied.iter().map(|denial| denial.host.as_path()).collect();
        assert_eq!(hosts, [dir.join("work/bin")]);
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
