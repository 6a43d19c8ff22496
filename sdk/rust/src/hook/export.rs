//! Exports of a component with a hook.

use std::marker::PhantomData;

use super::summary::{FinishedSummary, PendingSummary, answer};
use super::wire::{call, call_report, changed_arguments, effects, prompt, prompt_answer, turn, verdict};
use super::{Failure, Hook, TurnEnd};
use crate::generated::hook::exports::toolcell::tool::{hooks as contract, summary_hooks};
use crate::{Result, ToolError};

/// Exports a hook as a component. Once per crate, and in the crate of the hook, which may have tools as well, with
/// [`export!`](crate::export).
///
/// See [`hook`](mod@crate::hook) for an example.
#[macro_export]
macro_rules! export_hook {
    ($hook:ty) => {
        impl $crate::hook::ExportedHook for $hook {}

        #[allow(unsafe_code, non_local_definitions)]
        const _: () = {
            // Defined in the root of the crate, where a second one is an error.
            #[doc(hidden)]
            #[macro_export]
            macro_rules! one_hook_of_a_crate_is_exported {
                () => {};
            }

            type Component = $crate::hook::Exported<$hook>;

            #[cfg(target_family = "wasm")]
    $crate::generated::hook::__export_hook_provider!(Component with_types_in $crate::generated::hook);
            #[cfg(not(target_family = "wasm"))]
            const _: ::std::marker::PhantomData<Component> = ::std::marker::PhantomData;
        };
    };
}

/// Hook that its crate exports: the attribute asks for it, so that no hook is forgotten.
#[diagnostic::on_unimplemented(
    message = "the hook `{Self}` is not exported",
    label = "not exported",
    note = "add `toolcell_sdk::export_hook!({Self});`"
)]
pub trait ExportedHook: Hook {}

/// Fails compilation if the hook is not exported.
pub const fn assert_exported<H: ExportedHook>() {}

/// Implementation of the WIT contract by a hook.
#[derive(Debug)]
pub struct Exported<H>(PhantomData<H>);

impl<H: Hook> contract::Guest for Exported<H> {
    fn describe() -> contract::Hook {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        contract::Hook {
            name: H::CLAIMS.name.into(),
            description: crate::docs::reflow(H::CLAIMS.description),
            moments: H::CLAIMS.moments,
            guard: H::CLAIMS.guard,
            priority: H::CLAIMS.priority,
            before: names(H::CLAIMS.before),
            after: names(H::CLAIMS.after),
            annotations: Vec::new(),
        }
    }

    fn before_prompt(asked: contract::Prompt, of: contract::Turn) -> Result<contract::PromptAnswer, String> {
        let (mut draft, mut turn) = (prompt(asked), turn(of));
        let was = draft.message.clone();
        let decided = H::before_prompt(&mut draft, &mut turn).map_err(words)?;
        Ok(prompt_answer(decided, draft, &was, turn))
    }

    fn before_call(asked: contract::PendingCall, of: contract::Turn) -> Result<contract::CallAnswer, String> {
        let (mut draft, mut turn) = (call(asked).map_err(words)?, turn(of));
        let was = draft.arguments.clone();
        let decided = H::before_call(&mut draft, &mut turn).map_err(words)?;
        Ok(contract::CallAnswer {
            verdict: verdict(decided),
            arguments: changed_arguments(draft.arguments, &was),
            effects: effects(turn),
        })
    }

    fn after_call(asked: contract::FinishedCall, of: contract::Turn) -> Result<contract::Effects, String> {
        let (report, mut turn) = (call_report(asked).map_err(words)?, turn(of));
        H::after_call(&report, &mut turn).map_err(words)?;
        Ok(effects(turn))
    }

    fn after_turn(asked: contract::FinishedTurn, of: contract::Turn) -> Result<contract::Effects, String> {
        let mut turn = turn(of);
        let end = TurnEnd {
            outcome: asked.outcome,
            text: asked.text,
            steps: asked.steps,
        };
        H::after_turn(&end, &mut turn).map_err(words)?;
        Ok(effects(turn))
    }

    fn on_error(asked: contract::Failure, of: contract::Turn) -> Result<contract::Effects, String> {
        let mut turn = turn(of);
        let failure = Failure {
            kind: asked.kind,
            message: asked.message,
        };
        H::on_error(&failure, &mut turn).map_err(words)?;
        Ok(effects(turn))
    }
}

impl<H: Hook> summary_hooks::Guest for Exported<H> {
    fn describe() -> summary_hooks::SummaryMoments {
        H::CLAIMS.summary_moments
    }

    fn before_summary(
        asked: summary_hooks::PendingSummary,
        of: contract::Turn,
    ) -> Result<summary_hooks::SummaryAnswer, String> {
        let (mut summary, mut turn) = (PendingSummary::received(asked), turn(of));
        let was = summary.messages.clone();
        let decided = H::before_summary(&mut summary, &mut turn).map_err(words)?;
        Ok(answer(decided, summary.messages, &was, turn))
    }

    fn after_summary(
        asked: summary_hooks::FinishedSummary,
        of: contract::Turn,
    ) -> Result<summary_hooks::SummaryAnswer, String> {
        let (mut summary, mut turn) = (FinishedSummary::received(asked), turn(of));
        let was = summary.messages.clone();
        let decided = H::after_summary(&mut summary, &mut turn).map_err(words)?;
        Ok(answer(decided, summary.messages, &was, turn))
    }
}

fn words(error: ToolError) -> String {
    error.message().to_owned()
}
