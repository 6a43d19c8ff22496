//! Manifest of a hook: read once, validated, cached.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use toolcell_core::ToolName;
use toolcell_core::hook::{HookOrder, HookPoint, HookSpec};
use wasmtime::Store;

use super::linked::{HookGuest, LinkedHook};
use crate::bindings::{hooks, summary_hooks};
use crate::cell::GuestCall;
use crate::cell::failure::cut;
use crate::cell::state::CellState;
use crate::error::LoadError;

/// Maximum size of a description, in bytes.
const MAX_DESCRIPTION: usize = 10 << 10;

/// Maximum number of names of hooks to run before or after.
const MAX_WISHES: usize = 64;

/// Maximum size of all annotations, in bytes.
const MAX_ANNOTATIONS: usize = 16 << 10;

/// Manifest of a hook, as stored in the cache.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct HookManifest {
    name: String,
    description: String,
    moments: BTreeSet<HookPoint>,
    guard: bool,
    priority: i32,
    before: Vec<String>,
    after: Vec<String>,
    annotations: Vec<(String, String)>,
}

/// Reads the manifest of a hook.
pub(crate) struct Ask;

impl GuestCall for Ask {
    type World = LinkedHook;
    type Done = HookManifest;

    async fn call_guest(
        self,
        guest: &HookGuest,
        store: &mut Store<CellState>,
    ) -> wasmtime::Result<HookManifest> {
        let hook = guest.hooks.call_describe(&mut *store).await?;
        let mut manifest = HookManifest::from(hook);
        if let Some(summaries) = &guest.summaries {
            let moments = summaries.call_describe(store).await?;
            let points = SUMMARY_POINTS.into_iter();
            let points = points.filter_map(|(flag, point)| moments.contains(flag).then_some(point));
            manifest.moments.extend(points);
        }
        Ok(manifest)
    }

    fn bytes_out(done: &HookManifest) -> u64 {
        let annotations: usize = done.annotations.iter().map(|(n, v)| n.len() + v.len()).sum();
        let wishes: usize = done.before.iter().chain(&done.after).map(String::len).sum();
        (done.name.len() + done.description.len() + wishes + annotations) as u64
    }
}

impl From<hooks::Hook> for HookManifest {
    fn from(hook: hooks::Hook) -> Self {
        let points = POINTS.into_iter();
        let points = points.filter_map(|(flag, point)| hook.moments.contains(flag).then_some(point));
        Self {
            moments: points.collect(),
            name: hook.name,
            description: hook.description,
            guard: hook.guard,
            priority: hook.priority,
            before: hook.before,
            after: hook.after,
            annotations: hook.annotations,
        }
    }
}

/// Hook points of the interface of summaries.
const SUMMARY_POINTS: [(summary_hooks::SummaryMoments, HookPoint); 2] = [
    (
        summary_hooks::SummaryMoments::BEFORE_SUMMARY,
        HookPoint::BeforeSummary,
    ),
    (
        summary_hooks::SummaryMoments::AFTER_SUMMARY,
        HookPoint::AfterSummary,
    ),
];

/// Hook points of the WIT interface.
const POINTS: [(hooks::Moments, HookPoint); 5] = [
    (hooks::Moments::BEFORE_PROMPT, HookPoint::BeforePrompt),
    (hooks::Moments::BEFORE_CALL, HookPoint::BeforeCall),
    (hooks::Moments::AFTER_CALL, HookPoint::AfterCall),
    (hooks::Moments::AFTER_TURN, HookPoint::AfterTurn),
    (hooks::Moments::ON_ERROR, HookPoint::OnError),
];

