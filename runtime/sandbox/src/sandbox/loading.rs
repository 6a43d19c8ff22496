//! Steps of loading a component: check of its shape, adapting, compiling, linking.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio::sync::SemaphorePermit;
use toolcell_core::{SharedError, ToolError};
use wasmtime::Engine;
use wasmtime::component::InstancePre;

use super::engines::LinkedEngine;
use super::{CompileEvent, Shared, TrustedComponent};
use crate::bindings::{Role, split_version};
use crate::cell::state::CellState;
use crate::cell::{Footprint, GuestCall};
use crate::component::{Base, Digest, Identity};
use crate::engine::{EngineKind, FIBER_STACK, STACKS_PER_SLOT, TABLES_PER_SLOT};
use crate::error::LoadError;
use crate::load::adapt;
use crate::load::cache::EntryName;
use crate::load::compile::{self, Artefact, Compiler};
use crate::load::imports;
use crate::load::preflight::{self, Shape};

/// Bytes of host memory for the instances of a cell that are not charged: as much as every cell needs anyway. Tools
/// have about 50 KiB, language runtimes up to a megabyte.
const FREE_INSTANCE_BYTES: u64 = 128 << 10;

/// A component to load.
pub(super) struct Source<'a> {
    pub(super) label: &'a str,
    pub(super) bytes: Bytes<'a>,
    /// Computed from the bytes if missing.
    pub(super) digest: Option<Digest>,
    pub(super) compiler: &'a Compiler,
}

/// The bytes of a component to load.
#[derive(Clone, Copy)]
pub(super) enum Bytes<'a> {
    Given(&'a [u8]),
    Trusted(&'a dyn TrustedComponent),
}

impl Bytes<'_> {
    fn size(self) -> u64 {
        match self {
            Self::Given(bytes) => bytes.len() as u64,
            Self::Trusted(component) => component.size(),
        }
    }

    /// Reads the bytes.
    pub(super) fn read(self) -> Arc<[u8]> {
        match self {
            Self::Given(bytes) => bytes.into(),
            Self::Trusted(component) => component.bytes().into(),
        }
    }

    /// True for a core module, which must be adapted first.
    fn is_core_module(self) -> bool {
        match self {
            Self::Given(bytes) => adapt::is_core_module(bytes),
            Self::Trusted(_) => false,
        }
    }
}

/// A component whose shape was checked.
#[derive(Clone)]
pub(super) struct Examined {
    pub(super) identity: Identity,
    /// Digest under which its cache entries are stored.
    cached_as: Digest,
    /// True if the shape comes from the cache, in which case the component could be compiled and linked before.
    pub(super) is_known: bool,
    shape: Shape,
    /// The component made of a core module, if it was made to check it.
    adapted: Option<Arc<[u8]>>,
}

/// A component that was checked and compiled.
pub(super) struct Found {
    pub(super) base: Base,
    pub(super) linked: InstancePre<CellState>,
    /// Name of its cache entries.
    pub(super) entry: EntryName,
}

/// Place in the queue of the compiler, and one of its jobs.
struct CompileJob<'a> {
    _place: SemaphorePermit<'a>,
    _job: SemaphorePermit<'a>,
}

impl Shared {
    /// Returns the digest of a component that is not larger than allowed.
    pub(super) async fn digest(&self, source: &Source<'_>) -> Result<Digest, LoadError> {
        let (size, limit) = (source.bytes.size(), self.options.max_component_bytes);
        if size > limit {
            return Err(LoadError::TooLarge { size, limit });
        }
        match source.digest {
            Some(digest) => Ok(digest),
            // Hashing and scanning 30 MiB takes a while; it must not block other calls.
            None => {
                let bytes = source.bytes.read();
                off_worker(move || Ok(Digest::of(&bytes))).await
            }
        }
    }

    /// Returns `true` if the shape of a component is in the cache.
    pub(super) fn has_shape(&self, source: &Source<'_>, digest: Digest) -> bool {
        let entry = self.shape_entry(cached_as(source, digest));
        self.cache
            .as_ref()
            .is_some_and(|cache| cache.shape(&entry).is_some())
    }

