//! `toolcell completions`: shell completions.

use std::collections::BTreeSet;
use std::io::Write as _;

use clap::builder::PossibleValuesParser;
use clap::{Arg, Args, Command, ValueEnum};
use clap_complete::Shell;
use toolcell_agent::preset;

use crate::commands::help;
use crate::components::loader::ComponentLoader;
use crate::components::{buckets, builtin};
use crate::config::provider::{ProviderName, ToolCalls};
use crate::config::{self, Overrides, budget, limits};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::session::store;
use crate::ui::render::Console;

/// What stands in a generated script for the names with which values begin, before `=`, and the names.
const BEGINNINGS: [(&str, &[&str]); 3] = [
    (
        "beginnings-of-grants",
        &[
            "read",
            "write",
            "modify",
            "create",
            "delete",
            "env",
            "http",
            "http-private",
            "keyvalue",
            "keyvalue-read",
            "deny",
            "deny-http",
            "deny-keyvalue",
        ],
    ),
    ("beginnings-of-limits", &limits::NAMES),
    ("beginnings-of-budgets", &budget::NAMES),
];

/// Stands in a generated script for the topics of `help`, and the commands.
const TOPICS: &str = "topics-of-help";

/// Readline splits words at the characters of `COMP_WORDBREAKS`, which are `=` and `:` among others, and replaces only the last
/// piece. The generated function gets whole words, with `--flag=value` as two, and of its replies the pieces remain that
/// readline lacks. A value that begins with a name and `=` follows without a blank.
const BASH_WORDS: &str = r#"
_toolcell_completed() {
    local line=$COMP_LINE raw=${COMP_WORDS[COMP_CWORD]} last=-1 i word before kept cur prev lead=
    local -a words=() replies=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ -n $word ]]; then
            before=${line%%"$word"*}
            line=${line#*"$word"}
        else
            before=${line%%[![:space:]]*}
        fi
        if ((last > 0)) && [[ -z $before && ($word == [=:]* || ${words[last]} == *[=:]) ]]; then
            words[last]+=$word
        else
            words[++last]=$word
        fi
    done
    kept=${words[last]}
    [[ -z $2 && $raw == [=:]* ]] || kept=${kept%"$raw"}
    cur=$kept$2
    prev=${words[last - 1]}
    if [[ $cur == --*=* ]]; then
        prev=${cur%%=*}
        words[last++]=$prev
        kept=${kept#*=}
        cur=${cur#*=}
    fi
    word=${cur%%=*}
    if [[ $prev == --@(grant|limit) && $word == *:* ]]; then
        kept=${kept#"${word%:*}:"}
        cur=${cur#"${word%:*}:"}
    fi
    words[last]=$cur
    [[ $2 == *"$cur" ]] && lead=${2%"$cur"}
    local -a COMP_WORDS=("${words[@]}")
    local COMP_CWORD=$last
    _toolcell "$1" "$cur" "$prev"
    for word in "${COMPREPLY[@]}"; do
        [[ $word == *= ]] && compopt -o nospace 2>/dev/null
        word=${word#"$kept"}
        [[ -n $word ]] && replies+=("$lead$word")
    done
    COMPREPLY=("${replies[@]}")
    return 0
}
complete -F _toolcell_completed -o bashdefault -o default toolcell
"#;

/// In zsh, `_arguments` calls these with its options, and at the end the kind of names, or what values can begin with. What else
/// is possible, such as a file, is completed if there are no names, and after a beginning.
const ZSH_VALUES: &str = r#"
_toolcell_names() {
    local -a names
    names=("${(@f)$(toolcell completions --names "${@[-1]}" 2>/dev/null)}")
    compadd "${@[1,-2]}" -a names || _default
}

_toolcell_beginnings() {
    local -a names=("${(@s:,:)@[-1]}")
    if compset -P '*='; then
        _default
    else
        compset -P '*:'
        compadd "${@[1,-2]}" -S '' -a names
    fi
}
"#;

/// The generator for fish completes no positional arguments.
const FISH_NAMES: &str = r#"complete -c toolcell -n "__fish_toolcell_using_subcommand call" -a "(toolcell completions --names tools)"
complete -c toolcell -n "__fish_toolcell_using_subcommand tool; and __fish_seen_subcommand_from inspect test calibrate" -a "(toolcell completions --names tools)"
complete -c toolcell -n "__fish_toolcell_using_subcommand tool; and __fish_seen_subcommand_from remove update trust" -f -a "(toolcell completions --names components)"
complete -c toolcell -n "__fish_toolcell_using_subcommand bucket; and __fish_seen_subcommand_from show export clear" -f -a "(toolcell completions --names buckets)"
complete -c toolcell -n "__fish_toolcell_using_subcommand session; and __fish_seen_subcommand_from show resume rename fork export delete" -f -a "(toolcell completions --names sessions)"
"#;

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mkdir -p ~/.local/share/bash-completion/completions ~/.zfunc ~/.config/fish/completions
  toolcell completions bash > ~/.local/share/bash-completion/completions/toolcell
  toolcell completions zsh > ~/.zfunc/_toolcell
  toolcell completions fish > ~/.config/fish/completions/toolcell.fish")]
pub(crate) struct Completions {
    /// Shell to complete for.
    #[arg(required_unless_present = "names")]
    shell: Option<Shell>,

    /// Print names, one on a line, that are not known when a script is written.
    #[arg(long, hide = true, conflicts_with = "shell")]
    names: Option<Names>,
}

/// Names that scripts ask for when they complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Names {
    Components,
    Tools,
    Profiles,
    Sessions,
    Buckets,
}

impl Completions {
    /// Writes the completion script for `cli`, or names, to standard output.
    pub(crate) async fn run(
        self,
        cli: Command,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let text = match (self.shell, self.names) {
            (Some(shell), _) => script(shell, cli),
            // While a user types, nothing is told that is wrong.
            (None, Some(kind)) => names(kind, overrides, environment, console)
                .await
                .unwrap_or_default()
                .into_iter()
                .filter(|name| is_plain(name))
                .map(|name| name + "\n")
                .collect(),
            (None, None) => String::new(),
        };
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(Exit::Ok)
    }
}

/// True if no shell reads the name as anything else.
fn is_plain(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(is_plain)
}

async fn names(
    kind: Names,
    overrides: Overrides,
    environment: &Environment,
    console: &Console,
) -> Result<BTreeSet<String>, Failure> {
    if kind == Names::Sessions {
        // Opening would make the file.
        if !store::path_of(environment).is_some_and(|path| path.exists()) {
            return Ok(BTreeSet::new());
        }
        let sessions = store::open(environment)?.list().await;
        let sessions = sessions.map_err(crate::session::turn_runner::store_failure)?;
        let names = sessions
            .into_iter()
            .flat_map(|session| [Some(session.id), session.name])
            .flatten();
        return Ok(names.chain(["last".to_owned()]).collect());
    }
    if kind == Names::Buckets {
        let Some(store) = buckets::existing(environment)? else {
            return Ok(BTreeSet::new());
        };
        let all = store.buckets().await;
        let all = all.map_err(|error| buckets::unusable(environment, error))?;
        return Ok(all.into_iter().map(|bucket| bucket.name).collect());
    }
    let settings = config::load(environment, overrides)?;
    Ok(match kind {
        Names::Profiles => settings.profiles.into_keys().collect(),
        Names::Components => settings.tools.into_keys().collect(),
        _ => {
            let loader = ComponentLoader::open(environment, &settings, console)?;
            let components = settings.tools.keys().cloned();
            components.chain(loader.known_tool_names().await).collect()
        }
    })
}

/// Returns the script for a shell.
fn script(shell: Shell, cli: Command) -> String {
    let is_dynamic = matches!(shell, Shell::Bash | Shell::Zsh | Shell::Fish);
    let commands = cli.get_subcommands().map(|command| command.get_name().to_owned());
    let topics: Vec<String> = help::topics().map(str::to_owned).chain(commands).collect();
    let mut cli = with_values(cli, is_dynamic);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli, "toolcell", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    for kind in Names::value_variants() {
        let marker = marker(*kind);
        let name = marker.trim_start_matches("names-of-");
        script = match shell {
            Shell::Bash => script.replace(
                marker,
                &format!(r#"$("$1" completions --names {name} 2>/dev/null)"#),
            ),
            Shell::Zsh => script.replace(&format!("({marker})"), &format!("_toolcell_names {name}")),
            Shell::Fish => script.replace(
                &format!(r#"-f -a "{marker}\t''""#),
                &format!(r#"-a "(toolcell completions --names {name})""#),
            ),
            _ => break,
        };
    }
    for (marker, names) in BEGINNINGS {
        let names: Vec<String> = names.iter().map(|name| format!("{name}=")).collect();
        script = match shell {
            Shell::Zsh => script.replace(
                &format!("({marker})"),
                &format!("_toolcell_beginnings {}", names.join(",")),
            ),
            Shell::Fish => script.replace(
                &format!(r#"-f -a "{marker}\t''""#),
                &format!(r#"-a "{}""#, names.join(" ")),
            ),
            _ => script.replace(marker, &names.join(" ")),
        };
    }
    script = script.replace(TOPICS, &topics.join(" "));
    match shell {
        Shell::Bash => script + BASH_WORDS,
        // The script defines functions and ends with the completion itself.
        Shell::Zsh => with_escaped_value_names(script, &cli).replacen(
            "\nautoload",
            &format!("\n{}\nautoload", ZSH_VALUES.trim()),
            1,
        ),
        Shell::Fish => script + FISH_NAMES,
        _ => script,
    }
}

/// Escapes colons in names of values, which the generator for zsh does not: a colon ends the name.
fn with_escaped_value_names(script: String, cli: &Command) -> String {
    let names = cli
        .get_arguments()
        .flat_map(|arg| arg.get_value_names().into_iter().flatten());
    let script = names
        .filter(|name| name.contains(':'))
        .fold(script, |script, name| {
            script.replace(&format!("]:{name}:"), &format!("]:{}:", name.replace(':', r"\:")))
        });
    cli.get_subcommands().fold(script, with_escaped_value_names)
}

/// Stands in a generated script for names that are asked for when it runs.
const fn marker(kind: Names) -> &'static str {
    match kind {
        Names::Components => "names-of-components",
        Names::Tools => "names-of-tools",
        Names::Profiles => "names-of-profiles",
        Names::Sessions => "names-of-sessions",
        Names::Buckets => "names-of-buckets",
    }
}

/// Returns a command whose flags have the values that can be completed: members of closed sets, names of tools, profiles and
/// sessions, and beginnings of grants, limits and budgets.
fn with_values(command: Command, is_dynamic: bool) -> Command {
    let name = command.get_name().to_owned();
    let values = move |arg: Arg| -> Arg {
        let names = match (arg.get_id().as_str(), arg.get_long()) {
            // Of `call`, `tool inspect`, `tool test` and `tool calibrate`.
            ("tool", None) => Some(Names::Tools),
            ("component", None) if name == "trust" => Some(Names::Components),
            ("name", None) if matches!(name.as_str(), "remove" | "update") => Some(Names::Components),
            ("bucket", None) => Some(Names::Buckets),
            ("session", _) => Some(Names::Sessions),
            (_, Some("tool")) => Some(Names::Components),
            (_, Some("profile")) => Some(Names::Profiles),
            _ => None,
        };
        let values: Vec<&str> = match (names, arg.get_id().as_str(), arg.get_long()) {
            (Some(kind), _, _) if is_dynamic => vec![marker(kind)],
            (Some(Names::Tools), _, _) => builtin::TOOLS
                .iter()
                .flat_map(|(_, tools)| *tools)
                .copied()
                .collect(),
            (Some(Names::Components), _, _) => {
                builtin::TOOLS.iter().map(|(component, _)| *component).collect()
            }
            (None, _, Some("provider")) => ProviderName::ALL.map(ProviderName::as_str).to_vec(),
            (None, _, Some("tool-calls")) => ToolCalls::ALL.map(ToolCalls::as_str).to_vec(),
            (None, _, Some("preset")) => preset::NAMES.to_vec(),
            (None, "grants", _) => vec![BEGINNINGS[0].0],
            (None, "limits", _) => vec![BEGINNINGS[1].0],
            (None, "budget", _) => vec![BEGINNINGS[2].0],
            (None, "words", None) if name == "help" => vec![TOPICS],
            _ => return arg,
        };
        arg.value_parser(PossibleValuesParser::new(values))
    };
    command
        .mut_args(values)
        .mut_subcommands(|subcommand| with_values(subcommand, is_dynamic))
}
