//! What the calls of a tool touch, by the nature of its grants and the imports of its component: private data, content
//! of strangers, a way out. All three together are what an attack on a model needs (Simon Willison, "the lethal
//! trifecta"); each alone is ordinary.

use toolcell_core::Grant;
use toolcell_core::event::Flow;
use toolcell_sandbox::Ability;

use crate::components::loader::{Loaded, LoadedHook};
use crate::config::ToolSettings;

/// One reason for a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reason {
    /// The grant that gives it.
    pub(crate) grant: String,
    /// The labels that it gives.
    pub(crate) flow: Flow,
}

/// What a call of each tool of these components touches, with hooks that touch `hooks`.
pub(crate) fn of_tools<'a>(loaded: impl IntoIterator<Item = &'a Loaded>, hooks: Flow) -> Vec<(String, Flow)> {
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

/// What hooks touch by grants of their own. They are asked about every call, so that with each call the session touches it
/// as well.
pub(crate) fn of_hooks(hooks: &[LoadedHook]) -> Flow {
    hooks
        .iter()
        .map(|hook| total(&of_hook(hook)))
        .fold(Flow::default(), Flow::union)
}

/// What one hook touches.
pub(crate) fn of_hook(hook: &LoadedHook) -> Vec<Reason> {
    reasons(&hook.settings.component, &hook.component.identity().abilities())
}

/// The grants of a component that its imports let it use, with what each one touches.
pub(crate) fn reasons(settings: &ToolSettings, abilities: &[Ability]) -> Vec<Reason> {
    settings
        .grants
        .iter()
        .filter_map(|line| {
            let (ability, flow) = match &line.grant {
                Grant::Dir { access, .. } => (
                    Ability::Files,
                    Flow {
                        reads_private: access.read,
                        ..Flow::default()
                    },
                ),
                Grant::Env { value: None, .. } => (
                    Ability::Environment,
                    Flow {
                        reads_private: true,
                        ..Flow::default()
                    },
                ),
                // A value that a person wrote into the grant is no secret of the environment.
                Grant::Env { value: Some(_), .. } => (Ability::Environment, Flow::default()),
                // Even a GET sends: its path and query carry what the caller wants.
                Grant::Http(_) => (
                    Ability::Http,
                    Flow {
                        untrusted_content: true,
                        can_send_out: true,
                        ..Flow::default()
                    },
                ),
                // What is kept may come from any session, and from everything that was read in one.
                Grant::Bucket(_) => (
                    Ability::KeyValue,
                    Flow {
                        reads_private: true,
                        untrusted_content: true,
                        ..Flow::default()
                    },
                ),
                Grant::Deny { .. } | Grant::DenyHttp(_) | Grant::DenyBucket { .. } => return None,
            };
            let usable = abilities.contains(&ability) && flow != Flow::default();
            usable.then(|| Reason {
                grant: line.grant.to_string(),
                flow,
            })
        })
        .collect()
}

/// All labels together.
pub(crate) fn total(reasons: &[Reason]) -> Flow {
    reasons
        .iter()
        .fold(Flow::default(), |flow, reason| flow.union(reason.flow))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::GrantLine;
    use crate::config::{ComponentSource, Origin, Sourced};

    fn flow(grants: &[&str], abilities: &[Ability]) -> Flow {
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
    fn a_grant_labels_a_tool_only_where_its_imports_can_use_it() {
        let all = [Ability::Files, Ability::Http, Ability::Environment];
        let private = Flow {
            reads_private: true,
            ..Flow::default()
        };
        assert_eq!(flow(&["read=."], &all), private);
        assert_eq!(flow(&["read=."], &[Ability::Http]), Flow::default());
        assert_eq!(flow(&["env=A=1"], &all), Flow::default());
        assert_eq!(flow(&["env=A"], &all), private);
        assert_eq!(flow(&["create=."], &all), Flow::default());
        assert!(flow(&["read=.", "http=*"], &all).is_complete());
        let kept = flow(&["keyvalue=memory"], &[Ability::KeyValue]);
        assert!(kept.reads_private && kept.untrusted_content && !kept.can_send_out);
        assert!(!flow(&["read=.", "http=*"], &[Ability::Files]).is_complete());
    }
}
