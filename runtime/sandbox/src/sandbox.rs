//! The sandbox: the engines of a process, and the loading of components.

mod engines;
mod later;
mod loading;

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Semaphore;
use toolcell_core::{BoxFuture, KeyValueStore, ToolSpec};

use self::engines::Engines;
pub(crate) use self::later::LaterCode;
use self::loading::{Bytes, Examined, Source, shared_error};
use crate::bindings::{ProviderPre, Role};
use crate::cell::CellRunner;
use crate::cell::memory::MemoryPool;
use crate::component::{Base, Code, Component, Description, Digest, Loaded};
use crate::context::ContextExports;
use crate::egress::{HostNetwork, Network, Transport};
use crate::error::{CacheError, EngineError, LoadError};
use crate::files::FilePool;
use crate::hook::{self, HookComponent, LinkedHook, LoadedHook};
use crate::load::cache::{Cache, EntryName};
use crate::load::compile::{self, CompileLimits, Compiler, CompilerIsolation};
use crate::load::definitions::{self, Ask};
use crate::program::{self, Program};
use crate::typed::Functions;

/// A component that is part of the program itself. Its bytes are read only to compile it, so that a program can keep them
/// compressed.
pub trait TrustedComponent: Sync {
    /// Returns the digest of its bytes.
    fn digest(&self) -> Digest;
    /// Returns the number of its bytes.
    fn size(&self) -> u64;
    /// Returns its bytes.
    fn bytes(&self) -> Vec<u8>;
}

fn trusted<'a>(label: &'a str, component: &'a dyn TrustedComponent) -> Source<'a> {
    Source {
        label,
        bytes: Bytes::Trusted(component),
        digest: Some(component.digest()),
        compiler: &Compiler::InProcess,
    }
}

/// Options of a [`Sandbox`]. The default suits a long-running process without a cache.
#[derive(Clone)]
pub struct SandboxOptions {
    /// Directory for compiled code, created if missing; `None` compiles anew in each process.
    pub cache_dir: Option<PathBuf>,
    /// Maximum number of concurrent cells; further calls wait. Each slot reserves 4 GiB of address space (not of
    /// memory), and creating 1,000 of them takes 3 ms: a process for a single call needs few. 0 means no pool, and each
    /// call allocates its own memory.
    pub slots: u32,
    /// Total memory of all cells in bytes, as counted by [`toolcell_core::Limits::memory`]. A call that would exceed it
    /// fails as temporarily unavailable.
    pub memory: u64,
    /// Maximum number of files and directories that all cells have open. It leaves the rest of what the system allows to
    /// sockets and to the embedder: systems begin with 256 or 1,024 for a process (getrlimit(2)).
    pub open_files: usize,
    /// Maximum size of a component, in bytes.
    pub max_component_bytes: u64,
    /// Optimizes compiled code. Without it, compilation takes two thirds of the time and code runs slower.
    pub optimize: bool,
    /// Place of compilation for components passed to [`Sandbox::load`]. [`Sandbox::load_trusted`] compiles in this
    /// process.
    pub compiler: Compiler,
    /// Limits of a compiling child process.
    pub compile_limits: CompileLimits,
    /// Maximum number of concurrent compilations; further ones wait.
    pub compile_jobs: usize,
    /// Maximum number of components waiting to be compiled; further ones are rejected with [`LoadError::Busy`]. The
    /// caller holds each of them in memory.
    pub compile_queue: usize,
    /// Listener for compilations, which can take seconds. Called from any thread.
    pub on_compile: Option<Arc<CompileListener>>,
    /// Network for HTTP requests of guests that a policy has allowed.
    pub network: Arc<dyn Network>,
    /// Store of the guests' buckets (`wasi:keyvalue`). Without it there are none, whatever a policy grants.
    pub buckets: Option<Arc<dyn KeyValueStore>>,
    /// Additional CA certificates (X.509, DER) that are trusted for HTTPS, such as a company's own, beside Mozilla's
    /// and those of the system.
    pub trusted_roots: Vec<Vec<u8>>,
}

