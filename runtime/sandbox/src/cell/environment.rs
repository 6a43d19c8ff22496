//! `wasi:cli/environment`: the granted variables, copied only for a guest that asks for them.

use toolcell_core::Policy;
use wasmtime::component::{HasData, Linker};
use wasmtime_wasi::p2::bindings::cli::environment;

use crate::cell::memory::Reservation;

/// Host implementation of the environment.
pub(crate) struct EnvironmentView<'a> {
    pub(crate) policy: &'a Policy,
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

impl environment::Host for EnvironmentView<'_> {
    fn get_environment(&mut self) -> wasmtime::Result<Vec<(String, String)>> {
        let granted = &self.policy.grants.env;
        let texts: usize = granted.iter().map(|(name, value)| name.len() + value.len()).sum();
        let bytes = texts + size_of_val(granted.as_slice());
        self.in_flight.grow(bytes as u64)?;
        Ok(granted.clone())
    }

    fn get_arguments(&mut self) -> wasmtime::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn initial_cwd(&mut self) -> wasmtime::Result<Option<String>> {
        Ok(None)
    }
}
