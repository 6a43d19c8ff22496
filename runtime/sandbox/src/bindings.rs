//! Bindings of the `toolcell:tool` WIT package (`wit/` of the project): generated types and supported versions.

use semver::Version;

#[allow(clippy::all, reason = "generated")]
mod bindings {
    wasmtime::component::bindgen!({
        path: "wit",
        world: "provider",
        exports: { default: async },
        require_store_data_send: true,
    });
}

#[allow(clippy::all, reason = "generated")]
mod hook_bindings {
    wasmtime::component::bindgen!({
        path: "wit",
        world: "summary-hook-provider",
        exports: { default: async },
        require_store_data_send: true,
        // Both worlds share one `Content` type and one linker.
        with: {
            "toolcell:tool/types": super::bindings::toolcell::tool::types,
            "toolcell:tool/log": super::bindings::toolcell::tool::log,
            "toolcell:tool/progress": super::bindings::toolcell::tool::progress,
        },
    });
}

#[allow(clippy::all, reason = "generated")]
mod resource_bindings {
    wasmtime::component::bindgen!({
        path: "wit",
        world: "resource-provider",
        exports: { default: async },
        require_store_data_send: true,
        with: {
            "toolcell:tool/types": super::bindings::toolcell::tool::types,
            "toolcell:tool/log": super::bindings::toolcell::tool::log,
            "toolcell:tool/progress": super::bindings::toolcell::tool::progress,
        },
    });
}

#[allow(clippy::all, reason = "generated")]
mod prompt_bindings {
    wasmtime::component::bindgen!({
        path: "wit",
        world: "prompt-provider",
        exports: { default: async },
        require_store_data_send: true,
        with: {
            "toolcell:tool/types": super::bindings::toolcell::tool::types,
            "toolcell:tool/log": super::bindings::toolcell::tool::log,
            "toolcell:tool/progress": super::bindings::toolcell::tool::progress,
        },
    });
}

pub(crate) use bindings::exports::toolcell::tool::tools::{
    Call, Definition, Output, ToolError as GuestError,
};
pub(crate) use bindings::toolcell::tool::types::{Blob, Content, Hints, Link};
pub(crate) use bindings::toolcell::tool::{log, progress};
pub(crate) use bindings::{Provider, ProviderPre};
/// Types of the interfaces of hooks. Each interface is looked up on its own, because not every hook exports both.
pub(crate) use hook_bindings::exports::toolcell::tool::{hooks, summary_hooks};
/// Types of the interface of prompts.
pub(crate) use prompt_bindings::exports::toolcell::tool::prompts;
pub(crate) use prompt_bindings::{PromptProvider, PromptProviderPre};
/// Types of the interface of resources.
pub(crate) use resource_bindings::exports::toolcell::tool::resources;
pub(crate) use resource_bindings::{ResourceProvider, ResourceProviderPre};

/// Role of a component, determined by the interface that it exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Provider of tools.
    Tools,
    /// Hook of a session.
    Hook,
    /// Points of a hook around summaries, in addition to the others.
    SummaryHook,
    /// Provider of resources, in addition to tools.
    Resources,
    /// Provider of prompts, in addition to tools.
    Prompts,
}

impl Role {
    /// Returns the name of the interface, without its version.
    pub(crate) fn interface(self) -> &'static str {
        match self {
            Self::Tools => "toolcell:tool/tools",
            Self::Hook => "toolcell:tool/hooks",
            Self::SummaryHook => "toolcell:tool/summary-hooks",
            Self::Resources => "toolcell:tool/resources",
            Self::Prompts => "toolcell:tool/prompts",
        }
    }

    /// Returns `true` if one of these exports is the interface in a supported version.
    pub(crate) fn is_among(self, exports: &[String]) -> bool {
        exports.iter().any(|export| match split_version(export) {
            (interface, Some(version)) => interface == self.interface() && is_compatible(&version, &VERSION),
            _ => false,
        })
    }
}

/// Version of the package that this host implements; every `0.1.x` links with it.
pub(crate) const VERSION: Version = Version::new(0, 1, 0);

/// Splits `namespace:package/interface@1.2.3` into the name before the `@` and the version after it.
pub(crate) fn split_version(name: &str) -> (&str, Option<Version>) {
    match name.split_once('@') {
        Some((interface, version)) => (interface, Version::parse(version).ok()),
        None => (name, None),
    }
}

/// Returns `true` if a guest of `version` links with a host of `ours`: the same leading non-zero number (semver
/// compatibility, as applied by component-model linking). A pre-release links only with itself.
pub(crate) fn is_compatible(version: &Version, ours: &Version) -> bool {
    if !version.pre.is_empty() || !ours.pre.is_empty() {
        return version == ours;
    }
    match (ours.major, ours.minor) {
        (0, 0) => version == ours,
        (0, minor) => version.major == 0 && version.minor == minor,
        (major, _) => version.major == major,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_0_1_x_is_supported() {
        for (version, good) in [
            ("0.1.0", true),
            ("0.1.9", true),
            ("0.2.0", false),
            ("1.1.0", false),
            ("0.1.0-rc.1", false),
        ] {
            assert_eq!(
                is_compatible(&version.parse().unwrap(), &VERSION),
                good,
                "{version}"
            );
        }
    }
}