    /// Checks the shape of a component for a role. A component with a known digest and a shape in the cache is not read.
    pub(super) async fn examine(&self, source: &Source<'_>, role: Role) -> Result<Examined, LoadError> {
        let digest = self.digest(source).await?;
        let is_module = source.bytes.is_core_module();
        let cached_as = cached_as(source, digest);
        let entry = self.shape_entry(cached_as);
        let known = self.cache.as_ref().and_then(|cache| cache.shape(&entry));
        let is_known = known.is_some();
        let mut adapted = None;
        let shape = match known {
            Some(shape) => shape,
            None => {
                let bytes: Arc<[u8]> = match is_module {
                    true => adapted.insert(self.adapt(source).await?).clone(),
                    false => source.bytes.read(),
                };
                off_worker(move || preflight::scan(&bytes)).await?
            }
        };
        check_contract(role, &shape.exports)?;
        Ok(Examined {
            identity: Identity {
                label: source.label.to_owned(),
                digest,
                size: source.bytes.size(),
                imports: imports::classify(&shape.imports)?,
                exports: shape.exports.clone(),
            },
            cached_as,
            is_known,
            shape,
            adapted,
        })
    }

    /// Returns the name of the cache entry of a shape, which tells the engine of the other entries.
    fn shape_entry(&self, cached_as: Digest) -> EntryName {
        self.entry(EngineKind::Sequential, cached_as)
    }

    fn entry(&self, engine: EngineKind, cached_as: Digest) -> EntryName {
        EntryName::new(&self.engines.sequential().engine, engine, cached_as)
    }

    /// Returns the name of the cache entries of a component, except for its shape.
    pub(super) fn entry_of(&self, examined: &Examined) -> EntryName {
        self.entry(examined.shape.engine, examined.cached_as)
    }

    /// Compiles a component that was examined, or takes its code from the cache, and links it.
    pub(super) async fn link(&self, source: Source<'_>, mut examined: Examined) -> Result<Found, LoadError> {
        let mut entry = self.entry_of(&examined);
        let mut component = self.code(&source, &examined, &entry).await;
        // Asynchronous types are only found when a component is validated.
        if examined.shape.engine == EngineKind::Sequential && is_asynchronous(&component) {
            examined.shape.engine = EngineKind::Concurrent;
            entry = self.entry_of(&examined);
            component = self.code(&source, &examined, &entry).await;
        }
        let component = component?;
        let engine = self.engines.get(examined.shape.engine)?;
        let footprint = Footprint {
            slots: self.slots_of(&component, &examined.shape, engine)?,
            bytes: (examined.shape.instance_bytes)
                .saturating_sub(FREE_INSTANCE_BYTES)
                .saturating_add(stack_bytes(&examined.shape)),
            engine: examined.shape.engine,
        };
        let linked = engine.linker.instantiate_pre(&component);
        let linked = linked.map_err(|e| LoadError::ImportMismatch {
            source: shared_error(e),
        })?;
        if let (Some(cache), false) = (&self.cache, examined.is_known) {
            cache.keep_shape(&self.shape_entry(examined.cached_as), &examined.shape);
        }
        Ok(Found {
            base: self.base(footprint, examined.identity),
            linked,
            entry,
        })
    }

    /// Returns the base of a component in which nothing runs.
    pub(super) fn base_without_code(&self, examined: &Examined) -> Base {
        let footprint = Footprint {
            slots: 1,
            bytes: 0,
            engine: examined.shape.engine,
        };
        self.base(footprint, examined.identity.clone())
    }

    fn base(&self, footprint: Footprint, identity: Identity) -> Base {
        Base {
            cells: self.cells.clone(),
            transport: self.transport.clone(),
            footprint,
            identity,
        }
    }

