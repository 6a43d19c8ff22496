//! Components and hooks in the lock file, and how they may differ from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;
use toolcell_core::{Grant, ToolSpec};
use toolcell_fs::Rules;
use toolcell_sandbox::{Digest, Identity};

use crate::components::loader::{Loaded, LoadedHook};
use crate::components::sandbox::MAX_COMPONENT_BYTES;
use crate::config::{ComponentSource, ToolSettings};
use crate::environment::Environment;
use crate::packages::store::{self, Package};
use crate::packages::wants::PackageManifest;
use crate::ui::terminal::{Own, Shown, Text, text};

/// Locked component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Locked {
    /// Digest of its bytes.
    digest: String,
    /// Imports of the component.
    imports: Vec<String>,
    /// Grants of the component.
    grants: Vec<String>,
    /// Origin of the package, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    /// Publisher who signed it, if one is pinned: a key, or an identity of Sigstore with its issuer. Locks of older versions have
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    publisher: Option<String>,
    /// Grants that its author proposes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    wants: Vec<String>,
    /// Its tools by name.
    tools: BTreeMap<String, LockedTool>,
}

/// Digests of what a model reads about one tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LockedTool {
    /// Digest of title, description, hints and annotations.
    description: String,
    /// Digest of the input schema.
    input: String,
    /// Digest of the output schema.
    output: String,
}

/// Locked hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LockedHook {
    /// Digest of its bytes.
    digest: String,
    /// Imports of the component.
    imports: Vec<String>,
    /// Grants of the hook.
    grants: Vec<String>,
    /// Hook points that the component subscribes to.
    #[serde(rename = "moments")]
    points: Vec<String>,
    /// True if the hook is a guard.
    guard: bool,
}

impl Locked {
    pub(super) fn of(loaded: &Loaded, environment: &Environment) -> Self {
        let component = &loaded.component;
        let (imports, grants) = reach(component.identity(), &loaded.settings);
        let (package, wants) = of_package(&loaded.settings, environment);
        Self {
            digest: component.digest().to_string(),
            imports,
            grants,
            publisher: (package.as_ref())
                .and_then(|package| package.publisher.as_ref().map(ToString::to_string)),
            origin: package.map(|package| portable(&package.origin)),
            wants,
            tools: component
                .definitions()
                .iter()
                .filter(|spec| loaded.settings.offers(spec.name.as_str()))
                .map(|spec| (spec.name.to_string(), LockedTool::of(spec)))
                .collect(),
        }
    }

    /// Returns the differences of `now` from this lock. A tool that `is_defined` and no longer offered is not a
    /// difference: fewer tools than approved need no approval.
    pub(super) fn differences(&self, now: &Self, is_defined: impl Fn(&str) -> bool) -> Vec<Text> {
        let mut found = Vec::new();
        for (name, tool) in &now.tools {
            match self.tools.get(name) {
                None => found.push(text!("the tool `{}` is new", name)),
                Some(locked) => {
                    let changed = [
                        (locked.description != tool.description, "the description"),
                        (locked.input != tool.input, "the input schema"),
                        (locked.output != tool.output, "the output schema"),
                    ];
                    found.extend(
                        changed
                            .into_iter()
                            .filter(|(changed, _)| *changed)
                            .map(|(_, what)| text!("{} of `{}` changed", Own(what), name)),
                    );
                }
            }
        }
        let gone = self.tools.keys().filter(|name| !is_defined(name));
        found.extend(gone.map(|name| text!("the tool `{}` is gone", name)));
        found.extend(reach_differences(
            (&self.imports, &self.grants),
            (&now.imports, &now.grants),
        ));
        if self.origin.as_deref().map(portable) != now.origin {
            let shown = |origin: &Option<String>| match origin {
                Some(origin) => text!("{}", origin),
                None => "a file".into(),
            };
            found.push(text!(
                "it comes from {}, and came from {}",
                shown(&now.origin),
                shown(&self.origin)
            ));
        }
        // One that is pinned now and was not, or that an older version did not record, is more than was approved.
        if let Some(locked) = &self.publisher
            && now.publisher.as_ref() != Some(locked)
        {
            found.push(match &now.publisher {
                Some(other) => text!("its publisher is {}, and was {}", other, locked),
                None => text!("no publisher is pinned, and it was signed by {}", locked),
            });
        }
        if self.digest != now.digest {
            // The same code proposes the same.
            let new_wants = now.wants.iter().filter(|grant| !self.wants.contains(grant));
            found.extend(
                new_wants.map(|grant| text!("its author proposes the grant `{}`, which is new", grant)),
            );
            found.push(if found.is_empty() {
                "its code changed, but nothing that the model reads".into()
            } else {
                "its code changed".into()
            });
        }
        found
    }
}