impl HookManifest {
    /// Validates the manifest.
    ///
    /// # Errors
    /// [`LoadError::HookManifest`] with the reason.
    pub(crate) fn check(self) -> Result<HookSpec, LoadError> {
        let refuse = |reason: String| LoadError::HookManifest { reason };
        let name = ToolName::new(self.name)
            .map_err(|e| refuse(e.to_string().replace("invalid tool name", "invalid hook name")))?;
        if self.moments.is_empty() {
            return Err(refuse("the list of moments is empty".into()));
        }
        if self.description.len() > MAX_DESCRIPTION {
            return Err(refuse(format!(
                "the description is too long: {} bytes exceed the limit of {MAX_DESCRIPTION}",
                self.description.len()
            )));
        }
        for wishes in [&self.before, &self.after] {
            if wishes.len() > MAX_WISHES {
                return Err(refuse(format!(
                    "it names {} hooks to run before or after, more than the limit of {MAX_WISHES}",
                    wishes.len()
                )));
            }
            for wish in wishes {
                ToolName::new(wish.clone())
                    .map_err(|e| refuse(e.to_string().replace("invalid tool name", "invalid hook name")))?;
            }
        }
        let mut annotations = BTreeMap::new();
        let mut room = MAX_ANNOTATIONS;
        for (key, text) in self.annotations {
            room = room
                .checked_sub(key.len() + text.len())
                .ok_or_else(|| refuse(format!("the annotations exceed {MAX_ANNOTATIONS} bytes in total")))?;
            let value = toolcell_core::json::parse_value(&text).map_err(|e| {
                refuse(format!(
                    "the annotation `{}` is not valid JSON: {e}",
                    cut(key.clone(), 64).escape_debug()
                ))
            })?;
            annotations.insert(key, value);
        }
        Ok(HookSpec {
            name: name.into(),
            description: self.description,
            points: self.moments,
            guard: self.guard,
            order: HookOrder {
                priority: self.priority,
                before: self.before,
                after: self.after,
            },
            annotations,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> HookManifest {
        HookManifest {
            name: "guard".into(),
            moments: BTreeSet::from([HookPoint::BeforeCall]),
            ..HookManifest::default()
        }
    }

    #[test]
    fn manifest_is_checked_on_both_sides_of_each_limit() {
        let check = |change: &dyn Fn(&mut HookManifest)| {
            let mut claims = claims();
            change(&mut claims);
            claims.check().map_err(|error| error.to_string())
        };
        let refused = |change: &dyn Fn(&mut HookManifest), reason: &str| {
            let error = check(change).unwrap_err();
            assert!(error.contains(reason), "{error}");
        };
        let annotated =
            |value: String| move |c: &mut HookManifest| c.annotations = vec![("x".into(), value.clone())];
        let json_of = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 3));

        assert!(check(&|_| {}).is_ok());
        refused(&|c| c.name = "a b".into(), "invalid hook name `a b`");
        refused(&|c| c.moments.clear(), "the list of moments is empty");
        assert!(check(&|c| c.description = "x".repeat(MAX_DESCRIPTION)).is_ok());
        refused(
            &|c| c.description = "x".repeat(MAX_DESCRIPTION + 1),
            "10241 bytes",
        );
        assert!(check(&|c| c.before = vec!["a".into(); MAX_WISHES]).is_ok());
        refused(&|c| c.before = vec!["a".into(); MAX_WISHES + 1], "65 hooks");
        refused(&|c| c.after = vec!["\u{1b}".into()], "invalid hook name");
        assert!(check(&annotated(json_of(MAX_ANNOTATIONS))).is_ok());
        refused(&annotated(json_of(MAX_ANNOTATIONS + 1)), "16384 bytes");
        refused(&annotated("{".into()), "the annotation `x` is not valid JSON");
    }

    #[test]
    fn size_of_a_manifest_counts_each_of_its_texts() {
        let text = |bytes: usize| "x".repeat(bytes);
        let manifest = HookManifest {
            name: text(1),
            description: text(2),
            before: vec![text(4)],
            after: vec![text(8)],
            annotations: vec![(text(0x10), text(0x20))],
            ..HookManifest::default()
        };
        assert_eq!(Ask::bytes_out(&manifest), 0x3f);
    }
}