/// Listener for events of compilation.
pub type CompileListener = dyn Fn(CompileEvent<'_>) + Send + Sync;

/// Event of the compilation of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompileEvent<'a> {
    /// Compilation starts.
    Started {
        /// Label of the component.
        label: &'a str,
        /// Size in bytes.
        size: u64,
    },
    /// Compilation has ended, successfully or not.
    Finished {
        /// Label of the component.
        label: &'a str,
        /// Duration of the compilation.
        took: Duration,
    },
}

/// Counters of expensive operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Number of components compiled.
    pub compiled: u64,
    /// Number of components whose code came from the cache.
    pub from_cache: u64,
    /// Number of components whose definitions were read.
    pub definitions_read: u64,
}

/// Runs components. One per process is enough, and types of two are never mixed. Clones share everything.
#[derive(Clone)]
pub struct Sandbox(Arc<Shared>);

struct Shared {
    cells: Arc<CellRunner>,
    transport: Transport,
    engines: Engines,
    cache: Option<Arc<Cache>>,
    cache_error: Option<CacheError>,
    compile_jobs: Semaphore,
    /// One permit for each component that is compiled or waits for it.
    compile_places: Semaphore,
    options: SandboxOptions,
    compiled: AtomicU64,
    from_cache: AtomicU64,
    definitions_read: AtomicU64,
}

impl Default for SandboxOptions {
    fn default() -> Self {
        Self {
            cache_dir: None,
            slots: 256,
            memory: 4 << 30,
            open_files: 512,
            max_component_bytes: 64 << 20,
            optimize: true,
            compiler: Compiler::default(),
            compile_limits: CompileLimits::default(),
            compile_jobs: 2,
            compile_queue: 64,
            on_compile: None,
            network: Arc::new(HostNetwork),
            buckets: None,
            trusted_roots: Vec::new(),
        }
    }
}

impl Sandbox {
    /// Starts the engine.
    ///
    /// An unusable or untrusted cache directory is ignored; [`Sandbox::cache_error`] returns the reason.
    ///
    /// # Errors
    /// If the engine does not start on this machine.
    pub fn new(options: SandboxOptions) -> Result<Self, EngineError> {
        let engines = Engines::start(options.slots, options.optimize)?;
        let (cache, cache_error) = match options.cache_dir.as_deref().map(Cache::open).transpose() {
            Ok(cache) => (cache.map(Arc::new), None),
            Err(error) => (None, Some(error)),
        };
        let slots = if engines.sequential().has_pool {
            options.slots as usize
        } else {
            Semaphore::MAX_PERMITS
        };
        let transport = Transport::new(options.network.clone(), &options.trusted_roots);
        let jobs = options.compile_jobs.clamp(1, Semaphore::MAX_PERMITS);
        Ok(Self(Arc::new(Shared {
            transport,
            cells: Arc::new(CellRunner {
                slots: Arc::new(Semaphore::new(slots)),
                lasting: Arc::new(Semaphore::new((slots / 2).max(1))),
                memory: MemoryPool::new(options.memory),
                files: FilePool::new(options.open_files),
                buckets: options.buckets.clone(),
                scheduler: OnceLock::new(),
            }),
            engines,
            cache,
            cache_error,
            compile_jobs: Semaphore::new(jobs),
            compile_places: Semaphore::new(
                jobs.saturating_add(options.compile_queue)
                    .min(Semaphore::MAX_PERMITS),
            ),
            options,
            compiled: AtomicU64::new(0),
            from_cache: AtomicU64::new(0),
            definitions_read: AtomicU64::new(0),
        })))
    }

    /// Loads a component: checks it, compiles it or takes its code from the cache, and reads its definitions. `label`
    /// is a display name, such as the file name. Requires a tokio runtime with time enabled.
    ///
    /// # Errors
    /// [`LoadError`] with the reason; [`LoadError::hint`] suggests a remedy.
    pub async fn load(&self, label: &str, bytes: &[u8]) -> Result<Component, LoadError> {
        self.load_tools(Source {
            label,
            bytes: Bytes::Given(bytes),
            digest: None,
            compiler: &self.0.options.compiler,
        })
        .await
    }

    /// Returns the identity and the definitions of a component, from the cache if it was loaded before: its code is not
    /// read then.
    ///
    /// # Errors
    /// As [`Sandbox::load`].
    pub async fn describe(&self, label: &str, bytes: &[u8]) -> Result<Description, LoadError> {
        self.describe_tools(Source {
            label,
            bytes: Bytes::Given(bytes),
            digest: None,
            compiler: &self.0.options.compiler,
        })
        .await
    }

