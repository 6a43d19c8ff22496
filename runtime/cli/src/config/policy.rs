//! Policy of a component: its grants resolved on this machine, the denials for every tool, and its limits.

use std::path::PathBuf;

use toolcell_core::denial::{DeniedUse, PathDenial};
use toolcell_core::grant_risk::{GrantRisk, dangerous};
use toolcell_core::policy::DirGrant;
use toolcell_core::{Grant, Policy};

use super::grants::{self, ResolvedGrant};
use super::own_directories::{own_places, path_in_home, programs_in};
use super::settings::{GrantLine, Settings, ToolSettings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::{Text, text};

impl ToolSettings {
    /// Builds the policy for the sandbox.
    ///
    /// # Errors
    /// Returns an error if a grant is invalid, is within a path denied to every tool, or is dangerous and not allowed.
    pub(crate) fn policy(&self, settings: &Settings, environment: &Environment) -> Result<Policy, Failure> {
        // Thousands of components can be configured: their files matter only to those that reach files.
        let reaches_files = self
            .grants
            .iter()
            .any(|line| matches!(line.grant, Grant::Dir { .. }));
        let own = match reaches_files {
            true => own_places(settings, environment),
            false => Vec::new(),
        };
        let placed: Vec<ResolvedGrant> = self
            .grants
            .iter()
            .chain(&settings.deny)
            .map(|line| {
                let placed = line.resolve(environment)?;
                if let ResolvedGrant::Dir(dir) = &placed {
                    line.check_denied(dir, &own, environment)?;
                    if !self.dangerous {
                        line.check_danger(dir, environment)?;
                    }
                }
                Ok(placed)
            })
            .collect::<Result<_, Failure>>()?;
        let mut grants = grants::combine(&placed, environment)?;
        for (line, placed) in self.grants.iter().zip(&placed) {
            if let ResolvedGrant::Dir(dir) = placed {
                line.check_denied(dir, &grants.denied.paths, environment)?;
            }
        }
        grants.denied.paths.extend(own);
        let programs = programs_in(&grants.dirs, self.dangerous, environment);
        grants.denied.paths.extend(programs);
        grants.denied.programs = self.dangerous;
        grants.secrets.clone_from(&self.bindings);
        Ok(Policy {
            grants,
            limits: self.limits.limits.clone(),
        })
    }
}

impl GrantLine {
    /// Refuses a directory below a denied one: every access to it would be refused.
    fn check_denied(
        &self,
        dir: &DirGrant,
        denied: &[PathDenial],
        environment: &Environment,
    ) -> Result<(), Failure> {
        let holds = |denial: &&PathDenial| {
            let real = denial.host.canonicalize();
            let host = real.as_ref().unwrap_or(&denial.host);
            denial.uses == DeniedUse::All && dir.host.starts_with(host)
        };
        let Some(denial) = denied.iter().find(holds) else {
            return Ok(());
        };
        Err(Failure::new(Exit::Denied, text!("cannot grant `{}`", self.grant))
            .why(text!(
                "`{}` is denied by {}, whatever is granted",
                environment.shown(&dir.host),
                Text::sentence(&denial.by, [])
            ))
            .why(self.origin.point_at())
            .hint("grant another directory"))
    }

    fn check_danger(&self, dir: &DirGrant, environment: &Environment) -> Result<(), Failure> {
        let is_in_path = || {
            let is_it = |path: PathBuf| path.canonicalize().is_ok_and(|real| real == dir.host);
            dir.access.can_change() && environment.program_dirs().any(is_it)
        };
        let home = environment.home.as_deref();
        let danger = dangerous(dir, home).or_else(|| {
            let host = path_in_home(&dir.host, environment)?;
            dangerous(&DirGrant { host, ..dir.clone() }, home)
        });
        let Some(danger) = danger.or_else(|| is_in_path().then_some(GrantRisk::Programs)) else {
            return Ok(());
        };
        Err(
            Failure::new(Exit::Denied, text!("the grant `{}` is dangerous", self.grant))
                .why(text!("`{}` {}", environment.shown(&dir.host), danger))
                .why(self.origin.point_at())
                .hint("grant a narrower directory, or add --dangerous to allow it"),
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{self, Overrides};

    use super::*;

    #[test]
    fn directory_below_a_denied_one_is_not_granted() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["state/x", "private/x", "docs"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let config = dir.path().join("config.toml");
        std::fs::write(&config, "deny = [\"private\"]\n").unwrap();
        let mut environment = Environment::for_tests(dir.path(), &[]);
        environment.state_dir = Some(dir.path().join("state"));
        for (grant, is_granted) in [
            ("read=state", false),
            ("read=state/x", false),
            ("read=private", false),
            ("read=private/x", false),
            ("read=docs", true),
            ("write=.", true),
        ] {
            for dangerous in [false, true] {
                let overrides = Overrides {
                    config: Some(config.clone()),
                    grants: vec![grant.parse().unwrap()],
                    dangerous,
                    ..Overrides::default()
                };
                let settings = config::load(&environment, overrides).unwrap();
                let policy = settings.tools["files"].policy(&settings, &environment);
                assert_eq!(policy.is_ok(), is_granted, "{grant} {dangerous}");
                let exit = policy.err().map(|failure| failure.exit);
                assert_eq!(exit, (!is_granted).then_some(Exit::Denied), "{grant}");
            }
        }
    }
}
