//! Exit codes of the process. The numbers are part of the public interface and do not change.

/// Table of exit codes printed by `--help`.
pub(crate) const TABLE: &str = "\
Exit codes:
    0   success (a closed pipe counts as success)
    1   the tool or the turn failed
    2   the command line or the arguments of a call are wrong
    3   the configuration cannot be used
    4   the policy does not allow it
    5   a limit was reached
    6   the model provider failed
    7   a component could not be loaded
    8   the session was changed elsewhere in the meantime
   70   an internal error of Toolcell
   74   the output or a file could not be written, or a file of Toolcell is damaged
  130   cancelled";

/// Exit status of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success (a closed pipe counts as success).
    Ok = 0,
    /// A tool or a turn failed.
    Failed = 1,
    /// Invalid command line or invalid arguments of a call.
    Usage = 2,
    /// Invalid configuration.
    Config = 3,
    /// Denied by the policy.
    Denied = 4,
    /// A limit was reached.
    Limit = 5,
    /// The model provider failed.
    Provider = 6,
    /// A component could not be loaded.
    Component = 7,
    /// The session was continued or deleted by another process.
    Conflict = 8,
    /// Internal error: `EX_SOFTWARE` of `sysexits.h`.
    Internal = 70,
    /// Output or storage failed: `EX_IOERR` of `sysexits.h`.
    Io = 74,
    /// Cancelled by the user: 128 plus the number of SIGINT, as shells report it.
    Cancelled = 130,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_code_is_in_table() {
        for exit in [
            Exit::Ok,
            Exit::Failed,
            Exit::Usage,
            Exit::Config,
            Exit::Denied,
            Exit::Limit,
            Exit::Provider,
            Exit::Component,
            Exit::Conflict,
            Exit::Internal,
            Exit::Io,
            Exit::Cancelled,
        ] {
            let code = (exit as u8).to_string();
            let listed = TABLE
                .lines()
                .any(|line| line.split_whitespace().next() == Some(&code));
            assert!(listed, "{code}");
        }
    }
}
