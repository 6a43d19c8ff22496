//! The cell: one call in one store, from instantiation to the receipt.

pub(crate) mod environment;
pub(crate) mod epoch;
pub(crate) mod failure;
pub(crate) mod fuel;
pub(crate) mod last_message;
pub(crate) mod memory;
pub(crate) mod output;
pub(crate) mod poll;
pub(crate) mod receipt;
pub(crate) mod scheduler;
pub(crate) mod sockets;
pub(crate) mod state;
mod within;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError};
use toolcell_core::tool::CallObserver;
use toolcell_core::{KeyValueStore, Limit, Limits, Policy, Receipt, ToolError};
use wasmtime::{Engine, Store};

use crate::bindings::{
    PromptProvider, PromptProviderPre, Provider, ProviderPre, ResourceProvider, ResourceProviderPre,
};
use crate::cell::fuel::FuelCounter;
use crate::cell::memory::{MemoryAccount, MemoryPool, OutOfMemory};
use crate::cell::receipt::ReceiptRecorder;
use crate::cell::scheduler::{CpuTimer, FairScheduler, Scheduled};
use crate::cell::state::CellState;
use crate::cell::within::Within;
use crate::egress::Egress;
use crate::engine::EngineKind;
use crate::files::FilePool;

/// Bytes that may pass between host and guest in one host call, in addition to the result: the maximum that WASI passes
/// at once.
pub(crate) const HOSTCALL_BASE: u64 = 1 << 20;

/// Maximum host memory of a task, thread, stream, future or set of the concurrent engine, in bytes. A call has at most as many
/// of them as handles. They are created without a function of the host, so that all of them are paid for in advance.
const TASK_OBJECT: u64 = 1 << 10;

/// State shared by all cells of a process.
pub(crate) struct CellRunner {
    /// One permit for each slot of the pools, which have equally many; unlimited without a pool.
    pub(crate) slots: Arc<Semaphore>,
    /// One permit for each slot that programs which run on may take at one time: half of them, so that the rest is left for
    /// calls, which end.
    pub(crate) lasting: Arc<Semaphore>,
    pub(crate) memory: MemoryPool,
    pub(crate) files: FilePool,
    /// Store of the guests' buckets, if any.
    pub(crate) buckets: Option<Arc<dyn KeyValueStore>>,
    /// Created by the first call, which runs in the runtime.
    pub(crate) scheduler: OnceLock<FairScheduler>,
}

/// A WIT world whose imports are linked and from which cells are instantiated.
pub(crate) trait LinkedWorld: Sync {
    /// Instance of the world.
    type Guest: Send + Sync;

    /// Returns the engine that its component was compiled for.
    fn engine(&self) -> &Engine;

    /// Creates an instance.
    fn instantiate(
        &self,
        store: &mut Store<CellState>,
    ) -> impl Future<Output = wasmtime::Result<Self::Guest>> + Send;
}

impl LinkedWorld for ProviderPre<CellState> {
    type Guest = Provider;

    fn engine(&self) -> &Engine {
        self.engine()
    }

    async fn instantiate(&self, store: &mut Store<CellState>) -> wasmtime::Result<Provider> {
        self.instantiate_async(store).await
    }
}

impl LinkedWorld for ResourceProviderPre<CellState> {
    type Guest = ResourceProvider;

    fn engine(&self) -> &Engine {
        self.engine()
    }

    async fn instantiate(&self, store: &mut Store<CellState>) -> wasmtime::Result<ResourceProvider> {
        self.instantiate_async(store).await
    }
}

impl LinkedWorld for PromptProviderPre<CellState> {
    type Guest = PromptProvider;

    fn engine(&self) -> &Engine {
        self.engine()
    }

    async fn instantiate(&self, store: &mut Store<CellState>) -> wasmtime::Result<PromptProvider> {
        self.instantiate_async(store).await
    }
}

/// Resources that one cell of a component takes before it runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Footprint {
    /// Number of pool slots.
    pub(crate) slots: u32,
    /// Host memory of its instances in bytes, in addition to the base cost of every cell.
    pub(crate) bytes: u64,
    /// Engine in which it runs.
    pub(crate) engine: EngineKind,
}

impl Footprint {
    /// Returns the host memory that a cell takes before it runs, in bytes.
    fn reserved(&self, limits: &Limits) -> u64 {
        let tasks = match self.engine {
            EngineKind::Sequential => 0,
            EngineKind::Concurrent => u64::from(limits.handles).saturating_mul(TASK_OBJECT),
        };
        self.bytes.saturating_add(tasks)
    }
}

