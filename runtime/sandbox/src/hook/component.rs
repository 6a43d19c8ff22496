//! A component that is a hook, and the same under a policy.

use std::fmt;
use std::sync::Arc;

use toolcell_core::tool::CallObserver;
use toolcell_core::{Policy, Secrets};

use super::answer::{Answer, adopt_text};
use super::ask::{HookCall, HookRequest};
use super::{
    CallAnswer, Effects, Failure, FinishedCall, FinishedTurn, HookFailure, HookSpec, PendingCall, Prompt,
    PromptAnswer, Turn,
};
use crate::bindings::HookProviderPre;
use crate::cell::CellRequest;
use crate::cell::state::CellState;
use crate::component::{Base, Identity};
use crate::egress::{BoundSecrets, Egress, InvalidBinding};
use crate::tool::within;

/// A component that was loaded as a hook. Clones are cheap and share everything.
#[derive(Clone)]
pub struct HookComponent(pub(crate) Arc<LoadedHook>);

pub(crate) struct LoadedHook {
    pub(crate) base: Base,
    pub(crate) pre: HookProviderPre<CellState>,
    pub(crate) spec: HookSpec,
}

/// A hook under a policy. Each moment runs in a cell of its own and leaves a receipt with its observer.
#[derive(Clone)]
pub struct CellHook {
    hook: Arc<LoadedHook>,
    policy: Arc<Policy>,
    egress: Arc<Egress>,
}

impl HookComponent {
    /// Which component it is.
    pub fn identity(&self) -> &Identity {
        &self.0.base.identity
    }

    /// What it says of itself.
    pub fn spec(&self) -> &HookSpec {
        &self.0.spec
    }

    /// The hook, to be asked under `policy`, with the values of the secrets that the policy binds. As with tools, the hook
    /// never holds them, and all `secrets` are taken out of whatever it answers.
    ///
    /// # Errors
    /// When a binding of the policy cannot be used or its secret has no value.
    pub fn hook(&self, policy: Arc<Policy>, secrets: &Secrets) -> Result<CellHook, InvalidBinding> {
        let bound = BoundSecrets::new(&policy.grants.secrets, secrets)?;
        Ok(CellHook {
            egress: self.0.base.egress(&policy, bound),
            hook: self.0.clone(),
            policy,
        })
    }
}

impl CellHook {
    /// What it says of itself.
    pub fn spec(&self) -> &HookSpec {
        &self.hook.spec
    }

    /// Fuel that it uses at most each time that it is asked.
    pub fn max_fuel(&self) -> u64 {
        self.policy.limits.fuel
    }

    /// Asks it before a prompt is sent.
    ///
    /// # Errors
    /// [`HookFailure`], whatever it did before it failed.
    pub async fn before_prompt(
        &self,
        prompt: Prompt,
        turn: Turn,
        observer: Arc<dyn CallObserver>,
    ) -> Result<PromptAnswer, HookFailure> {
        self.ask(prompt, turn, observer).await
    }

    /// Asks it before a call is made.
    ///
    /// # Errors
    /// As [`CellHook::before_prompt`].
    pub async fn before_call(
        &self,
        call: PendingCall,
        turn: Turn,
        observer: Arc<dyn CallObserver>,
    ) -> Result<CallAnswer, HookFailure> {
        self.ask(call, turn, observer).await
    }

    /// Asks it after a call.
    ///
    /// # Errors
    /// As [`CellHook::before_prompt`].
    pub async fn after_call(
        &self,
        call: FinishedCall,
        turn: Turn,
        observer: Arc<dyn CallObserver>,
    ) -> Result<Effects, HookFailure> {
        self.ask(call, turn, observer).await
    }

    /// Asks it after a turn.
    ///
    /// # Errors
    /// As [`CellHook::before_prompt`].
    pub async fn after_turn(
        &self,
        end: FinishedTurn,
        turn: Turn,
        observer: Arc<dyn CallObserver>,
    ) -> Result<Effects, HookFailure> {
        self.ask(end, turn, observer).await
    }

    /// Asks it when something failed.
    ///
    /// # Errors
    /// As [`CellHook::before_prompt`].
    pub async fn on_error(
        &self,
        failure: Failure,
        turn: Turn,
        observer: Arc<dyn CallObserver>,
    ) -> Result<Effects, HookFailure> {
        self.ask(failure, turn, observer).await
    }

    async fn ask<Q: HookRequest>(
        &self,
        question: Q,
        turn: Turn,
        observer: Arc<dyn CallObserver>,
    ) -> Result<<Q::Said as Answer>::Adopted, HookFailure> {
        let work = HookCall::new(question, turn);
        let policy = within(&self.policy, observer.left());
        let order = CellRequest {
            pre: &self.hook.pre,
            policy: &policy,
            egress: &self.egress,
            observer,
            footprint: self.hook.base.footprint,
            bytes_in: work.bytes_in(),
        };
        let redactor = self.egress.redactor();
        match self.hook.base.cells.run(order, work).await {
            Ok(Ok(said)) => said.adopt(redactor).map_err(HookFailure::InvalidResponse),
            Ok(Err(text)) => Err(HookFailure::Said(adopt_text(text, redactor))),
            Err(mut error) => {
                redactor.error(&mut error);
                Err(HookFailure::Cell(error))
            }
        }
    }
}

impl fmt::Debug for HookComponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookComponent")
            .field("identity", self.identity())
            .field("spec", self.spec())
            .finish()
    }
}

impl fmt::Debug for CellHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CellHook")
            .field("spec", self.spec())
            .finish_non_exhaustive()
    }
}
