//! Groups of flags that several commands share.

use std::path::PathBuf;

use clap::Args;

use crate::config::Overrides;
use crate::config::grants::FlagGrant;
use crate::config::limits::FlagLimit;

/// What tools may reach and use.
#[derive(Debug, Default, Args)]
pub(crate) struct PolicyFlags {
    /// Allow something (may be repeated), such as `read=.`, `write=out`, `env=LANG`, `http=example.com`.
    ///
    /// Nothing is granted otherwise, except what your own configuration grants. A grant holds for every component that
    /// takes part and is not of a project, or for the one named in front: `files:read=.`, `project:linter:read=.`.
    #[arg(long = "grant", value_name = "[COMPONENT:]GRANT")]
    pub(crate) grants: Vec<FlagGrant>,

    /// Set a limit of one call (may be repeated), such as `wall=60s`, `memory=512MiB`, `fuel=5G`.
    #[arg(long = "limit", value_name = "[COMPONENT:]NAME=VALUE")]
    pub(crate) limits: Vec<FlagLimit>,

    /// Allow grants that give away more than one may think: `/`, the home directory, keys, system directories, sockets.
    #[arg(long)]
    pub(crate) dangerous: bool,

    /// Let changes of files go to this directory, to look at them first (`toolcell scratch`).
    #[arg(long, value_name = "DIR")]
    pub(crate) scratch: Option<PathBuf>,
}

impl PolicyFlags {
    /// Puts the flags into the last layer of the configuration.
    pub(crate) fn apply(&self, overrides: &mut Overrides) {
        overrides.grants.clone_from(&self.grants);
        overrides.limits.clone_from(&self.limits);
        overrides.dangerous = self.dangerous;
        overrides.scratch.clone_from(&self.scratch);
    }
}