/// Parameters of one call.
pub(crate) struct CellRequest<'a, W> {
    pub(crate) pre: &'a W,
    pub(crate) policy: &'a Arc<Policy>,
    /// Limits of the policy, capped by the remaining budget of the session.
    pub(crate) limits: Limits,
    /// HTTP grants of the policy, shared by its calls.
    pub(crate) egress: &'a Arc<Egress>,
    pub(crate) observer: Arc<dyn CallObserver>,
    pub(crate) footprint: Footprint,
    /// Size of the arguments, for the receipt.
    pub(crate) bytes_in: u64,
}

/// Operation on an instantiated guest.
pub(crate) trait GuestCall: Send {
    /// World of the guest.
    type World: LinkedWorld;
    /// Result of the operation.
    type Done: Send;

    /// Prepares the call before there is an instance.
    ///
    /// # Errors
    /// The error of the call.
    fn prepare(&mut self, _state: &mut CellState) -> Result<(), ToolError> {
        Ok(())
    }

    /// Calls the guest.
    fn call_guest(
        self,
        guest: &<Self::World as LinkedWorld>::Guest,
        store: &mut Store<CellState>,
    ) -> impl Future<Output = wasmtime::Result<Self::Done>> + Send;

    /// Returns the size of the result, for the receipt and the output limit.
    fn bytes_out(done: &Self::Done) -> u64;

    /// Completes a result that is within the output limit. The host memory for what is made of it counts as memory of the call.
    ///
    /// # Errors
    /// The error of the call.
    fn complete(
        done: Self::Done,
        _account: &MemoryAccount,
    ) -> impl Future<Output = Result<Self::Done, ToolError>> + Send {
        std::future::ready(Ok(done))
    }
}

/// Result of a cell and its receipt.
pub(crate) struct CellOutcome<T> {
    pub(crate) result: Result<T, ToolError>,
    pub(crate) receipt: Receipt,
}

impl CellRunner {
    /// Runs an operation in its own cell. Dropping the future ends the guest and everything that it waits for; the receipt
    /// is then reported to the observer.
    pub(crate) async fn run_cell<J: GuestCall>(
        self: &Arc<Self>,
        request: CellRequest<'_, J::World>,
        job: J,
    ) -> CellOutcome<J::Done> {
        let wall = request.limits.wall_time();
        let meter = CpuTimer::start();
        // From here on a receipt is always produced, also if this future is dropped.
        let account = MemoryAccount::new(request.limits.memory, self.memory.clone());
        let mut guard = ReceiptGuard {
            is_reported: false,
            slot: None,
            store: None,
            meter: &meter,
            recorder: ReceiptRecorder::new(&account, request.egress.redactor()),
            account,
            observer: request.observer.clone(),
            fuel: FuelCounter::new(request.limits.fuel),
        };
        guard.recorder.lock().bytes_in = request.bytes_in;
        let result = self.run_in_slot(request, job, &mut guard, wall).await;
        CellOutcome {
            result,
            receipt: guard.finish(),
        }
    }

