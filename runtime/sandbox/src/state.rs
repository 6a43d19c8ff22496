//! What one cell holds beside the guest, and what its linker offers.

use std::sync::Arc;

use toolcell_core::tool::{CallObserver, LogSource};
use toolcell_core::{KeyValueStore, Policy, ToolError};
use wasmtime::Engine;
use wasmtime::component::{HasSelf, Linker, ResourceTable};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::contract::{log, progress};
use crate::egress::{CallEgress, Egress, MAX_REQUEST_HEADERS};
use crate::files::{self, Files, FilesView};
use crate::keyvalue::{self, Buckets, KeyValueView};
use crate::ledger::Ledger;
use crate::limiter::{Budget, Limiter};
use crate::sockets::{self, Denied};
use crate::voice::{Captured, Voice};

/// Most random bytes of one request. A key has 32.
const MAX_RANDOM: u64 = 1 << 20;

/// The state of one store.
pub(crate) struct CellState {
    table: ResourceTable,
    wasi: WasiCtx,
    http: WasiHttpCtx,
    egress: CallEgress,
    files: Files,
    buckets: Buckets,
    pub(crate) limiter: Limiter,
    pub(crate) ledger: Ledger,
    pub(crate) voice: Voice,
}

impl CellState {
    /// The state of a new cell: everything that the policy grants, and nothing else.
    pub(crate) fn new(
        policy: &Policy,
        egress: &Arc<Egress>,
        buckets: Option<Arc<dyn KeyValueStore>>,
        budget: Budget,
        ledger: Ledger,
        observer: Arc<dyn CallObserver>,
    ) -> Result<Self, ToolError> {
        let voice = Voice::new(observer, policy.limits.log, egress.redactor());
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
        let files = Files::open(&policy.grants.dirs, &policy.limits, &ledger).map_err(|(grant, error)| {
            ToolError::Unavailable {
                message: format!("the directory `{}` cannot be opened: {error}", grant.guest),
            }
        })?;
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(MAX_REQUEST_HEADERS);
        let mut table = ResourceTable::new();
        table.set_max_capacity(policy.limits.handles as usize);
        Ok(Self {
            table,
            wasi: wasi.build(),
            http,
            egress: egress.call(ledger.clone()),
            files,
            buckets: Buckets::new(buckets, policy, ledger.clone()),
            limiter: Limiter::new(&policy.limits, budget),
            ledger,
            voice,
        })
    }

    fn files(&mut self) -> FilesView<'_> {
        FilesView {
            files: &mut self.files,
            table: &mut self.table,
        }
    }

    fn keyvalue(&mut self) -> KeyValueView<'_> {
        KeyValueView {
            buckets: &mut self.buckets,
            table: &mut self.table,
        }
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
            hooks: &mut self.egress,
        }
    }
}

/// The linker of every cell: WASI 0.2, `wasi:keyvalue`, and the log and progress of the contract.
pub(crate) fn linker(engine: &Engine) -> wasmtime::Result<Linker<CellState>> {
    let mut linker = Linker::new(engine);
    linker.allow_shadowing(true);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    sockets::add_to_linker(&mut linker)?;
    files::add_to_linker(&mut linker, CellState::files)?;
    keyvalue::add_to_linker(&mut linker, CellState::keyvalue)?;
    log::add_to_linker::<_, HasSelf<Voice>>(&mut linker, |state: &mut CellState| &mut state.voice)?;
    progress::add_to_linker::<_, HasSelf<Voice>>(&mut linker, |state: &mut CellState| &mut state.voice)?;
    Ok(linker)
}
