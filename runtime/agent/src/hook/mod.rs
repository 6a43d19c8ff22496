//! Hooks: code that looks at a turn while it runs, and may change or refuse what is about to happen.
//!
//! | moment | what a hook may do |
//! |---|---|
//! | [`Hook::before_prompt`] | change the person's message, add context, examples and instructions, cancel the turn |
//! | [`Hook::before_call`] | change the arguments (they are checked again), cancel the call, abort the turn |
//! | [`Hook::after_call`] | look |
//! | [`Hook::before_summary`], [`Hook::after_summary`] | choose what is summarised, and what replaces it |
//! | [`Hook::after_turn`], [`Hook::on_error`] | look |
//!
//! A hook that fails, panics or takes too long is reported as a notice. If it is a *guard* ([`Hook::is_guard`]), what it
//! guards does not happen.

mod order;
mod run;

pub(crate) use run::{Hooks, Ruling};

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};
use toolcell_core::event::{NoticeLevel, TurnOutcome};
use toolcell_core::{ArgumentPlace, BoxFuture, Content, Event, Message, Receipt, RemainingBudget, ToolError};

use crate::budget::reserve::Exhausted;
use crate::driver::account::{Account, HookShare};
use crate::driver::notes::Notes;

use std::future::ready;

/// Code that looks at a turn while it runs. Every method does nothing unless it is written.
///
/// ```
/// use serde_json::json;
/// use toolcell_agent::hook::{CallDraft, Hook, HookContext, HookError, Verdict};
/// use toolcell_core::BoxFuture;
///
/// /// Gives every call a database, and refuses those that name another one.
/// struct OneDatabase;
///
/// impl Hook for OneDatabase {
///     fn name(&self) -> &str {
///         "one_database"
///     }
///
///     fn is_guard(&self) -> bool {
///         true
///     }
///
///     fn before_call<'a>(
///         &'a self,
///         call: &'a mut CallDraft,
///         _cx: &'a HookContext,
///     ) -> BoxFuture<'a, Result<Verdict, HookError>> {
///         Box::pin(async move {
///             let database = call.arguments.entry("database").or_insert(json!("main"));
///             Ok(if *database == "main" {
///                 Verdict::Continue
///             } else {
///                 Verdict::Cancel { reason: "only the database `main` may be used".into() }
///             })
///         })
///     }
/// }
/// ```
pub trait Hook: Send + Sync {
    /// Name, unique among the hooks of an agent.
    fn name(&self) -> &str;

    /// When it runs among the others.
    fn order(&self) -> HookOrder {
        HookOrder::default()
    }

    /// Whether what it looks at must not happen when it fails.
    fn is_guard(&self) -> bool {
        false
    }

    /// Time that it has at one moment, where that differs from the agent's
    /// ([`AgentBuilder::hook_timeout`](crate::AgentBuilder::hook_timeout)).
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// Fuel that it uses at this point at most; 0 for a hook that runs in no cell. It is reserved in the budget of the
    /// session before the hook runs; [`HookContext::left`] is what it got.
    fn max_fuel(&self, _point: HookPoint) -> u64 {
        0
    }

    /// Before the first request of a turn.
    ///
    /// # Errors
    /// Reported; ends the turn if this is a guard.
    fn before_prompt<'a>(
        &'a self,
        _prompt: &'a mut PromptDraft,
        _cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<Verdict, HookError>> {
        Box::pin(ready(Ok(Verdict::Continue)))
    }

    /// Before each call whose arguments are in order, and before anybody is asked to approve it.
    ///
    /// # Errors
    /// Reported; refuses the call if this is a guard.
    fn before_call<'a>(
        &'a self,
        _call: &'a mut CallDraft,
        _cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<Verdict, HookError>> {
        Box::pin(ready(Ok(Verdict::Continue)))
    }

    /// After each call that ran, whether it succeeded or not.
    ///
    /// # Errors
    /// Reported.
    fn after_call<'a>(
        &'a self,
        _call: &'a CallReport,
        _cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<(), HookError>> {
        Box::pin(ready(Ok(())))
    }

    /// Before the older part of a conversation is summarised. `messages` are those that will be replaced; what stays of
    /// them is what the model summarises.
    ///
    /// # Errors
    /// Reported; nothing is summarised if this is a guard.
    fn before_summary<'a>(
        &'a self,
        _messages: &'a mut Vec<Message>,
        _cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<(), HookError>> {
        Box::pin(ready(Ok(())))
    }

    /// After a summary was made. `messages` are what takes the place of `replaced`.
    ///
    /// # Errors
    /// Reported; nothing is replaced if this is a guard.
    fn after_summary<'a>(
        &'a self,
        _replaced: &'a [Message],
        _messages: &'a mut Vec<Message>,
        _cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<(), HookError>> {
        Box::pin(ready(Ok(())))
    }

