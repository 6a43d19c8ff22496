//! Data-flow labels of a tool, derived from its grants and the imports of its component: private data, untrusted
//! content, network egress. A prompt injection needs all three to exfiltrate data (Simon Willison, "the lethal
//! trifecta"); each alone is harmless.

use toolcell_core::Grant;
use toolcell_core::event::DataFlow;
use toolcell_sandbox::Ability;

use crate::components::loader::{Loaded, LoadedHook};
use crate::config::ToolSettings;

/// A grant and the labels that follow from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reason {
    /// The grant.
    pub(crate) grant: String,
    /// The labels.
    pub(crate) flow: DataFlow,
}

/// Returns the labels of a call to each tool of these components, combined with the labels of the hooks.
pub(crate) fn of_tools<'a>(
    loaded: impl IntoIterator<Item = &'a Loaded>,
    hooks: DataFlow,
) -> Vec<(String, DataFlow)> {
    loaded
        .into_iter()
        .flat_map(|loaded| {
            let own = total(&reasons(&loaded.settings, &loaded.component.abilities()));
            let flow = own.union(hooks);
            loaded
                .tools
                .iter()
                .map(move |tool| (tool.spec().name.to_string(), flow))
        })
        .collect()
}

/// Returns the labels of all hooks. Every call passes through the hooks, so each call has their labels too.
pub(crate) fn of_hooks(hooks: &[LoadedHook]) -> DataFlow {
    hooks
        .iter()
        .map(|hook| total(&of_hook(hook)))
        .fold(DataFlow::default(), DataFlow::union)
}

/// Returns the labels of one hook, by grant.
pub(crate) fn of_hook(hook: &LoadedHook) -> Vec<Reason> {
    reasons(&hook.settings.component, &hook.component.identity().abilities())
}

/// Returns the grants of a component that its imports can use, with the labels of each.
pub(crate) fn reasons(settings: &ToolSettings, abilities: &[Ability]) -> Vec<Reason> {
    settings
        .grants
        .iter()
        .filter_map(|line| {
            let (ability, flow) = match &line.grant {
                Grant::Dir { access, .. } => (
                    Ability::Files,
                    DataFlow {
                        reads_private: access.read,
                        ..DataFlow::default()
                    },
                ),
                Grant::Env { value: None, .. } => (
                    Ability::Environment,
                    DataFlow {
                        reads_private: true,
                        ..DataFlow::default()
                    },
                ),
                // A value written into the grant is not a secret of the environment.
                Grant::Env { value: Some(_), .. } => (Ability::Environment, DataFlow::default()),
                // Even a GET sends data: in its path and query.
                Grant::Http(_) => (
                    Ability::Http,
                    DataFlow {
                        untrusted_content: true,
                        can_send_out: true,
                        ..DataFlow::default()
                    },
                ),
                // A stored value may come from any session, and from anything read in one.
                Grant::Bucket(_) => (
                    Ability::KeyValue,
                    DataFlow {
                        reads_private: true,
                        untrusted_content: true,
                        ..DataFlow::default()
                    },
                ),
                Grant::Deny { .. } | Grant::DenyHttp(_) | Grant::DenyBucket { .. } => return None,
            };
            let usable = abilities.contains(&ability) && flow != DataFlow::default();
            usable.then(|| Reason {
                grant: line.grant.to_string(),
                flow,
            })
        })
        .collect()
}

/// Returns the union of all labels.
pub(crate) fn total(reasons: &[Reason]) -> DataFlow {
    reasons
        .iter()
        .fold(DataFlow::default(), |flow, reason| flow.union(reason.flow))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::GrantLine;
    use crate::config::{ComponentSource, Origin, Sourced};

    fn flow(grants: &[&str], abilities: &[Ability]) -> DataFlow {
        let source = ComponentSource::File(Sourced::flag("TOOL", "/x.wasm".into()));
        let mut settings = ToolSettings::new("x", source);
        settings.grants = grants
            .iter()
            .map(|line| GrantLine {
                grant: line.parse().unwrap(),
                base: "/".into(),
                origin: Origin::Flag("--grant"),
            })
            .collect();
        total(&reasons(&settings, abilities))
    }

    #[test]
    fn grant_labels_tool_only_if_its_imports_use_it() {
        let all = [Ability::Files, Ability::Http, Ability::Environment];
        let private = DataFlow {
            reads_private: true,
            ..DataFlow::default()
        };
        assert_eq!(flow(&["read=."], &all), private);
        assert_eq!(flow(&["read=."], &[Ability::Http]), DataFlow::default());
        assert_eq!(flow(&["env=A=1"], &all), DataFlow::default());
        assert_eq!(flow(&["env=A"], &all), private);
        assert_eq!(flow(&["create=."], &all), DataFlow::default());
        assert!(flow(&["read=.", "http=*"], &all).is_complete());
        let kept = flow(&["keyvalue=memory"], &[Ability::KeyValue]);
        assert!(kept.reads_private && kept.untrusted_content && !kept.can_send_out);
        assert!(!flow(&["read=.", "http=*"], &[Ability::Files]).is_complete());
    }
}
