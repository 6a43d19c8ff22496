//! `wasi:cli/environment` and `wasi:config/store`: the granted variables and the arguments of a program, copied only for a
//! guest that asks for them.

use toolcell_core::Policy;
use wasmtime::component::{ComponentType, HasData, Lift, Linker, Lower};
use wasmtime_wasi::p2::bindings::cli::environment;
use wasmtime_wasi::p3::bindings::cli::environment as async_environment;

use crate::cell::memory::Reservation;

/// Host implementation of the environment.
pub(crate) struct EnvironmentView<'a> {
    pub(crate) policy: &'a Policy,
    /// Arguments of a program; a tool has none.
    pub(crate) arguments: &'a [String],
    pub(crate) in_flight: &'a mut Reservation,
}

struct HasEnvironment;

impl HasData for HasEnvironment {
    type Data<'a> = EnvironmentView<'a>;
}

/// Replaces `wasi:cli/environment`. The linker must allow shadowing.
pub(crate) fn add_to_linker<T: Send + 'static>(
    linker: &mut Linker<T>,
    view: fn(&mut T) -> EnvironmentView<'_>,
) -> wasmtime::Result<()> {
    environment::add_to_linker::<_, HasEnvironment>(linker, view)
}

/// Replaces `wasi:cli/environment` of WASI 0.3, likewise.
pub(crate) fn add_async_to_linker<T: Send + 'static>(
    linker: &mut Linker<T>,
    view: fn(&mut T) -> EnvironmentView<'_>,
) -> wasmtime::Result<()> {
    async_environment::add_to_linker::<_, HasEnvironment>(linker, view)
}

/// Instances of `wasi:config/store` that are linked. As drafts, each links only with itself; their functions have the same
/// types.
const CONFIG_STORES: [&str; 2] = ["wasi:config/store@0.2.0-draft", "wasi:config/store@0.2.0-rc.1"];

/// `wasi:config/store.error`. Nothing fails here.
#[derive(Debug, ComponentType, Lift, Lower)]
#[component(variant)]
enum ConfigError {
    #[component(name = "upstream")]
    Upstream(String),
    #[component(name = "io")]
    Io(String),
}

/// Adds `wasi:config/store`, whose values are the granted variables.
pub(crate) fn add_config_to_linker<T: Send + 'static>(
    linker: &mut Linker<T>,
    view: fn(&mut T) -> EnvironmentView<'_>,
) -> wasmtime::Result<()> {
    for name in CONFIG_STORES {
        let mut store = linker.instance(name)?;
        store.func_wrap("get", move |mut cell, (key,): (String,)| {
            Ok((Ok::<_, ConfigError>(view(cell.data_mut()).variable(&key)?),))
        })?;
        store.func_wrap("get-all", move |mut cell, (): ()| {
            let mut view = view(cell.data_mut());
            Ok((Ok::<_, ConfigError>(environment::Host::get_environment(
                &mut view,
            )?),))
        })?;
    }
    Ok(())
}

impl EnvironmentView<'_> {
    /// Copies the value of a granted variable.
    fn variable(&mut self, name: &str) -> wasmtime::Result<Option<String>> {
        let granted = &self.policy.grants.env;
        let Some((_, value)) = granted.iter().find(|(granted, _)| granted == name) else {
            return Ok(None);
        };
        self.in_flight.grow(value.len() as u64)?;
        Ok(Some(value.clone()))
    }
}

impl async_environment::Host for EnvironmentView<'_> {
    fn get_environment(&mut self) -> wasmtime::Result<Vec<(String, String)>> {
        environment::Host::get_environment(self)
    }

    fn get_arguments(&mut self) -> wasmtime::Result<Vec<String>> {
        environment::Host::get_arguments(self)
    }

    fn get_initial_cwd(&mut self) -> wasmtime::Result<Option<String>> {
        environment::Host::initial_cwd(self)
    }
}

impl environment::Host for EnvironmentView<'_> {
    fn get_environment(&mut self) -> wasmtime::Result<Vec<(String, String)>> {
        let granted = &self.policy.grants.env;
        let texts: usize = granted.iter().map(|(name, value)| name.len() + value.len()).sum();
        let bytes = texts + size_of_val(granted.as_slice());
        self.in_flight.grow(bytes as u64)?;
        Ok(granted.clone())
    }

    fn get_arguments(&mut self) -> wasmtime::Result<Vec<String>> {
        let texts: usize = self.arguments.iter().map(String::len).sum();
        let bytes = texts + size_of_val(self.arguments);
        self.in_flight.grow(bytes as u64)?;
        Ok(self.arguments.to_vec())
    }

    fn initial_cwd(&mut self) -> wasmtime::Result<Option<String>> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::memory::{MemoryAccount, MemoryPool};

    #[test]
    fn copy_of_the_environment_counts_as_memory_of_the_call() {
        let variables = [("HOME", "/"), ("LANG", "C.UTF-8"), ("EMPTY", "")];
        let env: Vec<(String, String)> = variables.map(|(name, value)| (name.into(), value.into())).into();
        let bytes = "HOME/LANGC.UTF-8EMPTY".len() + env.len() * size_of::<(String, String)>();
        let policy = Policy {
            grants: toolcell_core::Grants {
                env: env.clone(),
                ..Default::default()
            },
            ..Policy::default()
        };
        let copied = |memory: usize| {
            let account = MemoryAccount::new(memory as u64, MemoryPool::new(u64::MAX));
            let mut view = EnvironmentView {
                policy: &policy,
                arguments: &[],
                in_flight: &mut account.empty(),
            };
            environment::Host::get_environment(&mut view)
        };
        assert_eq!(copied(bytes).unwrap(), env);
        assert!(copied(bytes - 1).is_err());
    }

    #[test]
    fn copy_of_one_variable_counts_as_memory_of_the_call() {
        let policy = Policy {
            grants: toolcell_core::Grants {
                env: vec![("LANG".into(), "C.UTF-8".into())],
                ..Default::default()
            },
            ..Policy::default()
        };
        let copied = |memory: u64, name: &str| {
            let account = MemoryAccount::new(memory, MemoryPool::new(u64::MAX));
            let mut view = EnvironmentView {
                policy: &policy,
                arguments: &[],
                in_flight: &mut account.empty(),
            };
            view.variable(name)
        };
        assert_eq!(copied(7, "LANG").unwrap().as_deref(), Some("C.UTF-8"));
        assert!(copied(6, "LANG").is_err());
        for name in ["LAN", "LANGUAGE", "lang", ""] {
            assert_eq!(copied(7, name).unwrap(), None, "{name}");
        }
    }

    #[test]
    fn copy_of_the_arguments_counts_as_memory_of_the_call() {
        let arguments = ["program".to_owned(), "--all".to_owned()];
        let bytes = "program--all".len() + 2 * size_of::<String>();
        let copied = |memory: usize| {
            let account = MemoryAccount::new(memory as u64, MemoryPool::new(u64::MAX));
            let mut view = EnvironmentView {
                policy: &Policy::default(),
                arguments: &arguments,
                in_flight: &mut account.empty(),
            };
            environment::Host::get_arguments(&mut view)
        };
        assert_eq!(copied(bytes).unwrap(), arguments);
        assert!(copied(bytes - 1).is_err());
    }
}
