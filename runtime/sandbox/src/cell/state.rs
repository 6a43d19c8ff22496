//! Host state of one cell, and the imports that its linker provides.

use std::sync::Arc;

use bytes::Bytes;
use toolcell_core::tool::{CallObserver, LogSource};
use toolcell_core::{Limits, Policy};
use wasmtime::Engine;
use wasmtime::component::{HasSelf, Linker, ResourceTable};
use wasmtime_wasi::clocks::{WasiClocks, WasiClocksCtx, WasiClocksCtxView};
use wasmtime_wasi::p2::bindings::clocks::{monotonic_clock, wall_clock};
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::p3::bindings::clocks::{
    monotonic_clock as async_monotonic_clock, system_clock as async_system_clock, types as async_clock_types,
};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::bindings::{log, progress};
use crate::cell::CellRunner;
use crate::cell::environment::{self, EnvironmentView};
use crate::cell::fuel::UnknownFuel;
use crate::cell::memory::limiter::Limiter;
use crate::cell::memory::objects;
use crate::cell::memory::{MemoryAccount, OutOfMemory, Reservation};
use crate::cell::output::{GuestOutput, GuestStdio};
use crate::cell::poll::{self, MAX_RANDOM, PollView, RandomView};
use crate::cell::receipt::ReceiptRecorder;
use crate::cell::sockets::{self, Denied};
use crate::egress::{CallEgress, Egress, MAX_REQUEST_HEADERS, add_error_code_to_linker};
use crate::engine::EngineKind;
use crate::files::{self, Files, FilesView};
use crate::keyvalue::{self, Buckets, KeyValueView};
use crate::program::capture::Capture;
use crate::program::service::Pipes;

/// State of one store.
///
/// Every host function begins by taking a view of it, which charges the objects in its table.
pub(crate) struct CellState {
    table: ResourceTable,
    /// Replaces the table once its objects exceed the limit of the call: it is empty and accepts nothing, so that the
    /// next operation of the guest ends the call.
    closed: ResourceTable,
    pub(crate) account: MemoryAccount,
    /// Data returned by the last host function. It is in host memory until it is copied to the guest, whose allocator
    /// may take time; the host is not notified, so that it counts until the guest's next call.
    in_flight: Reservation,
    policy: Arc<Policy>,
    /// Created by the first host function that needs it: it takes a fifth of the time of a small call.
    wasi: Option<Box<WasiCtx>>,
    /// Created by the first function of a clock. All clocks are these, and those of `wasi` are never read.
    clocks: Option<WasiClocksCtx>,
    http: WasiHttpCtx,
    egress: Arc<Egress>,
    /// Created by the first host function that needs it, like the two below: most calls need none of them.
    call_egress: Option<Box<CallEgress>>,
    files: Option<Box<Files>>,
    buckets: Option<Box<Buckets>>,
    runner: Arc<CellRunner>,
    limits: Limits,
    /// Arguments and standard input of a program.
    program: Option<ProgramInput>,
    pub(crate) limiter: Limiter,
    pub(crate) unknown_fuel: UnknownFuel,
    pub(crate) recorder: ReceiptRecorder,
    pub(crate) output: GuestOutput,
}

/// Input of a program.
struct ProgramInput {
    arguments: Vec<String>,
    streams: ProgramStreams,
    _memory: Reservation,
}

/// Standard input of a program, and its standard output if that is not kept.
enum ProgramStreams {
    /// The whole input.
    Given(Bytes),
    /// Of a program that runs on, until its context takes them.
    Pipes(Option<Pipes>),
}

