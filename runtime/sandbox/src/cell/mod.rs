//! The cell: one call in one store, from the first byte of memory to the receipt.

pub(crate) mod epoch;
pub(crate) mod failure;
pub(crate) mod limiter;
pub(crate) mod memory;
pub(crate) mod objects;
pub(crate) mod output;
pub(crate) mod poll;
pub(crate) mod receipt;
pub(crate) mod scheduler;
pub(crate) mod sockets;
pub(crate) mod state;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use toolcell_core::tool::CallObserver;
use toolcell_core::{KeyValueStore, Limit, Policy, Receipt, Redactor, ToolError};
use wasmtime::{Engine, Store};

use crate::bindings::{HookProvider, HookProviderPre, Provider, ProviderPre};
use crate::cell::memory::{MemoryAccount, MemoryPool, Refusal};
use crate::cell::receipt::ReceiptRecorder;
use crate::cell::scheduler::{CpuTimer, FairScheduler, Scheduled};
use crate::cell::state::CellState;
use crate::component::Footprint;
use crate::egress::Egress;

/// Bytes that may pass between host and guest in one host call, beside the answer: what WASI passes at most at once.
const HOSTCALL_BASE: u64 = 1 << 20;

/// Ticks of the epoch between two yields of a guest.
const TICKS: u64 = 1;

/// What all cells of a process share.
pub(crate) struct CellRunner {
    pub(crate) engine: Engine,
    /// One permit for each slot of the pool; as many as one likes without a pool.
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) memory: MemoryPool,
    /// Where the buckets of guests are, if anywhere.
    pub(crate) buckets: Option<Arc<dyn KeyValueStore>>,
    /// Made by the first call, which knows the runtime.
    pub(crate) turns: OnceLock<FairScheduler>,
}

/// A world of the contract whose imports are linked: what a cell is made of.
pub(crate) trait World: Sync {
    /// An instance of it.
    type Guest: Send + Sync;

    /// Makes an instance.
    fn enter(
        &self,
        store: &mut Store<CellState>,
    ) -> impl Future<Output = wasmtime::Result<Self::Guest>> + Send;
}

impl World for ProviderPre<CellState> {
    type Guest = Provider;

    async fn enter(&self, store: &mut Store<CellState>) -> wasmtime::Result<Provider> {
        self.instantiate_async(store).await
    }
}

impl World for HookProviderPre<CellState> {
    type Guest = HookProvider;

    async fn enter(&self, store: &mut Store<CellState>) -> wasmtime::Result<HookProvider> {
        self.instantiate_async(store).await
    }
}

/// One call before it runs.
pub(crate) struct CellRequest<'a, W> {
    pub(crate) pre: &'a W,
    pub(crate) policy: &'a Policy,
    /// The HTTP grants of the policy, shared by its calls.
    pub(crate) egress: &'a Arc<Egress>,
    pub(crate) observer: Arc<dyn CallObserver>,
    pub(crate) footprint: Footprint,
    /// Bytes of arguments, for the receipt.
    pub(crate) bytes_in: u64,
}

/// What to do with the guest once it is there.
pub(crate) trait GuestCall: Send {
    /// Whom it calls.
    type World: World;
    /// What comes of it.
    type Done: Send;

    /// Calls the guest.
    fn run(
        self,
        guest: &<Self::World as World>::Guest,
        store: &mut Store<CellState>,
    ) -> impl Future<Output = wasmtime::Result<Self::Done>> + Send;

    /// Bytes that the guest gave back, for the receipt and the output limit.
    fn bytes_out(done: &Self::Done) -> u64;
}

/// How a cell ended, and what it used.
pub(crate) struct CellOutcome<T> {
    pub(crate) result: Result<T, ToolError>,
    pub(crate) receipt: Receipt,
}

impl CellRunner {
    /// Runs a job in a cell of its own. Dropping the future ends the guest and everything that it waits for; its receipt
    /// goes to the observer then.
    pub(crate) async fn run<J: GuestCall>(
        &self,
        order: CellRequest<'_, J::World>,
        job: J,
    ) -> CellOutcome<J::Done> {
        let wall = order.policy.limits.wall_time();
        let meter = Arc::new(CpuTimer::start());
        // There is a receipt whatever happens from here on, also when this future is dropped.
        let account = MemoryAccount::new(order.policy.limits.memory, self.memory.clone());
        let mut filing = ReceiptGuard {
            is_filed: false,
            slot: None,
            store: None,
            meter: meter.clone(),
            ledger: ReceiptRecorder::new(&account, order.egress.redactor()),
            account,
            observer: order.observer.clone(),
            redactor: order.egress.redactor().clone(),
            fuel: order.policy.limits.fuel,
        };
        filing.ledger.lock().bytes_in = order.bytes_in;
        let result = self.timed(order, job, &mut filing, wall).await;
        CellOutcome {
            result,
            receipt: filing.finish(),
        }
    }

