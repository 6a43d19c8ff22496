//! One call of a function.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use serde_json::{Map, Value, json};
use toolcell_core::ToolError;
use wasmtime::component::{Instance, InstancePre, Val};
use wasmtime::{Engine, Error, Store};

use crate::cell::failure;
use crate::cell::memory::{Aside, MemoryAccount, OutOfMemory, Reservation};
use crate::cell::state::CellState;
use crate::cell::{GuestCall, HOSTCALL_BASE, LinkedWorld};
use crate::engine::EngineKind;
use crate::json_length::json_length;
use crate::load::complexity::MAX_PASSED_WEIGHT;
use crate::typed::schema::RESULT;
use crate::typed::wit_type::WitType;
use crate::typed::{Function, lift, lower};

/// Least number of bytes that may pass between host and guest at once, whatever the types of a function. The streams of
/// WASI pass 64 KiB at once.
const LEAST_AT_ONCE: u64 = 256 << 10;

/// Part of the memory left to a call that the values of a result may take while the host reads them. Each takes 40 bytes, also
/// one of a `list<u8>`.
const SHARE: u64 = 4;

/// Number of parts of a value, of 40 bytes each, that is converted at once. One with more is converted on a thread for
/// blocking work, so that neither the deadline of the call nor other calls wait for it.
const AT_ONCE: usize = 2_000;

impl LinkedWorld for InstancePre<CellState> {
    type Guest = Instance;

    fn engine(&self) -> &Engine {
        self.engine()
    }

    async fn instantiate(&self, store: &mut Store<CellState>) -> wasmtime::Result<Instance> {
        self.instantiate_async(store).await
    }
}

/// Calls a function.
pub(crate) struct FunctionCall<'a> {
    function: &'a Function,
    arguments: Map<String, Value>,
    /// Maximum size of the result, in bytes.
    output: u64,
    /// True if the engine copies the values.
    is_copied: bool,
    values: Vec<Val>,
    /// Memory of the values.
    held: Option<Reservation>,
}

/// Result of a function.
#[derive(Debug, PartialEq)]
pub(crate) struct FunctionResult {
    /// The value in JSON; with an error, that of the error. `None` if there is none.
    pub(crate) value: Option<Value>,
    /// True for the `err` case of a `result`.
    pub(crate) is_error: bool,
    /// True for a record, which is an object itself.
    is_record: bool,
    /// Size of the value as JSON, in bytes.
    length: u64,
}

impl<'a> FunctionCall<'a> {
    pub(crate) fn new(
        function: &'a Function,
        arguments: Map<String, Value>,
        output: u64,
        engine: EngineKind,
    ) -> Self {
        Self {
            function,
            arguments,
            output,
            is_copied: engine == EngineKind::Concurrent,
            values: Vec::new(),
            held: None,
        }
    }

    /// Sets what may pass between host and guest at once, so that the values of the result take no more host memory than
    /// those of other tools, or memory that the call has. That memory is kept free for them.
    fn limit_result(&self, store: &mut Store<CellState>) -> Option<Aside> {
        let usual = self.output.saturating_add(HOSTCALL_BASE);
        let weight = self.function.result.as_ref()?.uncounted();
        let mut fuel = (usual / weight).max(LEAST_AT_ONCE);
        let account = &store.data().account;
        // The concurrent engine passes values of streams as well, within the same limit.
        let weight = match self.is_copied {
            true => weight.max(MAX_PASSED_WEIGHT.into()),
            false => weight,
        };
        let share = account.left() / SHARE / weight;
        let aside = (share > fuel)
            .then(|| account.set_aside(share * weight))
            .flatten();
        if aside.is_some() {
            fuel = share;
        }
        store.set_hostcall_fuel(usize::try_from(fuel).unwrap_or(usize::MAX));
        aside
    }
}

