//! `toolcell completions`: shell completions.

use std::io::Write as _;

use clap::builder::PossibleValuesParser;
use clap::{Arg, Args, Command};
use clap_complete::Shell;

use crate::components::builtin;
use crate::config::provider::ProviderName;
use crate::error::{Exit, Failure};

/// Beginnings of grants.
const GRANTS: [&str; 9] = [
    "read=",
    "write=",
    "env=",
    "http=",
    "keyvalue=",
    "keyvalue-read=",
    "deny=",
    "deny-http=",
    "deny-keyvalue=",
];

/// Completes identifiers and names of saved sessions in bash: they are not known when the script is written. Names with other
/// characters are left out, so that none is read as a part of the script.
const SESSIONS: &str = r#"
_toolcell_saved() {
    _toolcell "$@"
    case "${COMP_WORDS[1]} $3" in
        *' --session' | 'session show' | 'session resume' | 'session fork' | 'session rename' | 'session delete' | 'session export')
            [[ "$2" == -* ]] && return 0
            COMPREPLY=($(compgen -W "last $("$1" session list --json 2>/dev/null |
                grep -oE '"(id|name)":"[A-Za-z0-9._-]+"' | cut -d'"' -f4)" -- "$2"))
            ;;
        *' --grant') compopt -o nospace 2>/dev/null ;;
    esac
}
complete -F _toolcell_saved -o bashdefault -o default toolcell
"#;

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell completions bash > ~/.local/share/bash-completion/completions/toolcell
  toolcell completions zsh > ~/.zfunc/_toolcell
  toolcell completions fish > ~/.config/fish/completions/toolcell.fish")]
pub(crate) struct Completions {
    /// Shell to complete for.
    shell: Shell,
}

impl Completions {
    /// Writes the completion script for `cli` to standard output.
    pub(crate) fn run(self, cli: Command) -> Result<Exit, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut with_values(cli), "toolcell", &mut script);
        if self.shell == Shell::Bash {
            script.extend_from_slice(SESSIONS.as_bytes());
        }
        std::io::stdout().write_all(&script)?;
        Ok(Exit::Ok)
    }
}

/// Returns a command whose flags have the values that can be completed: names of providers and tools, and beginnings of
/// grants.
fn with_values(command: Command) -> Command {
    let is_call = command.get_name() == "call";
    let values = move |arg: Arg| -> Arg {
        let values: Vec<&str> = match arg.get_id().as_str() {
            "tool" if is_call => builtin::TOOLS
                .iter()
                .flat_map(|(_, tools)| *tools)
                .copied()
                .collect(),
            _ => match arg.get_long() {
                Some("provider") => ProviderName::ALL.map(ProviderName::as_str).to_vec(),
                Some("tool") => builtin::TOOLS.iter().map(|(component, _)| *component).collect(),
                Some("grant") => GRANTS.to_vec(),
                _ => return arg,
            },
        };
        arg.value_parser(PossibleValuesParser::new(values))
    };
    command.mut_args(values).mut_subcommands(with_values)
}