    /// Waits for a slot, then runs the operation within the wall time.
    async fn run_in_slot<'a, J: GuestCall>(
        self: &'a Arc<Self>,
        request: CellRequest<'_, J::World>,
        job: J,
        guard: &mut ReceiptGuard<'a>,
        wall: Duration,
    ) -> Result<J::Done, ToolError> {
        // A timeout of nothing would still poll once, which is enough for a short call.
        if wall.is_zero() {
            return Err(ToolError::Limit {
                limit: Limit::WallTimeMs(0),
            });
        }
        guard.slot = Some(self.slot(request.footprint.slots, wall).await?);
        request.observer.check_start()?;
        let scheduler = self.scheduler.get_or_init(FairScheduler::of_this_runtime);
        let meter = guard.meter;
        let call = std::pin::pin!(Some(async {
            let result = self.run_in_store(request, job, guard).await;
            guard.close();
            result
        }));
        match Within::new(wall, Scheduled::new(call, meter, scheduler)).await {
            Some(result) => result,
            None => Err(ToolError::Limit {
                limit: Limit::WallTimeMs(millis(wall)),
            }),
        }
    }

    /// Waits for slots of the pool, at most for the wall time.
    async fn slot(&self, count: u32, wall: Duration) -> Result<SemaphorePermit<'_>, ToolError> {
        // Without a timer if there is a free one.
        match self.slots.try_acquire_many(count) {
            Ok(slot) => return Ok(slot),
            Err(TryAcquireError::Closed) => return Err(failure::busy()),
            Err(TryAcquireError::NoPermits) => {}
        }
        match tokio::time::timeout(wall, self.slots.acquire_many(count)).await {
            Ok(Ok(slot)) => Ok(slot),
            Ok(Err(_)) | Err(_) => Err(failure::busy()),
        }
    }

    async fn run_in_store<J: GuestCall>(
        self: &Arc<Self>,
        request: CellRequest<'_, J::World>,
        mut job: J,
        guard: &mut ReceiptGuard<'_>,
    ) -> Result<J::Done, ToolError> {
        let limits = &request.limits;
        let instances = guard.account.charge(request.footprint.reserved(limits));
        instances.map_err(OutOfMemory::into_error)?;
        let mut state = CellState::new(
            request.policy,
            limits,
            request.egress,
            self,
            &guard.account,
            &guard.recorder,
            request.observer,
        );
        job.prepare(&mut state)?;
        let store = guard.store.insert(Store::new(request.pre.engine(), state));
        store.limiter(|state| &mut state.limiter);
        guard
            .fuel
            .start(store)
            .expect("the engine counts fuel, see engine.rs");
        store.set_hostcall_fuel(saturating_usize(limits.output.saturating_add(HOSTCALL_BASE)));
        store.set_max_component_handles(limits.handles as usize);
        if let Some(tasks) = store.concurrent_resource_table() {
            tasks.set_max_capacity(limits.handles as usize);
        }

        let result = match request.pre.instantiate(&mut *store).await {
            Ok(guest) => job.call_guest(&guest, store).await,
            Err(error) => Err(error),
        };
        let done = result.map_err(|error| {
            guard.fuel.ended(&error);
            let state = store.data();
            if let Some(backtrace) = failure::backtrace(&error) {
                state.output.log_backtrace(backtrace);
            }
            let mut error = failure::of_engine(&error, &state.account, limits);
            if let ToolError::Crashed { output, .. } = &mut error {
                *output = state.output.last_message();
            }
            error
        })?;
        store.data_mut().settle();
        if let Some(refused) = guard.account.overdrawn() {
            return Err(refused.into_error());
        }
        let bytes_out = J::bytes_out(&done);
        guard.recorder.lock().bytes_out = bytes_out;
        if bytes_out > limits.output {
            return Err(ToolError::Limit {
                limit: Limit::Output(limits.output),
            });
        }
        J::complete(done, &guard.account).await
    }
}

/// Produces the receipt of a cell when it ends. If the cell is dropped before, by cancellation or a panic, the receipt is
/// reported to the observer.
struct ReceiptGuard<'a> {
    is_reported: bool,
    /// Released after the store.
    slot: Option<SemaphorePermit<'a>>,
    store: Option<Store<CellState>>,
    meter: &'a CpuTimer,
    recorder: ReceiptRecorder,
    account: MemoryAccount,
    observer: Arc<dyn CallObserver>,
    fuel: FuelCounter,
}

impl Drop for ReceiptGuard<'_> {
    fn drop(&mut self) {
        if self.is_reported {
            return;
        }
        // This also runs during unwinding, where a second panic would abort the process.
        let reported = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let receipt = self.receipt();
            self.observer.receipt(receipt);
        }));
        if reported.is_err() {
            tracing::error!("the receipt of a call could not be recorded: its observer panicked");
        }
    }
}

impl ReceiptGuard<'_> {
    /// Returns the receipt of a cell that has ended.
    fn finish(mut self) -> Receipt {
        let receipt = self.receipt();
        self.is_reported = true;
        receipt
    }

    fn receipt(&mut self) -> Receipt {
        self.close();
        let mut receipt = std::mem::take(&mut *self.recorder.lock());
        (receipt.peak_memory, receipt.peak_host_memory) = self.account.peaks();
        receipt.needed_memory = self.account.needed();
        receipt.wall_us = micros(self.meter.wall());
        receipt.cpu_us = micros(self.meter.cpu());
        self.recorder.redactor().receipt(&mut receipt);
        receipt
    }

    /// Drops the store after recording its data. Releasing memory is part of the call.
    fn close(&mut self) {
        let Some(mut store) = self.store.take() else {
            return;
        };
        let fuel = self.fuel.used(&store);
        store.data_mut().settle();
        let log_bytes = store.data().output.finish();
        let mut receipt = self.recorder.lock();
        (receipt.fuel, receipt.log_bytes) = (fuel, log_bytes);
        drop(receipt);
        drop(store);
    }
}

fn saturating_usize(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
