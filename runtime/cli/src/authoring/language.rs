//! Languages in which tools can be written.

use clap::ValueEnum;
use serde::Deserialize;

/// Language of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Language {
    Rust,
    Js,
    Ts,
    Python,
    C,
    Cpp,
    Zig,
    Go,
    #[value(name = "assemblyscript", alias = "as")]
    AssemblyScript,
}

/// Part of WASI that a tool imports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Wasi {
    Files,
    Http,
    Environment,
    Clock,
    Random,
}

impl Wasi {
    pub(crate) const ALL: [Self; 5] = [
        Self::Files,
        Self::Http,
        Self::Environment,
        Self::Clock,
        Self::Random,
    ];

    /// Returns the name in `tool.toml`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Http => "http",
            Self::Environment => "environment",
            Self::Clock => "clock",
            Self::Random => "random",
        }
    }
}

impl Language {
    /// Returns the name of the language.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Rust => "Rust",
            Self::Js => "JavaScript",
            Self::Ts => "TypeScript",
            Self::Python => "Python",
            Self::C => "C",
            Self::Cpp => "C++",
            Self::Zig => "Zig",
            Self::Go => "Go",
            Self::AssemblyScript => "AssemblyScript",
        }
    }

    /// Returns the directory of its template.
    pub(crate) fn template(self) -> &'static str {
        match self {
            Self::Rust => "sdk/rust/template/",
            Self::Js => "sdk/javascript/template-js/",
            Self::Ts => "sdk/javascript/template-ts/",
            Self::Python => "sdk/python/template/",
            Self::C => "sdk/c/template-c/",
            Self::Cpp => "sdk/c/template-cpp/",
            Self::Zig => "sdk/zig/template/",
            Self::Go => "sdk/go/template/",
            Self::AssemblyScript => "sdk/assemblyscript/template/",
        }
    }

    /// Returns the directory of its library, which becomes `toolcell/` in a tool. Rust has crates.
    pub(crate) fn library(self) -> Option<&'static str> {
        match self {
            Self::Rust => None,
            Self::Js | Self::Ts => Some("sdk/javascript/toolcell/"),
            Self::Python => Some("sdk/python/toolcell/"),
            Self::C | Self::Cpp => Some("sdk/c/toolcell/"),
            Self::Zig => Some("sdk/zig/toolcell/"),
            Self::Go => Some("sdk/go/toolcell/"),
            Self::AssemblyScript => Some("sdk/assemblyscript/toolcell/"),
        }
    }

    /// Returns the commands that install what a new tool needs, in its directory.
    pub(crate) fn preparation(self) -> &'static [&'static str] {
        match self {
            Self::Rust => &["rustup target add wasm32-wasip2"],
            Self::Js | Self::Ts | Self::AssemblyScript => &["npm install"],
            Self::Python | Self::C | Self::Cpp | Self::Zig | Self::Go => &[
                "python3 -m venv .venv",
                ".venv/bin/pip install -r requirements-build.txt",
            ],
        }
    }
}