    /// After a turn has ended, in whatever way.
    ///
    /// # Errors
    /// Reported.
    fn after_turn<'a>(
        &'a self,
        _end: &'a TurnEnd,
        _cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<(), HookError>> {
        Box::pin(ready(Ok(())))
    }

    /// When a request, a call or a turn fails.
    ///
    /// # Errors
    /// Reported.
    fn on_error<'a>(
        &'a self,
        _failure: &'a Failure,
        _cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<(), HookError>> {
        Box::pin(ready(Ok(())))
    }
}

/// A point of a turn at which hooks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HookPoint {
    /// [`Hook::before_prompt`].
    BeforePrompt,
    /// [`Hook::before_call`].
    BeforeCall,
    /// [`Hook::after_call`].
    AfterCall,
    /// [`Hook::before_summary`].
    BeforeSummary,
    /// [`Hook::after_summary`].
    AfterSummary,
    /// [`Hook::after_turn`].
    AfterTurn,
    /// [`Hook::on_error`].
    OnError,
}

/// When a hook runs. Hooks named in `before` run after it, those in `after` run before it; names that no hook has are
/// ignored. Otherwise the higher priority comes first, and among equals the smaller name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HookOrder {
    /// Higher comes first. Default 0.
    pub priority: i32,
    /// Names of hooks that this one comes before.
    pub before: Vec<String>,
    /// Names of hooks that this one comes after.
    pub after: Vec<String>,
}

/// What a hook decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    #[default]
    Continue,
    /// This prompt is not sent, or this call is not made.
    Cancel {
        /// Why, in words that the person reads, and of a call also the model.
        reason: String,
    },
    /// The whole turn ends.
    Abort {
        /// Why, in words that the person reads.
        reason: String,
    },
}

/// Why a hook failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct HookError(pub String);

/// A turn that is about to begin.
#[derive(Debug, Clone)]
pub struct PromptDraft {
    /// What the person said. Change it freely; [`PromptDraft::original`] stays.
    pub message: Message,
    /// What stands in front of the message in the conversation, each as a block of its own.
    pub context: Vec<String>,
    /// Added to the system prompt for this turn.
    pub instructions: Vec<String>,
    /// Examples, added to the system prompt for this turn.
    pub examples: Vec<Example>,
    original: Message,
    history: Vec<Arc<Message>>,
    tokens: u64,
    token_limit: Option<u64>,
}

/// An example of what to do when a person says something.
#[derive(Debug, Clone, PartialEq)]
pub struct Example {
    /// What the person says.
    pub says: String,
    /// The tool to call.
    pub tool: String,
    /// With these arguments.
    pub arguments: Value,
}

/// A call that is about to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct CallDraft {
    /// Identifier of the call.
    pub id: String,
    /// Name of the tool.
    pub tool: String,
    /// The arguments. Change them freely: they are checked against the tool's schema again.
    pub arguments: Map<String, Value>,
    /// What the arguments lead to, as they are when the hook is asked.
    pub places: Vec<ArgumentPlace>,
}

/// A call that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct CallReport {
    /// Identifier of the call.
    pub id: String,
    /// Name of the tool.
    pub tool: String,
    /// What was executed.
    pub arguments: Value,
    /// What the model reads.
    pub content: Vec<Content>,
    /// Why there is no answer.
    pub error: Option<ToolError>,
    /// What it used.
    pub receipt: Option<Receipt>,
    /// How long it took, retries included, in milliseconds.
    pub duration_ms: u64,
}

/// A turn that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnEnd {
    /// How.
    pub outcome: TurnOutcome,
    /// The answer.
    pub text: String,
    /// Steps taken.
    pub steps: u32,
}

/// Something that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Where.
    pub phase: FailurePhase,
    /// What.
    pub message: String,
}

/// Where something failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailurePhase {
    /// In a request to the model.
    Model,
    /// In the arguments of a call.
    CallArguments,
    /// In a call.
    Call,
}

/// What surrounds a hook.
#[derive(Clone)]
pub struct HookContext {
    /// Identifier of the session.
    pub session: Arc<str>,
    shared: Arc<Mutex<Map<String, Value>>>,
    notes: Notes,
    account: Arc<Account>,
    /// What the hook reserved that this is for.
    share: Option<Arc<HookShare>>,
}

impl HookPoint {
    /// As it stands in events, such as `before_call`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BeforePrompt => "before_prompt",
            Self::BeforeCall => "before_call",
            Self::AfterCall => "after_call",
            Self::BeforeSummary => "before_summary",
            Self::AfterSummary => "after_summary",
            Self::AfterTurn => "after_turn",
            Self::OnError => "on_error",
        }
    }
}

