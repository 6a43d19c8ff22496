//! Data-flow labels of a tool, derived from its grants and the imports of its component: private data, untrusted
//! content, network egress. A prompt injection needs all three to exfiltrate data (Simon Willison, "the lethal
//! trifecta"); each alone is harmless.

use std::net::IpAddr;

use toolcell_core::event::DataFlow;
use toolcell_core::policy::HttpGrant;
use toolcell_core::{Grant, SecretBinding};
use toolcell_sandbox::{Ability, is_public_address};

use crate::components::loader::{Loaded, LoadedHook};
use crate::config::ToolSettings;

/// A grant and the labels that follow from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reason {
    /// The grant.
    pub(crate) grant: String,
    /// The labels.
    pub(crate) flow: DataFlow,
    /// The changes that it allows, such as `changes files`; `None` if it allows none.
    pub(crate) changes: Option<&'static str>,
}

/// Returns the labels of a call to each tool of these components, combined with the labels of the hooks.
pub(crate) fn of_tools<'a>(
    loaded: impl IntoIterator<Item = &'a Loaded>,
    hooks: DataFlow,
) -> Vec<(String, DataFlow)> {
    loaded
        .into_iter()
        .flat_map(|loaded| {
            let abilities = loaded.component.abilities();
            let own = total(&reasons(&loaded.settings, &abilities));
            let flow = own.union(hooks);
            loaded
                .called()
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

/// Returns the labels of a program whose imports are not known yet: those of all its grants.
pub(crate) fn of_program(settings: &ToolSettings) -> DataFlow {
    total(&reasons_of_program(settings))
}

/// Returns the grants and secrets of such a program, with the labels of each.
pub(crate) fn reasons_of_program(settings: &ToolSettings) -> Vec<Reason> {
    let all = [
        Ability::Files,
        Ability::Http,
        Ability::KeyValue,
        Ability::Environment,
    ];
    reasons(settings, &all)
}

/// Returns the grants and secrets of a component that its imports can use, with the labels of each. They depend on no other
/// component, because a session goes on with other components, and calls agents that have others.
pub(crate) fn reasons(settings: &ToolSettings, abilities: &[Ability]) -> Vec<Reason> {
    let secrets = settings
        .bindings
        .iter()
        .filter(|_| abilities.contains(&Ability::Http))
        .map(|binding| Reason {
            grant: format!("secret {}", binding.name),
            // A secret gives access to what is not public.
            flow: DataFlow {
                reads_service: true,
                ..DataFlow::default()
            },
            changes: None,
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
                Grant::Http(http) => (Ability::Http, of_http(http, &settings.bindings)),
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
            let changes = match &line.grant {
                Grant::Dir { access, .. } if access.can_change() => Some("changes files"),
                Grant::Bucket(bucket) if bucket.write => Some("changes stored values"),
                _ => None,
            };
            let does_something = flow != DataFlow::default() || changes.is_some();
            (abilities.contains(&ability) && does_something).then(|| Reason {
                grant: line.grant.to_string(),
                flow,
                changes,
            })
        })
        .chain(secrets)
        .collect()
}

/// Returns the labels of a grant of requests. Even a GET sends data: in its path and query.
fn of_http(http: &HttpGrant, bindings: &[SecretBinding]) -> DataFlow {
    let address = http.host.trim_start_matches('[').trim_end_matches(']');
    let address: Option<IpAddr> = address.parse().ok();
    let is_public = address.is_some_and(is_public_address);
    let is_pattern = http.host.contains('*');
    let is_private_network = http.private && !is_public && !is_pattern;
    // What is written into a public service, others may read there.
    let only_reads =
        (http.methods.iter()).all(|method| matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS"));
    let is_service = only_reads && bindings.iter().any(|binding| is_bound(binding, &http.host));
    DataFlow {
        // A private network has what is not public.
        reads_service: http.private && !is_public,
        untrusted_content: true,
        can_send_out: true,
        can_send_elsewhere: !is_private_network && !is_service,
        ..DataFlow::default()
    }
}

/// True if requests to this host, which is no pattern, carry the secret.
fn is_bound(binding: &SecretBinding, host: &str) -> bool {
    binding.origins.iter().any(|origin| {
        let rest = origin
            .split_once("://")
            .and_then(|(_, rest)| rest.strip_prefix(host));
        rest.is_some_and(|port| port.is_empty() || port.starts_with(':'))
    })
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
        total(&reasons(&settings, abilities))
    }

    #[test]
    fn private_data_over_http_counts_if_it_can_be_sent_elsewhere() {
        let all = [Ability::Http];
        for (grants, reads_service, can_send_elsewhere) in [
            (&["http-private=intranet.example"][..], true, false),
            (
                &["http=http://10.0.0.1", "http=POST http://[::1]:80"],
                true,
                false,
            ),
            (&["http-private=intranet.example", "http=*"], true, true),
            (&["http=a.com"], false, true),
            // A pattern also reaches public hosts, and a public address is no private network.
            (&["http-private=*"], true, true),
            (&["http-private=https://*.intranet.example"], true, true),
            (&["http=https://1.1.1.1"], false, true),
            (&["http=https://[2606:4700::1]"], false, true),
        ] {
            let flow = flow(grants, &all);
            assert!(
                flow.can_send_out && flow.untrusted_content && !flow.reads_private,
                "{grants:?}"
            );
            let services = (flow.reads_service, flow.can_send_elsewhere);
            assert_eq!(services, (reads_service, can_send_elsewhere), "{grants:?}");
        }
    }

    #[test]
    fn origin_of_a_secret_is_a_service_unless_written_to() {
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
        for (grants, is_complete) in [
            (&["http=api.example.com"][..], false),
            (&["http=GET,HEAD,OPTIONS https://api.example.com/v1"], false),
            (&["http=GET,POST api.example.com"], true),
            (&["http=DELETE api.example.com"], true),
            (&["http=api.example.com", "http=example.org"], true),
            (&["http=*.example.com"], true),
        ] {
            settings.grants = lines(grants);
            let flow = total(&reasons(&settings, &[Ability::Http]));
            // Also if nothing can be sent elsewhere: it can be in another session, or by another agent.
            assert!(flow.reads_service, "{grants:?}");
            assert_eq!(flow.is_complete(), is_complete, "{grants:?}");
        }
        assert_eq!(total(&reasons(&settings, &[Ability::Files])), DataFlow::default());
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