    /// Returns the identity and the definitions of a component that is part of the program itself, as
    /// [`Sandbox::describe`] and [`Sandbox::load_trusted`].
    ///
    /// # Errors
    /// As [`Sandbox::load`].
    pub async fn describe_trusted(
        &self,
        label: &str,
        component: &dyn TrustedComponent,
    ) -> Result<Description, LoadError> {
        self.describe_tools(trusted(label, component)).await
    }

    /// Returns the identity and the definitions of a component if they are in the cache: as [`Sandbox::describe`], but never
    /// compiles or runs anything.
    ///
    /// # Errors
    /// [`LoadError`] if it is larger than allowed, or refused since.
    pub async fn describe_known(&self, label: &str, bytes: &[u8]) -> Result<Option<Description>, LoadError> {
        let shared = &self.0;
        let mut source = Source {
            label,
            bytes: Bytes::Given(bytes),
            digest: None,
            compiler: &shared.options.compiler,
        };
        let digest = shared.digest(&source).await?;
        if !shared.has_shape(&source, digest) {
            return Ok(None);
        }
        source.digest = Some(digest);
        let examined = shared.examine(&source, Role::Tools).await?;
        self.known(&examined)
    }

    async fn describe_tools(&self, source: Source<'_>) -> Result<Description, LoadError> {
        let examined = self.0.examine(&source, Role::Tools).await?;
        if let Some(description) = self.known(&examined)? {
            return Ok(description);
        }
        let source = Source {
            digest: Some(examined.identity.digest),
            ..source
        };
        Ok(self.load_tools(source).await?.description())
    }

    /// Returns the description of a component whose definitions are in the cache.
    fn known(&self, examined: &Examined) -> Result<Option<Description>, LoadError> {
        if !examined.is_known {
            return Ok(None);
        }
        let shared = &self.0;
        let exports = &examined.identity.exports;
        let specs = if !Role::Tools.is_among(exports) && program::is_among(exports) {
            vec![program::spec(&examined.identity.label)]
        } else {
            let stored =
                (shared.cache.as_ref()).and_then(|cache| cache.definitions(&shared.entry_of(examined)));
            let Some(stored) = stored else {
                return Ok(None);
            };
            definitions::checked(stored)?
        };
        Ok(Some(Description {
            identity: examined.identity.clone(),
            specs,
        }))
    }

    async fn load_tools(&self, source: Source<'_>) -> Result<Component, LoadError> {
        let examined = self.0.examine(&source, Role::Tools).await?;
        // Without its type, which would be part of the futures of all who load something.
        let loading: BoxFuture<'_, _> = Box::pin(self.load_examined(source, examined, None));
        loading.await
    }

    /// Loads a component that was examined, with these tools if they are known.
    async fn load_examined(
        &self,
        source: Source<'_>,
        examined: Examined,
        specs: Option<Vec<Arc<ToolSpec>>>,
    ) -> Result<Component, LoadError> {
        let shared = &self.0;
        let bytes = source.bytes;
        let found = shared.link(source, examined).await?;
        let mismatch = |e: wasmtime::Error| LoadError::ContractMismatch {
            source: shared_error(e),
        };
        let exports = &found.base.identity.exports;
        let context = ContextExports::of(exports, &found.linked).map_err(mismatch)?;
        let code = match (Role::Tools.is_among(exports), program::is_among(exports)) {
            (true, _) => Code::Tools(ProviderPre::new(found.linked).map_err(mismatch)?),
            (false, true) => Code::Program(Program::new(found.linked, exports).map_err(mismatch)?),
            (false, false) => {
                let component = found.linked.component().clone();
                Code::Functions(Functions::of(&component, found.linked, exports)?)
            }
        };
        if let Code::Program(_) = &code {
            // Its definition has its file name, and is in no cache.
            let specs = vec![program::spec(&found.base.identity.label)];
            return Ok(Component(Arc::new(Loaded {
                base: found.base,
                code,
                specs,
                exports: ContextExports::default(),
            })));
        }
        let specs = match specs {
            Some(specs) => specs,
            None => self.define(&found.base, &found.entry, &code, bytes).await?,
        };
        Ok(Component(Arc::new(Loaded {
            base: found.base,
            code,
            specs,
            exports: context,
        })))
    }