impl CellState {
    /// Creates the state of a cell: everything that the policy grants, and nothing else.
    pub(crate) fn new(
        policy: &Arc<Policy>,
        limits: &Limits,
        egress: &Arc<Egress>,
        runner: &Arc<CellRunner>,
        account: &MemoryAccount,
        recorder: &ReceiptRecorder,
        observer: Arc<dyn CallObserver>,
    ) -> Self {
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(MAX_REQUEST_HEADERS);
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.handles as usize);
        let mut closed = ResourceTable::new();
        closed.set_max_capacity(0);
        Self {
            table,
            closed,
            in_flight: account.empty(),
            policy: policy.clone(),
            wasi: None,
            clocks: None,
            http,
            egress: egress.clone(),
            call_egress: None,
            files: None,
            buckets: None,
            runner: runner.clone(),
            limits: limits.clone(),
            program: None,
            limiter: Limiter::new(limits, account.clone()),
            unknown_fuel: None,
            account: account.clone(),
            recorder: recorder.clone(),
            output: GuestOutput::new(observer, limits.log, egress.redactor()),
        }
    }

    /// Gives a program its arguments, of which the first is its name, and its standard input, and keeps up to `output`
    /// bytes of its streams instead of logging them.
    pub(crate) fn start_program(
        &mut self,
        arguments: Vec<String>,
        stdin: Bytes,
        output: u64,
    ) -> Result<(), OutOfMemory> {
        let texts: usize = arguments.iter().map(String::len).sum();
        let bytes = texts + size_of_val(arguments.as_slice()) + stdin.len();
        let memory = self.account.reserve(bytes as u64)?;
        self.output.capture(Capture::new(output, self.account.empty()));
        self.program = Some(ProgramInput {
            arguments,
            streams: ProgramStreams::Given(stdin),
            _memory: memory,
        });
        Ok(())
    }

    /// Gives a program that runs on its arguments, of which the first is its name, and its streams, whose buffers take
    /// `buffers` bytes. Its standard error is logged.
    pub(crate) fn start_service(
        &mut self,
        arguments: Vec<String>,
        pipes: Pipes,
        buffers: u64,
    ) -> Result<(), OutOfMemory> {
        let texts: usize = arguments.iter().map(String::len).sum();
        let bytes = texts + size_of_val(arguments.as_slice());
        let memory = self.account.reserve(bytes as u64 + buffers)?;
        self.program = Some(ProgramInput {
            arguments,
            streams: ProgramStreams::Pipes(Some(pipes)),
            _memory: memory,
        });
        Ok(())
    }

    /// Charges the content of the table, and returns `false` if the call lacks memory for it.
    pub(crate) fn settle(&mut self) -> bool {
        self.in_flight.clear();
        self.account.set_objects(objects::price_of_all(&mut self.table))
    }

    fn files(&mut self) -> FilesView<'_> {
        let open = self.settle();
        FilesView {
            files: self.files.get_or_insert_with(|| {
                let (policy, pool) = (self.policy.clone(), &self.runner.files);
                Box::new(Files::new(policy, &self.limits, pool, &self.recorder))
            }),
            table: if open { &mut self.table } else { &mut self.closed },
        }
    }

    fn keyvalue(&mut self) -> KeyValueView<'_> {
        let open = self.settle();
        KeyValueView {
            buckets: self.buckets.get_or_insert_with(|| {
                let (store, policy) = (self.runner.buckets.clone(), self.policy.clone());
                let limit = self.limits.keyvalue_bytes;
                Box::new(Buckets::new(store, policy, limit, self.recorder.clone()))
            }),
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

    fn clocks(&mut self) -> WasiClocksCtxView<'_> {
        let open = self.settle();
        WasiClocksCtxView {
            ctx: self.clocks.get_or_insert_default(),
            table: if open { &mut self.table } else { &mut self.closed },
        }
    }

    fn random(&mut self) -> RandomView<'_> {
        self.settle();
        RandomView {
            random: wasi(&mut self.wasi, &self.output, self.program.as_mut()).random(),
            in_flight: &mut self.in_flight,
        }
    }

    fn environment(&mut self) -> EnvironmentView<'_> {
        self.settle();
        EnvironmentView {
            policy: &self.policy,
            arguments: self.program.as_ref().map_or(&[], |program| &program.arguments),
            in_flight: &mut self.in_flight,
        }
    }

    fn denied(&mut self) -> Denied<'_> {
        Denied {
            recorder: &self.recorder,
        }
    }
}

