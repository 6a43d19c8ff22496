//! Order of hooks.

use toolcell_core::hook::HookSpec;

use crate::error::BuildError;

/// Returns the positions of hooks in the order of their constraints.
///
/// # Errors
/// Fails if two hooks have the same name, or if the constraints form a cycle.
pub(super) fn sort(hooks: &[&HookSpec]) -> Result<Vec<usize>, BuildError> {
    let position = |name: &str| hooks.iter().position(|hook| hook.name == name);
    // `waits[i]` are the hooks that run before hook `i`.
    let mut waits: Vec<Vec<usize>> = vec![Vec::new(); hooks.len()];
    for (i, hook) in hooks.iter().enumerate() {
        if position(&hook.name) != Some(i) {
            return Err(BuildError::DuplicateHook {
                name: hook.name.clone(),
            });
        }
        let order = &hook.order;
        for later in order.before.iter().filter_map(|name| position(name)) {
            waits[later].push(i);
        }
        waits[i].extend(order.after.iter().filter_map(|name| position(name)));
    }
    let mut placed: Vec<usize> = Vec::with_capacity(hooks.len());
    while placed.len() < hooks.len() {
        let next = (0..hooks.len())
            .filter(|i| !placed.contains(i) && waits[*i].iter().all(|w| placed.contains(w)))
            .min_by_key(|i| (-i64::from(hooks[*i].order.priority), &hooks[*i].name));
        let Some(next) = next else {
            let rest = (0..hooks.len()).filter(|i| !placed.contains(i));
            return Err(BuildError::HookCycle {
                names: rest.map(|i| hooks[i].name.clone()).collect(),
            });
        };
        placed.push(next);
    }
    Ok(placed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_core::hook::HookOrder;

    fn hook(name: &str, priority: i32, before: &[&str], after: &[&str]) -> HookSpec {
        let names = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        HookSpec {
            order: HookOrder {
                priority,
                before: names(before),
                after: names(after),
            },
            ..HookSpec::new(name)
        }
    }

    fn sorted(hooks: Vec<HookSpec>) -> Result<Vec<String>, BuildError> {
        let specs: Vec<&HookSpec> = hooks.iter().collect();
        let order = sort(&specs)?;
        Ok(order.into_iter().map(|i| hooks[i].name.clone()).collect())
    }

    #[test]
    fn h16_hooks_run_by_constraints_then_priority_then_name() {
        let hooks = vec![
            hook("z", 0, &[], &[]),
            hook("a", 0, &[], &[]),
            hook("high", 5, &[], &[]),
            hook("first", -9, &["high"], &[]),
            hook("last", 9, &[], &["z", "missing"]),
        ];
        assert_eq!(sorted(hooks).unwrap(), ["a", "z", "last", "first", "high"]);
    }

    #[test]
    fn h16_cyclic_constraints_are_reported_with_the_names() {
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
    fn duplicate_hook_names_are_refused() {
        let error = sorted(vec![hook("a", 0, &[], &[]), hook("a", 1, &[], &[])]).unwrap_err();
        assert_eq!(error, BuildError::DuplicateHook { name: "a".into() });
    }
}