impl LockedHook {
    pub(super) fn of(loaded: &LoadedHook) -> Self {
        let component = &loaded.component;
        let (imports, grants) = reach(component.identity(), &loaded.settings.component);
        let points = component.spec().points.iter();
        Self {
            digest: component.identity().digest().to_string(),
            imports,
            grants,
            points: points.map(|point| point.as_str().to_owned()).collect(),
            guard: loaded.hook.spec().guard,
        }
    }

    /// Returns the differences of `now` from this lock.
    pub(super) fn differences(&self, now: &Self) -> Vec<Text> {
        let mut found = Vec::new();
        if self.points != now.points {
            found.push(text!(
                "it is called at {}, and was at {}",
                Shown(&now.points.join(", ")),
                Shown(&self.points.join(", "))
            ));
        }
        if self.guard && !now.guard {
            found.push("it is no longer a guard".into());
        }
        found.extend(reach_differences(
            (&self.imports, &self.grants),
            (&now.imports, &now.grants),
        ));
        if self.digest != now.digest {
            found.push("its code changed".into());
        }
        found
    }
}

/// Returns an origin as the lock has it, which others have as well: the name of a file without its directory, an address without its
/// query, which can be a credential.
fn portable(origin: &str) -> String {
    if let Some((address, fragment)) = origin.split_once("://").and_then(|_| origin.rsplit_once('#')) {
        let address = address.split_once('?').map_or(address, |(address, _)| address);
        return format!("{address}#{fragment}");
    }
    match origin.starts_with(['/', '~', '.']) {
        true => origin.rsplit('/').next().unwrap_or(origin).to_owned(),
        false => origin.to_owned(),
    }
}

/// Package that a component is, and the grants that the author of a component proposes.
fn of_package(settings: &ToolSettings, environment: &Environment) -> (Option<Package>, Vec<String>) {
    let ComponentSource::File(file) = &settings.component else {
        return (None, Vec::new());
    };
    let package = store::package_at(&settings.name, &file.value, environment);
    let bytes = toolcell_fs::read(&file.value, &Rules::named(MAX_COMPONENT_BYTES)).unwrap_or_default();
    // One that cannot be read was refused when the package was added.
    let manifest = PackageManifest::read(&bytes).ok().flatten().unwrap_or_default();
    let wants = manifest.wants.iter().map(|want| want.grant.to_string());
    (package, wants.collect())
}

/// Imports and grants of a component in a fixed order. Bindings of secrets count as grants.
fn reach(identity: &Identity, settings: &ToolSettings) -> (Vec<String>, Vec<String>) {
    let imports = identity.imports().iter();
    let mut imports: Vec<String> = imports.map(|import| import.name.clone()).collect();
    imports.sort_unstable();
    let secrets = settings
        .bindings
        .iter()
        .map(|binding| format!("secret {binding}"));
    let grants = settings.grants.iter().map(|line| line.grant.to_string());
    let mut grants: Vec<String> = grants.chain(secrets).collect();
    grants.sort_unstable();
    grants.dedup();
    (imports, grants)
}

/// Returns added and removed imports, and grants that exceed the approved ones. Each side is imports and grants.
fn reach_differences(
    (imports, grants): (&[String], &[String]),
    (imports_now, grants_now): (&[String], &[String]),
) -> Vec<Text> {
    let mut found = Vec::new();
    let new_imports = imports_now.iter().filter(|import| !imports.contains(import));
    found.extend(new_imports.map(|import| text!("it imports `{}`, which is new", import)));
    let gone_imports = imports.iter().filter(|import| !imports_now.contains(import));
    found.extend(gone_imports.map(|import| text!("it no longer imports `{}`", import)));
    // A denial narrows: it may be added and must not be removed.
    let is_denial = |line: &&String| line.parse::<Grant>().is_ok_and(|grant| grant.is_denial());
    let new_grants = grants_now.iter().filter(|grant| !grants.contains(grant));
    found.extend(
        new_grants
            .filter(|line| !is_denial(line))
            .map(|grant| text!("the grant `{}` is not among those that are locked", grant)),
    );
    let gone = grants.iter().filter(|grant| !grants_now.contains(grant));
    found.extend(
        gone.filter(is_denial)
            .map(|line| text!("the denial `{}` is locked and no longer applies", line)),
    );
    found
}