impl WasiView for CellState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let open = self.settle();
        WasiCtxView {
            ctx: wasi(&mut self.wasi, &self.output, self.program.as_mut()),
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
            hooks: &mut **(self.call_egress)
                .get_or_insert_with(|| Box::new(self.egress.call(self.recorder.clone()))),
        }
    }
}

/// Returns the context of the parts of WASI that the engine implements.
fn wasi<'a>(
    context: &'a mut Option<Box<WasiCtx>>,
    output: &GuestOutput,
    program: Option<&mut ProgramInput>,
) -> &'a mut WasiCtx {
    context.get_or_insert_with(|| {
        let stream = |source| GuestStdio {
            output: output.clone(),
            source,
        };
        let mut wasi = WasiCtx::builder();
        wasi.stdout(stream(LogSource::Stdout))
            .stderr(stream(LogSource::Stderr))
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false)
            .max_random_size(MAX_RANDOM);
        match program.map(|program| &mut program.streams) {
            Some(ProgramStreams::Given(stdin)) => _ = wasi.stdin(MemoryInputPipe::new(stdin.clone())),
            Some(ProgramStreams::Pipes(pipes)) => {
                if let Some(Pipes { stdin, stdout }) = pipes.take() {
                    wasi.stdin(stdin).stdout(stdout);
                }
            }
            None => {}
        }
        Box::new(wasi.build())
    })
}

/// Creates the linker of the cells of an engine: WASI 0.2, `wasi:keyvalue`, `wasi:config`, and the log and progress interfaces;
/// in the concurrent engine also what WASI 0.3 has without files and network.
pub(crate) fn linker(engine: &Engine, kind: EngineKind) -> wasmtime::Result<Linker<CellState>> {
    let mut linker = Linker::new(engine);
    linker.allow_shadowing(true);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    add_error_code_to_linker(&mut linker, |state: &mut CellState| &mut state.table)?;
    sockets::add_to_linker(&mut linker, CellState::denied)?;
    environment::add_to_linker(&mut linker, CellState::environment)?;
    environment::add_config_to_linker(&mut linker, CellState::environment)?;
    poll::add_to_linker(&mut linker, CellState::poll, CellState::random)?;
    wall_clock::add_to_linker::<_, WasiClocks>(&mut linker, CellState::clocks)?;
    monotonic_clock::add_to_linker::<_, WasiClocks>(&mut linker, CellState::clocks)?;
    files::add_to_linker(&mut linker, CellState::files)?;
    keyvalue::add_to_linker(&mut linker, CellState::keyvalue)?;
    log::add_to_linker::<_, HasSelf<GuestOutput>>(&mut linker, |state: &mut CellState| &mut state.output)?;
    progress::add_to_linker::<_, HasSelf<GuestOutput>>(&mut linker, |state: &mut CellState| {
        &mut state.output
    })?;
    if kind == EngineKind::Concurrent {
        wasmtime_wasi::p3::cli::add_to_linker(&mut linker)?;
        async_clock_types::add_to_linker::<_, WasiClocks>(&mut linker, CellState::clocks)?;
        async_monotonic_clock::add_to_linker::<_, WasiClocks>(&mut linker, CellState::clocks)?;
        async_system_clock::add_to_linker::<_, WasiClocks>(&mut linker, CellState::clocks)?;
        wasmtime_wasi::p3::random::add_to_linker(&mut linker)?;
        environment::add_async_to_linker(&mut linker, CellState::environment)?;
        poll::add_async_to_linker(&mut linker, CellState::random)?;
    }
    Ok(linker)
}