    /// Waits for a slot, then runs the job within the wall time.
    async fn timed<J: GuestCall>(
        &self,
        order: CellRequest<'_, J::World>,
        job: J,
        filing: &mut ReceiptGuard,
        wall: Duration,
    ) -> Result<J::Done, ToolError> {
        let slot = self.slots.clone().acquire_many_owned(order.footprint.slots);
        let Ok(Ok(slot)) = tokio::time::timeout(wall, slot).await else {
            return Err(failure::busy());
        };
        filing.slot = Some(slot);
        let turns = self.turns.get_or_init(FairScheduler::of_this_runtime);
        let meter = filing.meter.clone();
        let call = async {
            let result = self.call(order, job, filing).await;
            filing.close();
            result
        };
        match tokio::time::timeout(wall, Scheduled::new(call, meter, turns.clone())).await {
            Ok(result) => result,
            Err(_) => Err(ToolError::Limit {
                limit: Limit::WallTimeMs(millis(wall)),
            }),
        }
    }

    async fn call<J: GuestCall>(
        &self,
        order: CellRequest<'_, J::World>,
        job: J,
        filing: &mut ReceiptGuard,
    ) -> Result<J::Done, ToolError> {
        let limits = &order.policy.limits;
        let instances = filing.account.reserve(order.footprint.bytes);
        let _instances = instances.map_err(Refusal::into_error)?;
        let state = CellState::new(
            order.policy,
            order.egress,
            self.buckets.clone(),
            filing.account.clone(),
            filing.ledger.clone(),
            order.observer,
        )?;
        let store = filing.store.insert(Store::new(&self.engine, state));
        store.limiter(|state| &mut state.limiter);
        store
            .set_fuel(limits.fuel)
            .expect("the engine counts fuel, see engine.rs");
        store.set_epoch_deadline(TICKS);
        store.epoch_deadline_async_yield_and_update(TICKS);
        store.set_hostcall_fuel(saturating_usize(limits.output.saturating_add(HOSTCALL_BASE)));
        store.set_max_component_handles(limits.handles as usize);

        let result = match order.pre.enter(&mut *store).await {
            Ok(guest) => job.run(&guest, store).await,
            Err(error) => Err(error),
        };
        let done = result.map_err(|error| {
            let state = store.data();
            if let Some(backtrace) = failure::backtrace(&error) {
                state.voice.explain(backtrace);
            }
            failure::of_engine(&error, &state.account, limits)
        })?;
        store.data_mut().settle();
        if let Some(refused) = filing.account.overdrawn() {
            return Err(refused.into_error());
        }
        let bytes_out = J::bytes_out(&done);
        filing.ledger.lock().bytes_out = bytes_out;
        if bytes_out > limits.output {
            return Err(ToolError::Limit {
                limit: Limit::Output(limits.output),
            });
        }
        Ok(done)
    }
}

/// Makes the receipt of a cell when it ends. A cell that is dropped before, by a cancelled call or a panic, leaves it with
/// the observer.
struct ReceiptGuard {
    is_filed: bool,
    /// Given back after the store.
    slot: Option<OwnedSemaphorePermit>,
    store: Option<Store<CellState>>,
    meter: Arc<CpuTimer>,
    ledger: ReceiptRecorder,
    account: MemoryAccount,
    observer: Arc<dyn CallObserver>,
    redactor: Redactor,
    /// What the store had in its tank at the start.
    fuel: u64,
}

impl Drop for ReceiptGuard {
    fn drop(&mut self) {
        if self.is_filed {
            return;
        }
        // This runs while a panic unwinds as well, and a second one that left it would end the process.
        let filed = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let receipt = self.receipt();
            self.observer.receipt(receipt);
        }));
        if filed.is_err() {
            tracing::error!("the receipt of a call could not be filed: its observer panicked");
        }
    }
}

impl ReceiptGuard {
    /// The receipt of a cell that has ended.
    fn finish(mut self) -> Receipt {
        let receipt = self.receipt();
        self.is_filed = true;
        receipt
    }

    fn receipt(&mut self) -> Receipt {
        self.close();
        let mut receipt = std::mem::take(&mut *self.ledger.lock());
        (receipt.peak_memory, receipt.peak_host_memory) = self.account.peaks();
        receipt.wall_us = micros(self.meter.wall());
        receipt.cpu_us = micros(self.meter.cpu());
        self.redactor.receipt(&mut receipt);
        receipt
    }

    /// Drops the store, once what it knows is written down. Giving memory back is part of the call.
    fn close(&mut self) {
        let Some(mut store) = self.store.take() else {
            return;
        };
        let fuel = self.fuel.saturating_sub(store.get_fuel().unwrap_or(self.fuel));
        store.data_mut().settle();
        let log_bytes = store.data().voice.finish();
        let mut receipt = self.ledger.lock();
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
