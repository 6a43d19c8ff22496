//! Groups of flags that several commands share.

use std::path::PathBuf;

use clap::Args;

use crate::config::Overrides;
use crate::config::grants::FlagGrant;
use crate::config::limits::FlagLimit;

/// Grants and limits of tools.
#[derive(Debug, Default, Args)]
pub(crate) struct PolicyFlags {
    /// Grant access (repeatable), such as `read=.`, `write=out`, `env=LANG`, `http=example.com`.
    ///
    /// Without a grant, here or in your own configuration, a tool has no access. A grant applies to every component in
    /// use except those of a project, or to the one named in front: `files:read=.`, `project:linter:read=.`.
    #[arg(long = "grant", value_name = "[COMPONENT:]GRANT")]
    pub(crate) grants: Vec<FlagGrant>,

    /// Set a limit for one call (repeatable), such as `wall=60s`, `memory=512MiB`, `fuel=5G`.
    #[arg(long = "limit", value_name = "[COMPONENT:]NAME=VALUE")]
    pub(crate) limits: Vec<FlagLimit>,

    /// Allow overly broad grants (`/`, the home directory, keys, system directories, sockets).
    #[arg(long)]
    pub(crate) dangerous: bool,

    /// Redirect file changes to this directory for review (see `toolcell scratch`).
    #[arg(long, value_name = "DIR")]
    pub(crate) scratch: Option<PathBuf>,
}

impl PolicyFlags {
    /// Copies the flags into the last configuration layer.
    pub(crate) fn apply(&self, overrides: &mut Overrides) {
        overrides.grants.clone_from(&self.grants);
        overrides.limits.clone_from(&self.limits);
        overrides.dangerous = self.dangerous;
        overrides.scratch.clone_from(&self.scratch);
    }
}