    /// Returns the machine code of a component, from the cache or the compiler.
    async fn code(
        &self,
        source: &Source<'_>,
        examined: &Examined,
        entry: &EntryName,
    ) -> Result<wasmtime::component::Component, LoadError> {
        let kind = examined.shape.engine;
        let engine = &self.engines.get(kind)?.engine;
        if let Some(component) = self.cached(engine, entry).await? {
            self.from_cache.fetch_add(1, Ordering::Relaxed);
            return Ok(component);
        }
        let bytes = match &examined.adapted {
            Some(component) => component.clone(),
            None if source.bytes.is_core_module() => self.adapt(source).await?,
            None => source.bytes.read(),
        };
        let _job = self.compile_job().await?;
        // Another task may have compiled the same bytes meanwhile.
        if let Some(component) = self.cached(engine, entry).await? {
            self.from_cache.fetch_add(1, Ordering::Relaxed);
            return Ok(component);
        }
        let started = Instant::now();
        self.tell(CompileEvent::Started {
            label: source.label,
            size: source.bytes.size(),
        });
        let code = self.compile(kind, engine, &bytes, source.compiler).await;
        self.compiled.fetch_add(1, Ordering::Relaxed);
        self.tell(CompileEvent::Finished {
            label: source.label,
            took: started.elapsed(),
        });
        let code = code?;
        let (engine, cache, entry) = (engine.clone(), self.cache.clone(), entry.clone());
        off_worker(move || {
            if let Some(cache) = cache {
                cache.keep_code(&entry, &code);
                // Mapped code costs no memory that the system could not reclaim.
                if let Some(component) = cache.code(&engine, &entry) {
                    return Ok(component);
                }
            }
            compile::adopt(&engine, Artefact::Fresh(&code))
        })
        .await
    }

    /// Returns the machine code of a component if it is in the cache.
    async fn cached(
        &self,
        engine: &Engine,
        entry: &EntryName,
    ) -> Result<Option<wasmtime::component::Component>, LoadError> {
        let Some(cache) = self.cache.clone() else {
            return Ok(None);
        };
        let (engine, entry) = (engine.clone(), entry.clone());
        off_worker(move || Ok(cache.code(&engine, &entry))).await
    }

    async fn compile(
        &self,
        kind: EngineKind,
        engine: &Engine,
        bytes: &Arc<[u8]>,
        compiler: &Compiler,
    ) -> Result<Vec<u8>, LoadError> {
        if let Compiler::Child(command) = compiler {
            let options = &self.options;
            let limits = &options.compile_limits;
            return compile::compile_in_child(command, limits, kind, options.optimize, bytes).await;
        }
        let (engine, bytes) = (engine.clone(), bytes.clone());
        off_worker(move || compile::compile(&engine, &bytes)).await
    }

    /// Makes a component of a core module, where components are compiled. The limit of a component's size holds for both.
    async fn adapt(&self, source: &Source<'_>) -> Result<Arc<[u8]>, LoadError> {
        let bytes = source.bytes.read();
        let checked = bytes.clone();
        let adapter = off_worker(move || adapt::check(&checked)).await?;
        let _job = self.compile_job().await?;
        let component = match source.compiler {
            Compiler::Child(command) => {
                compile::adapt_in_child(command, &self.options.compile_limits, adapter, &bytes).await
            }
            Compiler::InProcess => off_worker(move || adapt::encode(&bytes, adapter)).await,
        }?;
        let limit = self.options.max_component_bytes;
        match component.len() as u64 {
            size if size > limit => Err(LoadError::TooLarge { size, limit }),
            _ => Ok(component.into()),
        }
    }

    /// Waits until the compiler is free.
    async fn compile_job(&self) -> Result<CompileJob<'_>, LoadError> {
        let Ok(place) = self.compile_places.try_acquire() else {
            return Err(LoadError::Busy {
                limit: self.options.compile_queue,
            });
        };
        let job = self.compile_jobs.acquire().await;
        Ok(CompileJob {
            _place: place,
            _job: job.expect("the semaphore is never closed"),
        })
    }

    fn tell(&self, event: CompileEvent<'_>) {
        if let Some(on_compile) = &self.options.on_compile {
            on_compile(event);
        }
    }

    /// Returns the number of pool slots that one cell of the component takes.
    fn slots_of(
        &self,
        component: &wasmtime::component::Component,
        shape: &Shape,
        engine: &LinkedEngine,
    ) -> Result<u32, LoadError> {
        let stacks = match shape.engine {
            EngineKind::Sequential => 1,
            EngineKind::Concurrent => shape.max_stacks().div_ceil(STACKS_PER_SLOT),
        };
        let (memories, tables) = (component.resources_required())
            .map_or((1, 1), |required| (required.num_memories, required.num_tables));
        let slots = memories.max(tables.div_ceil(TABLES_PER_SLOT)).max(stacks).max(1);
        if engine.has_pool && slots > self.options.slots {
            return Err(LoadError::Definitions {
                source: ToolError::Unavailable {
                    message: format!(
                        "one call of it takes {slots} slots, and the pool has {}",
                        self.options.slots
                    ),
                },
                log: String::new(),
            });
        }
        Ok(slots)
    }

    /// Reads the definitions of a component, as [`Base::ask`], and counts it.
    pub(super) async fn ask<J: GuestCall>(
        &self,
        base: &Base,
        pre: &J::World,
        job: J,
    ) -> Result<J::Done, LoadError> {
        self.definitions_read.fetch_add(1, Ordering::Relaxed);
        base.ask(pre, job).await
    }
}

