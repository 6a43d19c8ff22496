//! Sandbox of the command line: compiler process, compile cache, buckets, and number of cells.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use toolcell_core::{KeyValueStore, error_chain};
use toolcell_sandbox::{
    CompileCommand, CompileEvent, Compiler, HostNetwork, Network, Sandbox, SandboxOptions,
};
use toolcell_store::BucketLimits;

use crate::components::buckets::Buckets;
use crate::environment::{COMPILE_CHILD, Environment, open_files_of_tools};
use crate::error::{Exit, Failure};
use crate::ui::render::Console;
use crate::ui::terminal::text;

/// Maximum size of a component file, in bytes; same as the limit of the sandbox.
pub(crate) const MAX_COMPONENT_BYTES: u64 = 64 << 20;

/// Maximum number of concurrent cells. One user does not run more, and reserving few speeds up startup.
const SLOTS: u32 = 64;

/// Network and buckets of all cells.
pub(crate) struct Surroundings {
    /// Network for requests that a policy has allowed.
    pub(crate) network: Arc<dyn Network>,
    /// Additional CA certificates (X.509, DER).
    pub(crate) trusted_roots: Vec<Vec<u8>>,
    /// Store of the buckets.
    pub(crate) buckets: Arc<dyn KeyValueStore>,
}

/// Starts the sandbox with the user's compile cache and network, and with these limits of the user's buckets.
///
/// # Errors
/// Returns an error if the engine does not start on this machine.
pub(crate) fn start(
    environment: &Environment,
    buckets: BTreeMap<String, BucketLimits>,
    console: &Console,
) -> Result<Sandbox, Failure> {
    let of_user = Surroundings {
        network: Arc::new(HostNetwork),
        trusted_roots: Vec::new(),
        buckets: Arc::new(Buckets::new(environment, buckets)),
    };
    start_in(environment, console, of_user)
}

/// Starts the sandbox with the user's compile cache, and another network and buckets.
///
/// # Errors
/// Returns an error if the engine does not start on this machine.
pub(crate) fn start_in(
    environment: &Environment,
    console: &Console,
    surroundings: Surroundings,
) -> Result<Sandbox, Failure> {
    let activities = Mutex::new(BTreeMap::new());
    let shown = console.clone();
    let compiler = match &environment.program {
        // Components are untrusted: the compiler runs in its own process, with limits.
        Some(program) => Compiler::Child(CompileCommand {
            program: program.clone(),
            args: vec![COMPILE_CHILD.into()],
        }),
        None => Compiler::InProcess,
    };
    let options = SandboxOptions {
        compiler,
        cache_dir: environment.cache_dir.clone(),
        slots: SLOTS,
        open_files: open_files_of_tools(),
        network: surroundings.network,
        trusted_roots: surroundings.trusted_roots,
        buckets: Some(surroundings.buckets),
        max_component_bytes: MAX_COMPONENT_BYTES,
        on_compile: Some(Arc::new(move |event| {
            let mut activities = activities.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                CompileEvent::Started { label, .. } => {
                    activities.insert(label.to_owned(), shown.activity(text!("compiling {}", label)));
                }
                CompileEvent::Finished { label, .. } => {
                    activities.remove(label);
                }
                _ => {}
            }
        })),
        ..SandboxOptions::default()
    };
    let sandbox = Sandbox::new(options).map_err(|e| {
        Failure::new(Exit::Internal, "the sandbox could not be started")
            .because(e)
            .hint("`toolcell doctor` shows what is missing")
    })?;
    if let Some(error) = sandbox.cache_error() {
        console.note(text!("compiled code is not cached: {}", error_chain(error)));
    }
    Ok(sandbox)
}