impl PromptDraft {
    pub(crate) fn new(
        message: Message,
        history: Vec<Arc<Message>>,
        tokens: u64,
        token_limit: Option<u64>,
    ) -> Self {
        Self {
            original: message.clone(),
            message,
            context: Vec::new(),
            instructions: Vec::new(),
            examples: Vec::new(),
            history,
            tokens,
            token_limit,
        }
    }

    /// What the person said, whatever hooks made of it.
    pub fn original(&self) -> &Message {
        &self.original
    }

    /// The conversation so far, without the message.
    pub fn history(&self) -> &[Arc<Message>] {
        &self.history
    }

    /// Length of the conversation in tokens, as far as known, and the length at which it will be summarised.
    pub fn tokens(&self) -> (u64, Option<u64>) {
        (self.tokens, self.token_limit)
    }

    /// The message with its context, if that is not what the person said, and the text for the system prompt.
    pub(crate) fn into_parts(self) -> (Option<Message>, String) {
        let mut message = self.message;
        if let Message::User { content } = &mut message {
            let blocks = self.context.into_iter();
            content.splice(
                0..0,
                blocks.map(|text| Content::text(format!("<context>\n{text}\n</context>\n"))),
            );
        }
        let mut instructions = self.instructions;
        if !self.examples.is_empty() {
            let examples = self.examples.iter().map(|example| {
                format!(
                    "When the person says \"{}\", call `{}` with {}.",
                    example.says, example.tool, example.arguments
                )
            });
            instructions.push(examples.collect::<Vec<_>>().join("\n"));
        }
        (
            (message != self.original).then_some(message),
            instructions.join("\n\n"),
        )
    }
}

impl HookContext {
    pub(crate) fn new(
        session: &str,
        shared: Arc<Mutex<Map<String, Value>>>,
        notes: Notes,
        account: Arc<Account>,
    ) -> Self {
        Self {
            session: session.into(),
            shared,
            notes,
            account,
            share: None,
        }
    }

    /// The same for a hook that uses at most so much fuel.
    ///
    /// # Errors
    /// When nothing is left.
    pub(crate) async fn reserve(&self, fuel: u64) -> Result<Self, Exhausted> {
        let share = match fuel {
            0 => None,
            fuel => {
                let most = RemainingBudget {
                    fuel: Some(fuel),
                    ..RemainingBudget::NOTHING
                };
                Some(Arc::new(self.account.reserve(&most).for_hook().await?))
            }
        };
        Ok(Self {
            share,
            ..self.clone()
        })
    }

    /// The hook has run.
    pub(crate) fn end(&self) {
        if let Some(share) = &self.share {
            share.end();
        }
    }

    /// What the hook may use at most, as it was reserved for it. Its time counts in no budget of calls.
    pub fn left(&self) -> RemainingBudget {
        let left = self
            .share
            .as_ref()
            .map_or(RemainingBudget::NOTHING, |share| share.left());
        RemainingBudget {
            fuel: left.fuel,
            wall_ms: left.wall_ms,
            ..RemainingBudget::default()
        }
    }

    /// Tells the user something, at once. A hook that floods loses what it says; it does not fill the host's memory.
    pub fn notify(&self, level: NoticeLevel, text: impl Into<String>) {
        let text = text.into();
        self.notes.offer(Event::Notice { level, text });
    }

    /// Tells the user something that is never lost.
    pub(crate) fn must_notify(&self, level: NoticeLevel, text: String) {
        self.notes.tell(Event::Notice { level, text }, None);
    }

    /// Files what a hook used at one moment, such as `before_call`. For hooks that run in a cell; once each time.
    pub fn receipt(&self, hook: &str, moment: &str, receipt: Receipt) {
        if let Some(share) = &self.share {
            share.note(&receipt);
        }
        let event = Event::HookFinished {
            hook: hook.to_owned(),
            moment: moment.to_owned(),
            receipt,
        };
        self.notes
            .tell(event, self.share.as_ref().map(|share| share.ticket()));
    }

    /// A value that this or another hook left in this turn, also before another process took the turn up.
    pub fn get(&self, name: &str) -> Option<Value> {
        self.shared().get(name).cloned()
    }

    /// Every value that hooks left in this turn.
    pub fn values(&self) -> Map<String, Value> {
        self.shared().clone()
    }

    /// Leaves a value for later hooks of this turn. Values go into the journal as [`toolcell_core::Event::ValuesShared`],
    /// so they are no place for secrets; those that together are longer than 64 KiB of JSON stay in this process alone.
    pub fn set(&self, name: impl Into<String>, value: Value) {
        self.shared().insert(name.into(), value);
    }

    fn shared(&self) -> std::sync::MutexGuard<'_, Map<String, Value>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for HookContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HookContext")
            .field("session", &self.session)
            .field("shared", &self.shared())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for dyn Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hook({})", self.name())
    }
}
