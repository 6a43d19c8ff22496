//! MCP clients that start `toolcell mcp serve`: where each keeps its servers, and in which form.

mod document;
mod json;
mod toml;
mod yaml;

use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::environment::Environment;
use crate::ui::terminal::Own;

pub(crate) use document::{Entry, Format, edit, remove};

/// A client with a file of servers that it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    /// Claude Code, for all projects of the user.
    ClaudeCode,
    /// Claude Desktop.
    ClaudeDesktop,
    /// Cursor, for all projects of the user.
    Cursor,
    /// Visual Studio Code, for all workspaces of the user.
    Vscode,
    /// Zed.
    Zed,
    /// Codex CLI.
    Codex,
    /// Goose.
    Goose,
    /// Gemini CLI.
    Gemini,
}

/// A command line.
pub(crate) struct Launch {
    /// Path of the program.
    pub(crate) program: String,
    /// Its arguments.
    pub(crate) arguments: Vec<String>,
}

impl Client {
    /// Name for the user.
    pub(crate) fn title(self) -> Own {
        Own(match self {
            Self::ClaudeCode => "Claude Code",
            Self::ClaudeDesktop => "Claude Desktop",
            Self::Cursor => "Cursor",
            Self::Vscode => "Visual Studio Code",
            Self::Zed => "Zed",
            Self::Codex => "Codex",
            Self::Goose => "Goose",
            Self::Gemini => "Gemini CLI",
        })
    }

    /// File of the user's servers.
    pub(crate) fn file(self, environment: &Environment) -> PathBuf {
        let home = |path: &str| environment.path(&format!("~/{path}"), &environment.cwd);
        let configured = |variable: &str, default: &str, path: &str| match environment.var(variable) {
            Some(directory) => environment.path(directory, &environment.cwd).join(path),
            None => home(default).join(path),
        };
        let of_system = |path: &str| match cfg!(target_os = "macos") {
            true => home("Library/Application Support").join(path),
            false => configured("XDG_CONFIG_HOME", ".config", path),
        };
        match self {
            Self::ClaudeCode => configured("CLAUDE_CONFIG_DIR", "", ".claude.json"),
            Self::ClaudeDesktop => of_system("Claude/claude_desktop_config.json"),
            Self::Cursor => home(".cursor/mcp.json"),
            Self::Vscode => of_system("Code/User/mcp.json"),
            Self::Zed => configured("XDG_CONFIG_HOME", ".config", "zed/settings.json"),
            Self::Codex => configured("CODEX_HOME", ".codex", "config.toml"),
            Self::Goose => configured("XDG_CONFIG_HOME", ".config", "goose/config.yaml"),
            Self::Gemini => home(".gemini/settings.json"),
        }
    }

    /// Form of the file.
    pub(crate) fn format(self) -> Format {
        match self {
            Self::Codex => Format::Toml,
            Self::Goose => Format::Yaml,
            _ => Format::Json,
        }
    }

    /// Key of the servers.
    pub(crate) fn section(self) -> &'static str {
        match self {
            Self::Vscode => "servers",
            Self::Zed => "context_servers",
            Self::Codex => "mcp_servers",
            Self::Goose => "extensions",
            _ => "mcpServers",
        }
    }

    /// Entry of a server that is started by this command line.
    pub(crate) fn entry(self, name: &str, launch: &Launch) -> Entry {
        let Launch { program, arguments } = launch;
        let (own, defaults) = match self {
            Self::ClaudeCode | Self::Vscode => (
                json!({"type": "stdio", "command": program, "args": arguments}),
                json!({}),
            ),
            Self::Zed => (
                json!({"source": "custom", "command": program, "args": arguments}),
                json!({"env": {}}),
            ),
            Self::Goose => (
                json!({"name": name, "type": "stdio", "enabled": true, "cmd": program, "args": arguments}),
                json!({"envs": {}, "timeout": 300}),
            ),
            _ => (json!({"command": program, "args": arguments}), json!({})),
        };
        Entry { own, defaults }
    }

    /// Step of the user after which the client uses the change.
    pub(crate) fn advice(self) -> Own {
        Own(match self {
            Self::ClaudeCode => {
                "Claude Code writes this file itself: start it again, and install again if the entry is gone"
            }
            Self::Vscode => "start the server in VS Code: command `MCP: List Servers`",
            Self::Zed | Self::Cursor => "the editor starts it by itself, or after it was started again",
            _ => "start the client again",
        })
    }
}

/// Text of an entry that a user can add by hand.
pub(crate) fn by_hand(client: Client, name: &str, entry: &Value) -> String {
    let whole = json!({ client.section(): { name: entry } });
    match client.format() {
        Format::Json => format!("{whole:#}"),
        Format::Toml => ::toml::to_string(&whole).unwrap_or_else(|_| whole.to_string()),
        Format::Yaml => yaml::section(client.section(), name, entry),
    }
}