/// Returns the digest under which the cache entries of a component are stored.
fn cached_as(source: &Source<'_>, digest: Digest) -> Digest {
    match source.bytes.is_core_module() {
        true => adapt::cache_digest(digest),
        false => digest,
    }
}

/// Returns `true` for the error of a component that is valid in the concurrent engine.
fn is_asynchronous<T>(compiled: &Result<T, LoadError>) -> bool {
    matches!(compiled, Err(LoadError::UnsupportedFeature { feature }) if feature == compile::ASYNC)
}

/// Returns the memory of the stacks of tasks that can wait in one cell, in bytes, in addition to the one that every cell has.
fn stack_bytes(shape: &Shape) -> u64 {
    match shape.engine {
        EngineKind::Sequential => 0,
        EngineKind::Concurrent => u64::from(shape.entered.saturating_sub(1)) * FIBER_STACK as u64,
    }
}

pub(super) fn shared_error(error: wasmtime::Error) -> SharedError {
    SharedError::from(Box::<dyn std::error::Error + Send + Sync>::from(error))
}

/// Runs blocking work on a separate thread, so that no call waits for it.
async fn off_worker<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LoadError> + Send + 'static,
) -> Result<T, LoadError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(LoadError::Compile {
            reason: error.to_string(),
        })
    })
}

/// Checks that the export required by a role exists in a supported version, or that there are functions which could be
/// tools.
fn check_contract(role: Role, exports: &[String]) -> Result<(), LoadError> {
    if role.is_among(exports) {
        return Ok(());
    }
    let other_version = exports
        .iter()
        .find(|export| split_version(export).0 == role.interface());
    Err(match (other_version, role) {
        (Some(export), _) => LoadError::UnknownContract {
            export: export.escape_debug().to_string(),
            version: export
                .split_once('@')
                .map_or("none", |(_, version)| version)
                .escape_debug()
                .to_string(),
        },
        // Their functions are no tools.
        (None, Role::Tools)
            if !exports.is_empty()
                && ![Role::Hook, Role::SummaryHook, Role::Resources, Role::Prompts]
                    .iter()
                    .any(|role| role.is_among(exports)) =>
        {
            return Ok(());
        }
        (None, Role::Tools | Role::Resources | Role::Prompts) => LoadError::NotATool {
            is_hook: Role::Hook.is_among(exports),
            exports: escaped(exports),
        },
        (None, Role::Hook | Role::SummaryHook) => LoadError::NotAHook {
            has_tools: Role::Tools.is_among(exports),
            exports: escaped(exports),
        },
    })
}

fn escaped(names: &[String]) -> Vec<String> {
    names.iter().map(|name| name.escape_debug().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additional_interfaces_alone_are_no_tools() {
        let check = |interfaces: &[&str]| {
            let exports = interfaces
                .iter()
                .map(|name| format!("toolcell:tool/{name}@0.1.0"));
            check_contract(Role::Tools, &exports.collect::<Vec<_>>())
        };
        assert!(check(&["tools", "resources", "prompts"]).is_ok());
        for alone in [
            &["resources"][..],
            &["prompts"],
            &["resources", "prompts"],
            &["summary-hooks"],
        ] {
            assert!(matches!(
                check(alone),
                Err(LoadError::NotATool { is_hook: false, .. })
            ));
        }
    }
}
