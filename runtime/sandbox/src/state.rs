//! What one cell holds beside the guest, and what its linker offers.

use std::sync::Arc;

use toolcell_core::tool::{CallObserver, LogSource};
use toolcell_core::{Policy, ToolError};
use wasmtime::Engine;
use wasmtime::component::{HasSelf, Linker, ResourceTable};
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::{
    RequestOptions, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks, WasiHttpView,
};

use crate::contract::{log, progress};
use crate::ledger::Ledger;
use crate::limiter::Limiter;
use crate::sockets::{self, Denied};
use crate::voice::{Captured, Voice};

/// Most random bytes of one request. A key has 32.
const MAX_RANDOM: u64 = 1 << 20;

/// The state of one store.
pub(crate) struct CellState {
    table: ResourceTable,
    wasi: WasiCtx,
    http: WasiHttpCtx,
    hooks: DeniedHttp,
    pub(crate) limiter: Limiter,
    pub(crate) ledger: Ledger,
    pub(crate) voice: Voice,
}

impl CellState {
    /// The state of a new cell: everything that the policy grants, and nothing else.
    pub(crate) fn new(
        policy: &Policy,
        ledger: Ledger,
        observer: Arc<dyn CallObserver>,
    ) -> Result<Self, ToolError> {
        let voice = Voice::new(observer, policy.limits.log);
        let mut wasi = WasiCtx::builder();
        wasi.stdout(Captured {
            voice: voice.clone(),
            source: LogSource::Stdout,
        })
        .stderr(Captured {
            voice: voice.clone(),
            source: LogSource::Stderr,
        })
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .max_random_size(MAX_RANDOM);
        for (name, value) in &policy.grants.env {
            wasi.env(name, value);
        }
        for dir in &policy.grants.dirs {
            let perms = if dir.access.can_change() {
                FsPerms::ReadWrite
            } else {
                FsPerms::ReadOnly
            };
            wasi.preopened_dir(&dir.host, &dir.guest, perms)
                .map_err(|error| ToolError::Unavailable {
                    message: format!("the directory `{}` cannot be opened: {error:#}", dir.guest),
                })?;
        }
        let mut table = ResourceTable::new();
        table.set_max_capacity(policy.limits.handles as usize);
        Ok(Self {
            table,
            wasi: wasi.build(),
            http: WasiHttpCtx::new(),
            hooks: DeniedHttp {
                ledger: ledger.clone(),
            },
            limiter: Limiter::new(&policy.limits),
            ledger,
            voice,
        })
    }

    pub(crate) fn denied(&mut self) -> Denied<'_> {
        Denied { ledger: &self.ledger }
    }
}

impl WasiView for CellState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

impl WasiHttpView for CellState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView {
            ctx: &mut self.http,
            table: &mut self.table,
            hooks: &mut self.hooks,
        }
    }
}

/// The linker of every cell: WASI 0.2, and the log and progress of the contract.
pub(crate) fn linker(engine: &Engine) -> wasmtime::Result<Linker<CellState>> {
    let mut linker = Linker::new(engine);
    linker.allow_shadowing(true);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    sockets::add_to_linker(&mut linker)?;
    log::add_to_linker::<_, HasSelf<Voice>>(&mut linker, |state: &mut CellState| &mut state.voice)?;
    progress::add_to_linker::<_, HasSelf<Voice>>(&mut linker, |state: &mut CellState| &mut state.voice)?;
    Ok(linker)
}

/// Sends no request.
struct DeniedHttp {
    ledger: Ledger,
}

type Sending = Box<
    dyn Future<
            Output = wasmtime_wasi_http::Result<(
                http::Response<WasiBody>,
                Box<dyn Future<Output = Result<(), wasmtime_wasi_http::Error>> + Send>,
            )>,
        > + Send,
>;

impl WasiHttpHooks for DeniedHttp {
    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        _options: Option<RequestOptions>,
        _sent: Box<dyn Future<Output = Result<(), wasmtime_wasi_http::Error>> + Send>,
    ) -> Sending {
        let host = request.uri().host().unwrap_or_default().to_owned();
        self.ledger
            .denial("http", host.clone(), Some(format!("http={host}")));
        Box::new(async { Err(ErrorCode::HttpRequestDenied.into()) })
    }
}
