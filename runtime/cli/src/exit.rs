//! How the process ends. The numbers are part of the interface and stay as they are.

/// The table of exit codes, as `--help` shows it.
pub(crate) const TABLE: &str = "\
Exit codes:
    0   it worked (also when the reader of the output went away)
    1   the tool or the turn failed
    2   the command line or the arguments of a call are wrong
    3   the configuration cannot be used
    4   the policy does not allow it
    5   a limit ended it
    6   the model provider failed
    7   a component cannot be loaded
    8   the session was changed elsewhere in the meantime
   70   an internal error of Toolcell
  130   cancelled";

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It worked.
    Ok = 0,
    /// The tool or the turn failed.
    Failed = 1,
    /// The command line or the arguments of a call are wrong.
    Usage = 2,
    /// The configuration cannot be used.
    Config = 3,
    /// The policy does not allow it.
    Denied = 4,
    /// A limit ended it.
    Limit = 5,
    /// The model provider failed.
    Provider = 6,
    /// A component cannot be loaded.
    Component = 7,
    /// The session was continued or deleted elsewhere in the meantime.
    Conflict = 8,
    /// An internal error: `EX_SOFTWARE` of `sysexits.h`.
    Internal = 70,
    /// Cancelled by the person: 128 and the number of SIGINT, as shells report it.
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
    fn every_exit_code_stands_in_the_table() {
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