impl GuestCall for FunctionCall<'_> {
    type World = InstancePre<CellState>;
    type Done = FunctionResult;

    fn prepare(&mut self, state: &mut CellState) -> Result<(), ToolError> {
        let mut memory = state.account.empty();
        let converted = lower::arguments(&self.function.parameters, &self.arguments, &mut memory);
        self.values = converted.map_err(lower::LowerError::into_error)?;
        if self.is_copied {
            // The concurrent engine copies the values before it calls the function.
            memory.grow(memory.bytes()).map_err(OutOfMemory::into_error)?;
        }
        self.held = Some(memory);
        self.arguments = Map::new();
        Ok(())
    }

    async fn call_guest(
        mut self,
        guest: &Instance,
        store: &mut Store<CellState>,
    ) -> wasmtime::Result<FunctionResult> {
        let function = (guest.get_func(&mut *store, self.function.index))
            .ok_or_else(|| Error::msg("the function does not exist"))?;
        let aside = self.limit_result(store);
        let mut results = vec![Val::Bool(false); usize::from(self.function.result.is_some())];
        let called = function.call_async(&mut *store, &self.values, &mut results).await;
        if let Err(error) = called {
            // The values did not fit into the memory for them; the size of their JSON is not known.
            return Err(match failure::is_too_much_at_once(&error) {
                true => store.data().account.refuse().into(),
                false => error,
            });
        }
        self.values = Vec::new();
        drop((aside, self.held.take()));
        let (Some(value), Some(ty)) = (results.pop(), &self.function.result) else {
            return Ok(FunctionResult {
                value: None,
                is_error: false,
                is_record: false,
                length: 0,
            });
        };
        let account = store.data().account.clone();
        if lift::is_within(&value, &mut AT_ONCE.clone()) {
            return Ok(FunctionResult::of(value, ty, &account, &AtomicBool::new(false))?.0);
        }
        let ty = ty.clone();
        let stop = Stop::default();
        let is_stopped = stop.0.clone();
        let convert = move || FunctionResult::of(value, &ty, &account, &is_stopped);
        let (result, _held) = tokio::task::spawn_blocking(convert).await??;
        Ok(result)
    }

    fn bytes_out(done: &FunctionResult) -> u64 {
        done.length
    }
}

impl FunctionResult {
    /// Converts a value. Returns the memory for it as well.
    fn of(
        value: Val,
        ty: &WitType,
        account: &MemoryAccount,
        stop: &AtomicBool,
    ) -> Result<(Self, Reservation), OutOfMemory> {
        // The value exists already, within the limit of what passes at once; its JSON does not.
        let held = account.reserve(lift::price(&value))?;
        let mut result = Self::unmeasured(value, ty, stop);
        result.length = result.value.as_ref().map_or(0, json_length);
        Ok((result, held))
    }

    fn unmeasured(value: Val, ty: &WitType, stop: &AtomicBool) -> Self {
        let of = |value: Option<Box<Val>>, ty: &Option<Box<WitType>>, is_error| Self {
            value: match (value, ty) {
                (Some(value), Some(ty)) => Some(lift::json(*value, ty, stop)),
                _ => None,
            },
            length: 0,
            is_error,
            is_record: matches!(ty.as_deref(), Some(WitType::Record(_))),
        };
        match (value, ty) {
            (Val::Result(Ok(value)), WitType::Result(ok, _)) => of(value, ok, false),
            (Val::Result(Err(value)), WitType::Result(_, err)) => of(value, err, true),
            (value, ty) => Self {
                is_record: matches!(ty, WitType::Record(_)),
                value: Some(lift::json(value, ty, stop)),
                is_error: false,
                length: 0,
            },
        }
    }

    /// Returns the structured result, which fits the output schema: an object, as protocols require.
    pub(crate) fn structured(self) -> Option<Value> {
        let is_record = self.is_record;
        self.value.map(|value| match is_record {
            true => value,
            false => json!({ RESULT: value }),
        })
    }
}

/// Stops a conversion when the call is dropped.
#[derive(Default)]
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
