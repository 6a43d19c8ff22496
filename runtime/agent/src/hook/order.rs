//! The order in which hooks run.

use std::sync::Arc;

use super::Hook;
use crate::error::BuildError;

/// Sorts hooks by their wishes.
///
/// # Errors
/// When two have one name, or when the wishes form a circle.
pub(super) fn sort(hooks: Vec<Arc<dyn Hook>>) -> Result<Vec<Arc<dyn Hook>>, BuildError> {
    let orders: Vec<_> = hooks.iter().map(|hook| hook.order()).collect();
    let position = |name: &str| hooks.iter().position(|hook| hook.name() == name);
    // `waits[i]` are the hooks that run before hook `i`.
    let mut waits: Vec<Vec<usize>> = vec![Vec::new(); hooks.len()];
    for (i, hook) in hooks.iter().enumerate() {
        if position(hook.name()) != Some(i) {
            return Err(BuildError::DuplicateHook {
                name: hook.name().to_owned(),
            });
        }
        for later in orders[i].before.iter().filter_map(|name| position(name)) {
            waits[later].push(i);
        }
        waits[i].extend(orders[i].after.iter().filter_map(|name| position(name)));
    }
    let mut placed: Vec<usize> = Vec::with_capacity(hooks.len());
    while placed.len() < hooks.len() {
        let next = (0..hooks.len())
            .filter(|i| !placed.contains(i) && waits[*i].iter().all(|w| placed.contains(w)))
            .min_by_key(|i| (-i64::from(orders[*i].priority), hooks[*i].name()));
        let Some(next) = next else {
            let rest = (0..hooks.len()).filter(|i| !placed.contains(i));
            return Err(BuildError::HookCycle {
                names: rest.map(|i| hooks[i].name().to_owned()).collect(),
            });
        };
        placed.push(next);
    }
    Ok(placed.into_iter().map(|i| hooks[i].clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hook::{HookOrder, HookPoint};

    struct Named(&'static str, HookOrder);

    impl Hook for Named {
        fn name(&self) -> &str {
            self.0
        }

        fn order(&self) -> HookOrder {
            self.1.clone()
        }
    }

    fn hook(name: &'static str, priority: i32, before: &[&str], after: &[&str]) -> Arc<dyn Hook> {
        let names = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        Arc::new(Named(
            name,
            HookOrder {
                priority,
                before: names(before),
                after: names(after),
            },
        ))
    }

    fn sorted(hooks: Vec<Arc<dyn Hook>>) -> Result<Vec<String>, BuildError> {
        Ok(sort(hooks)?.iter().map(|hook| hook.name().to_owned()).collect())
    }

    #[test]
    fn h16_hooks_run_by_wishes_then_priority_then_name() {
        let hooks = vec![
            hook("z", 0, &[], &[]),
            hook("a", 0, &[], &[]),
            hook("high", 5, &[], &[]),
            hook("first", -9, &["high"], &[]),
            hook("last", 9, &[], &["z", "nobody"]),
        ];
        assert_eq!(sorted(hooks).unwrap(), ["a", "z", "last", "first", "high"]);
    }

    #[test]
    fn h16_wishes_that_form_a_circle_are_reported_with_the_names() {
        let hooks = vec![
            hook("a", 0, &["b"], &[]),
            hook("b", 0, &["a"], &[]),
            hook("c", 0, &[], &[]),
        ];
        assert_eq!(
            sorted(hooks),
            Err(BuildError::HookCycle {
                names: vec!["a".into(), "b".into()]
            })
        );
    }

    #[test]
    fn two_hooks_of_one_name_are_refused() {
        let error = sorted(vec![hook("a", 0, &[], &[]), hook("a", 1, &[], &[])]).unwrap_err();
        assert_eq!(error, BuildError::DuplicateHook { name: "a".into() });
    }

    #[test]
    fn a_hook_guards_nothing_and_uses_no_fuel_unless_it_says_so() {
        let hook = hook("plain", 0, &[], &[]);
        assert!(!hook.is_guard());
        for point in [
            HookPoint::BeforePrompt,
            HookPoint::BeforeCall,
            HookPoint::AfterTurn,
        ] {
            assert_eq!(hook.max_fuel(point), 0, "{point:?}");
        }
        assert_eq!(hook.timeout(), None);
    }

    #[test]
    fn each_point_has_its_name_in_events() {
        for (point, name) in [
            (HookPoint::BeforePrompt, "before_prompt"),
            (HookPoint::BeforeCall, "before_call"),
            (HookPoint::AfterCall, "after_call"),
            (HookPoint::BeforeSummary, "before_summary"),
            (HookPoint::AfterSummary, "after_summary"),
            (HookPoint::AfterTurn, "after_turn"),
            (HookPoint::OnError, "on_error"),
        ] {
            assert_eq!(point.as_str(), name);
        }
    }
}
