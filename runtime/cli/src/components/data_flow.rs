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
    let loaded: Vec<&Loaded> = loaded.into_iter().collect();
    let is_open = is_open(loaded.iter().map(|loaded| &loaded.settings));
    loaded
        .into_iter()
        .flat_map(|loaded| {
            let abilities = loaded.component.abilities();
            let own = total(&reasons(&loaded.settings, &abilities, is_open));
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
    reasons(
        &hook.settings.component,
        &hook.component.identity().abilities(),
        true,
    )
}

/// True if one of the components can send requests to others than private networks and the origins that get secrets. What
/// comes from those is private, but can be sent nowhere else.
pub(crate) fn is_open<'a>(components: impl IntoIterator<Item = &'a ToolSettings>) -> bool {
    let components: Vec<&ToolSettings> = components.into_iter().collect();
    let bindings = components.iter().flat_map(|component| &component.bindings);
    let hosts: Vec<&str> = bindings
        .flat_map(|binding| &binding.origins)
        .filter_map(|origin| origin.split_once("://")?.1.split(':').next())
        .collect();
    let mut grants = components.iter().flat_map(|component| &component.grants);
    grants.any(|line| match &line.grant {
        Grant::Http(http) => !http.private && !hosts.contains(&http.host.as_str()),
        _ => false,
    })
}

/// Returns the grants and secrets of a component that its imports can use, with the labels of each. `is_open` is that of
/// all components together ([`is_open`]).
pub(crate) fn reasons(settings: &ToolSettings, abilities: &[Ability], is_open: bool) -> Vec<Reason> {
    let reads_private = is_open && abilities.contains(&Ability::Http);
    let secrets = settings
        .bindings
        .iter()
        .filter(|_| reads_private)
        .map(|binding| Reason {
            grant: format!("secret {}", binding.name),
            // A secret gives access to what is not public.
            flow: DataFlow {
                reads_private: true,
                ..DataFlow::default()
            },
        });
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
                // Even a GET sends data: in its path and query. A private network has what is not public.
                Grant::Http(http) => (
                    Ability::Http,
                    DataFlow {
                        reads_private: http.private && is_open,
                        untrusted_content: true,
                        can_send_out: true,
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
        .chain(secrets)
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
    use toolcell_core::SecretBinding;
    use toolcell_core::secret::{SecretPlacement, SecretResponses};

    use crate::config::settings::GrantLine;
    use crate::config::{ComponentSource, Origin, Sourced};

    fn lines(grants: &[&str]) -> Vec<GrantLine> {
        let line = |line: &&str| GrantLine {
            grant: line.parse().unwrap(),
            base: "/".into(),
            origin: Origin::Flag("--grant"),
        };
        grants.iter().map(line).collect()
    }

    fn flow(grants: &[&str], abilities: &[Ability]) -> DataFlow {
        let source = ComponentSource::File(Sourced::flag("TOOL", "/x.wasm".into()));
        let mut settings = ToolSettings::new("x", source);
        settings.grants = lines(grants);
        let is_open = is_open([&settings]);
        total(&reasons(&settings, abilities, is_open))
    }

    #[test]
    fn private_data_over_http_counts_if_it_can_be_sent_elsewhere() {
        let all = [Ability::Http];
        let reads_private = |grants: &[&str]| flow(grants, &all).reads_private;
        assert!(!reads_private(&["http-private=intranet.example"]));
        assert!(reads_private(&["http-private=intranet.example", "http=*"]));
        assert!(!reads_private(&["http=a.com"]));

        let source = ComponentSource::File(Sourced::flag("TOOL", "/x.wasm".into()));
        let mut settings = ToolSettings::new("x", source);
        settings.bindings = vec![SecretBinding {
            name: "token".into(),
            origins: vec!["https://api.example.com".into()],
            placement: SecretPlacement::Placeholder {
                placeholder: "HERE".into(),
            },
            methods: Vec::new(),
            paths: Vec::new(),
            responses: SecretResponses::Any,
        }];
        for (grants, is_private) in [
            (&["http=api.example.com"][..], false),
            (&["http=api.example.com", "http=example.org"], true),
            (&["http=*.example.com"], true),
        ] {
            settings.grants = lines(grants);
            let is_open = is_open([&settings]);
            let flow = total(&reasons(&settings, &all, is_open));
            assert_eq!(flow.reads_private, is_private, "{grants:?}");
        }
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
