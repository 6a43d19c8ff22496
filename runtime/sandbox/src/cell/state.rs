//! What one cell holds beside the guest, and what its linker offers.

use std::sync::Arc;

use toolcell_core::tool::{CallObserver, LogSource};
use toolcell_core::{KeyValueStore, Policy, ToolError};
use wasmtime::Engine;
use wasmtime::component::{HasSelf, Linker, ResourceTable};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::bindings::{log, progress};
use crate::cell::limiter::Limiter;
use crate::cell::memory::{MemoryAccount, Refusal, Reservation};
use crate::cell::objects;
use crate::cell::output::{GuestOutput, GuestStdio};
use crate::cell::poll::{self, MAX_RANDOM, PollView, RandomView};
use crate::cell::receipt::ReceiptRecorder;
use crate::cell::sockets::{self, Denied};
use crate::egress::{CallEgress, Egress, MAX_REQUEST_HEADERS};
use crate::files::{self, Files, FilesView};
use crate::keyvalue::{self, Buckets, KeyValueView};

/// The state of one store.
///
/// Every function of the host begins by taking a view of it; that is when the objects in its table are charged.
pub(crate) struct CellState {
    table: ResourceTable,
    /// Takes the place of the table once the objects in it come to more than the call may have: it holds nothing and
    /// takes nothing, so that whatever the guest asks for next ends the call.
    closed: ResourceTable,
    pub(crate) account: MemoryAccount,
    /// What the last function of the host gave to the guest. It is in the memory of the host until it is written to that
    /// of the guest, whose allocator may take its time; nobody tells when, so that it counts until the guest is back.
    in_flight: Reservation,
    /// For the granted variables of the environment.
    _environment: Reservation,
    wasi: WasiCtx,
    http: WasiHttpCtx,
    egress: CallEgress,
    files: Files,
    buckets: Buckets,
    pub(crate) limiter: Limiter,
    pub(crate) ledger: ReceiptRecorder,
    pub(crate) voice: GuestOutput,
}

impl CellState {
    /// The state of a new cell: everything that the policy grants, and nothing else.
    pub(crate) fn new(
        policy: &Policy,
        egress: &Arc<Egress>,
        buckets: Option<Arc<dyn KeyValueStore>>,
        account: MemoryAccount,
        ledger: ReceiptRecorder,
        observer: Arc<dyn CallObserver>,
    ) -> Result<Self, ToolError> {
        let voice = GuestOutput::new(observer, policy.limits.log, egress.redactor());
        let mut wasi = WasiCtx::builder();
        wasi.stdout(GuestStdio {
            voice: voice.clone(),
            source: LogSource::Stdout,
        })
        .stderr(GuestStdio {
            voice: voice.clone(),
            source: LogSource::Stderr,
        })
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .max_random_size(MAX_RANDOM);
        // Once for the cell, and once for the answer to a guest that asks.
        let environment: usize = policy
            .grants
            .env
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        let environment = account
            .reserve(2 * environment as u64)
            .map_err(Refusal::into_error)?;
        for (name, value) in &policy.grants.env {
            wasi.env(name, value);
        }
        let files = Files::open(&policy.grants, &policy.limits, &ledger).map_err(|(grant, error)| {
            ToolError::Unavailable {
                message: format!("the directory `{}` cannot be opened: {error}", grant.guest),
            }
        })?;
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(MAX_REQUEST_HEADERS);
        let mut table = ResourceTable::new();
        table.set_max_capacity(policy.limits.handles as usize);
        let mut closed = ResourceTable::new();
        closed.set_max_capacity(0);
        Ok(Self {
            table,
            closed,
            in_flight: account.empty(),
            _environment: environment,
            wasi: wasi.build(),
            http,
            egress: egress.call(ledger.clone()),
            files,
            buckets: Buckets::new(buckets, policy, ledger.clone()),
            limiter: Limiter::new(&policy.limits, account.clone()),
            account,
            ledger,
            voice,
        })
    }

    /// Charges what the table holds, and says whether the call has memory for it.
    pub(crate) fn settle(&mut self) -> bool {
        self.in_flight.clear();
        self.account.set_objects(objects::price_of_all(&mut self.table))
    }

    fn files(&mut self) -> FilesView<'_> {
        let open = self.settle();
        FilesView {
            files: &mut self.files,
            table: if open { &mut self.table } else { &mut self.closed },
        }
    }

    fn keyvalue(&mut self) -> KeyValueView<'_> {
        let open = self.settle();
        KeyValueView {
            buckets: &mut self.buckets,
            table: if open { &mut self.table } else { &mut self.closed },
            in_flight: &mut self.in_flight,
        }
    }

    fn poll(&mut self) -> PollView<'_> {
        let open = self.settle();
        PollView {
            table: if open { &mut self.table } else { &mut self.closed },
            in_flight: &mut self.in_flight,
        }
    }

    fn random(&mut self) -> RandomView<'_> {
        self.settle();
        RandomView {
            random: self.wasi.random(),
            in_flight: &mut self.in_flight,
        }
    }

    pub(crate) fn denied(&mut self) -> Denied<'_> {
        Denied { ledger: &self.ledger }
    }
}

impl WasiView for CellState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let open = self.settle();
        WasiCtxView {
            ctx: &mut self.wasi,
            table: if open { &mut self.table } else { &mut self.closed },
        }
    }
}

impl WasiHttpView for CellState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        let open = self.settle();
        WasiHttpCtxView {
            ctx: &mut self.http,
            table: if open { &mut self.table } else { &mut self.closed },
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
    poll::add_to_linker(&mut linker, CellState::poll, CellState::random)?;
    files::add_to_linker(&mut linker, CellState::files)?;
    keyvalue::add_to_linker(&mut linker, CellState::keyvalue)?;
    log::add_to_linker::<_, HasSelf<GuestOutput>>(&mut linker, |state: &mut CellState| &mut state.voice)?;
    progress::add_to_linker::<_, HasSelf<GuestOutput>>(&mut linker, |state: &mut CellState| {
        &mut state.voice
    })?;
    Ok(linker)
}