impl LockedTool {
    pub(super) fn of(spec: &ToolSpec) -> Self {
        let digest = |value: serde_json::Value| Digest::of(value.to_string().as_bytes()).to_string();
        Self {
            description: digest(json!([
                spec.title,
                spec.description,
                spec.hints,
                spec.annotations
            ])),
            input: digest(spec.input.as_value().clone()),
            output: digest(
                spec.output
                    .as_ref()
                    .map(|schema| schema.as_value().clone())
                    .into(),
            ),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn locked() -> Locked {
        let tool = LockedTool {
            description: "w".into(),
            input: "i".into(),
            output: "o".into(),
        };
        Locked {
            digest: "sha256:1".into(),
            imports: vec!["a".into()],
            grants: vec!["read=.".into()],
            origin: None,
            publisher: None,
            wants: Vec::new(),
            tools: BTreeMap::from([("t".to_owned(), tool)]),
        }
    }

    pub(in super::super) fn locked_hook() -> LockedHook {
        LockedHook {
            digest: "sha256:1".into(),
            imports: vec!["a".into()],
            grants: vec!["read=.".into()],
            points: vec!["before_call".into()],
            guard: true,
        }
    }

    fn shown(differences: Vec<Text>) -> Vec<String> {
        differences.iter().map(Text::inert).collect()
    }

    #[test]
    fn every_difference_of_hook_is_named() {
        let differences = |change: &dyn Fn(&mut LockedHook)| {
            let mut now = locked_hook();
            change(&mut now);
            shown(locked_hook().differences(&now))
        };
        assert_eq!(differences(&|_| {}), Vec::<String>::new());
        assert_eq!(
            differences(&|now| now.digest = "sha256:2".into()),
            ["its code changed"]
        );
        assert_eq!(
            differences(&|now| now.points = vec!["after_call".into()]),
            ["it is called at after_call, and was at before_call"]
        );
        assert_eq!(differences(&|now| now.guard = false), ["it is no longer a guard"]);
        assert_eq!(
            differences(&|now| now.imports.push("b".into())),
            ["it imports `b`, which is new"]
        );
        assert_eq!(
            differences(&|now| now.grants = vec!["write=.".into()]),
            ["the grant `write=.` is not among those that are locked"]
        );
        // Less access than approved needs no approval.
        assert_eq!(differences(&|now| now.grants.clear()), Vec::<String>::new());
        assert_eq!(
            differences(&|now| now.grants.push("deny=private".into())),
            Vec::<String>::new()
        );
    }

    #[test]
    fn every_difference_is_named() {
        let differences = |change: &dyn Fn(&mut Locked)| {
            let mut now = locked();
            change(&mut now);
            shown(locked().differences(&now, |name| now.tools.contains_key(name)))
        };
        assert_eq!(differences(&|_| {}), Vec::<String>::new());
        assert_eq!(
            differences(&|now| now.digest = "sha256:2".into()),
            ["its code changed, but nothing that the model reads"]
        );
        assert_eq!(
            differences(&|now| now.tools.get_mut("t").unwrap().description = "x".into()),
            ["the description of `t` changed"]
        );
        assert_eq!(
            differences(&|now| now.tools.get_mut("t").unwrap().input = "x".into()),
            ["the input schema of `t` changed"]
        );
        assert_eq!(
            differences(&|now| now.tools.get_mut("t").unwrap().output = "x".into()),
            ["the output schema of `t` changed"]
        );
        assert_eq!(
            differences(&|now| now.imports.push("b".into())),
            ["it imports `b`, which is new"]
        );
        assert_eq!(
            differences(&|now| now.imports.clear()),
            ["it no longer imports `a`"]
        );
        assert_eq!(
            differences(&|now| now.grants.push("http=*".into())),
            ["the grant `http=*` is not among those that are locked"]
        );
        // Less access than approved needs no approval.
        assert_eq!(differences(&|now| now.grants.clear()), Vec::<String>::new());
        assert_eq!(differences(&|now| now.tools.clear()), ["the tool `t` is gone"]);
        let mut fewer = locked();
        fewer.tools.clear();
        assert_eq!(
            shown(locked().differences(&fewer, |_| true)),
            Vec::<String>::new()
        );
        assert_eq!(
            shown(fewer.differences(&locked(), |_| true)),
            ["the tool `t` is new"]
        );
    }

    #[test]
    fn locked_publisher_must_stay() {
        let of = |publisher: Option<&str>| Locked {
            publisher: publisher.map(str::to_owned),
            ..locked()
        };
        let differences =
            |locked: Option<&str>, now: Option<&str>| shown(of(locked).differences(&of(now), |_| true));
        let none = Vec::<String>::new();
        assert_eq!(differences(Some("a"), Some("a")), none);
        assert_eq!(differences(None, Some("a")), none, "a lock of an older version");
        assert_eq!(
            differences(Some("a"), Some("b")),
            ["its publisher is b, and was a"]
        );
        assert_eq!(
            differences(Some("a"), None),
            ["no publisher is pinned, and it was signed by a"]
        );
    }

    #[test]
    fn locked_denial_may_stay_and_not_go() {
        let denying = |mut locked: Locked| {
            locked.grants.push("deny=private".into());
            locked
        };
        let differences = |now: &Locked| denying(locked()).differences(now, |_| true);
        assert_eq!(shown(differences(&denying(locked()))), Vec::<String>::new());
        assert_eq!(
            shown(differences(&locked())),
            ["the denial `deny=private` is locked and no longer applies"]
        );
    }
}