    /// Returns the definitions of the tools of a component that is no program, from the cache or the component.
    async fn define(
        &self,
        base: &Base,
        entry: &EntryName,
        code: &Code,
        bytes: Bytes<'_>,
    ) -> Result<Vec<Arc<ToolSpec>>, LoadError> {
        let cache = self.0.cache.as_ref();
        if let Some(stored) = cache.and_then(|cache| cache.definitions(entry)) {
            return definitions::checked(stored);
        }
        let stored = match code {
            Code::Tools(pre) => self.0.ask(base, pre, Ask).await?,
            Code::Functions(functions) => functions.define(&bytes.read()),
            Code::Program(_) | Code::Later(_) => Vec::new(),
        };
        let specs = definitions::check(stored.clone())?;
        if let Some(cache) = cache {
            cache.keep_definitions(entry, &stored);
        }
        Ok(specs)
    }

    /// Loads a component that is a hook, as [`Sandbox::load`] loads one with tools.
    ///
    /// # Errors
    /// As [`Sandbox::load`]; [`LoadError::NotAHook`] if it is not a hook.
    pub async fn load_hook(&self, label: &str, bytes: &[u8]) -> Result<HookComponent, LoadError> {
        let shared = &self.0;
        let source = Source {
            label,
            bytes: Bytes::Given(bytes),
            digest: None,
            compiler: &shared.options.compiler,
        };
        let examined = shared.examine(&source, Role::Hook).await?;
        let found = shared.link(source, examined).await?;
        let mismatch = |e: wasmtime::Error| LoadError::ContractMismatch {
            source: shared_error(e),
        };
        let exports = &found.base.identity.exports;
        let pre = LinkedHook::new(found.linked, exports).map_err(mismatch)?;
        let known = shared.cache.as_ref().and_then(|cache| cache.hook(&found.entry));
        let (claims, is_known) = match known {
            Some(claims) => (claims, true),
            None => (shared.ask(&found.base, &pre, hook::Ask).await?, false),
        };
        let spec = claims.clone().check()?;
        if let (Some(cache), false) = (&shared.cache, is_known) {
            cache.keep_hook(&found.entry, &claims);
        }
        Ok(HookComponent(Arc::new(LoadedHook {
            base: found.base,
            pre,
            spec,
        })))
    }

    /// Returns the reason why the cache directory is not used, if any.
    pub fn cache_error(&self) -> Option<&CacheError> {
        self.0.cache_error.as_ref()
    }

    /// Starts a compiling process and returns how the kernel confines it. `None` if components are compiled in this
    /// process.
    ///
    /// # Errors
    /// If the process does not start or does not answer.
    pub async fn compiler_isolation(&self) -> Result<Option<CompilerIsolation>, LoadError> {
        match &self.0.options.compiler {
            Compiler::InProcess => Ok(None),
            Compiler::Child(command) => compile::isolation_of_child(command, &self.0.options.compile_limits)
                .await
                .map(Some),
        }
    }

    /// Returns `true` if calls take their memory from a pool. Without it, each call costs about 20 microseconds more.
    pub fn has_pool(&self) -> bool {
        self.0.engines.sequential().has_pool
    }

    /// Returns the counters of expensive operations.
    pub fn statistics(&self) -> Statistics {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Statistics {
            compiled: of(&self.0.compiled),
            from_cache: of(&self.0.from_cache),
            definitions_read: of(&self.0.definitions_read),
        }
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox")
            .field("has_pool", &self.has_pool())
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SandboxOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxOptions")
            .field("cache_dir", &self.cache_dir)
            .field("slots", &self.slots)
            .field("memory", &self.memory)
            .field("open_files", &self.open_files)
            .field("max_component_bytes", &self.max_component_bytes)
            .field("optimize", &self.optimize)
            .field("compiler", &self.compiler)
            .field("compile_limits", &self.compile_limits)
            .field("compile_jobs", &self.compile_jobs)
            .field("compile_queue", &self.compile_queue)
            .field("buckets", &self.buckets.is_some())
            .field("trusted_roots", &self.trusted_roots.len())
            .finish_non_exhaustive()
    }
}
