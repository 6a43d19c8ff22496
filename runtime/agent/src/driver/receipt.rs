//! Call of another session in which a session runs: its observer, the events forwarded to it, and its receipt.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolcell_core::provider::{Prices, Usage};
use toolcell_core::tool::{CallObserver, Progress};
use toolcell_core::{AgentUse, Event, EventSink, Receipt};

/// Use of a subagent's session. Reported to the calling session when this one and all its tasks have ended, in any way.
pub(crate) struct SubagentReceipt {
    observer: Arc<dyn CallObserver>,
    prices: Option<Prices>,
    used: Mutex<Used>,
}

/// Use of the session.
#[derive(Default)]
struct Used {
    /// Use of its calls, including nested agents.
    calls: Receipt,
    /// Use of the session itself.
    own: AgentUse,
    /// Use by other models that answered, with their cost.
    others: Usage,
    others_micros: u64,
}

impl Used {
    fn note(&mut self, event: &Event) {
        match event {
            Event::StepFinished { usage, .. } | Event::Compacted { usage, .. } => {
                self.own.steps += 1;
                self.usage(usage.unwrap_or_default());
            }
            Event::SummaryFailed { usage, .. } | Event::StepInterrupted { usage, .. } => {
                self.usage(usage.unwrap_or_default());
            }
            Event::HookFinished { receipt, .. } => {
                self.calls.fuel = self.calls.fuel.saturating_add(receipt.fuel);
            }
            Event::CallSuspended {
                receipt: Some(receipt),
                ..
            } => self.calls.merge(receipt.clone()),
            Event::CallFinished { result, .. } if !result.not_run => {
                self.call(result.byte_len() as u64, result.receipt.clone());
            }
            _ => {}
        }
    }

    fn usage(&mut self, usage: Usage) {
        match usage.cost_micros {
            Some(cost) => {
                self.others.add(usage);
                self.others_micros = self.others_micros.saturating_add(cost);
            }
            None => self.own.usage.add(usage),
        }
    }

    fn call(&mut self, bytes: u64, receipt: Option<Receipt>) {
        self.own.calls += 1;
        self.own.bytes = self.own.bytes.saturating_add(bytes);
        if let Some(receipt) = receipt {
            self.calls.merge(receipt);
        }
    }

    fn receipt(&self, prices: Option<&Prices>) -> Receipt {
        let own = prices.map(|prices| prices.cost_micros(&self.own.usage));
        let mut all = AgentUse {
            cost_micros: own.map(|own| own.saturating_add(self.others_micros)),
            ..self.own
        };
        all.usage.add(self.others);
        if let Some(further) = &self.calls.agent {
            all.add(**further);
        }
        Receipt {
            agent: Some(Box::new(all)),
            ..self.calls.clone()
        }
    }
}

impl SubagentReceipt {
    pub(crate) fn new(observer: Arc<dyn CallObserver>, prices: Option<Prices>) -> Self {
        Self {
            observer,
            prices,
            used: Mutex::default(),
        }
    }

    /// Observer of the call in which the session runs.
    pub(crate) fn observer(&self) -> &dyn CallObserver {
        &*self.observer
    }

    /// Counts a call that was dropped with the session and is in no event.
    pub(crate) fn dropped(&self, receipt: Option<Receipt>) {
        self.used().call(0, receipt);
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SubagentReceipt {
    fn drop(&mut self) {
        let used = self.used.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.observer.receipt(used.receipt(self.prices.as_ref()));
    }
}

/// Forwards events to the calling session.
pub(crate) struct SubagentSink(pub(crate) Arc<SubagentReceipt>);

impl EventSink for SubagentSink {
    fn event(&self, event: &Event) {
        self.0.used().note(event);
        let observer = self.0.observer();
        if let Event::StepStarted { step } = event {
            observer.progress(Progress {
                done: u64::from(*step),
                total: None,
                message: Some(format!("step {step}")),
            });
        }
        // Deltas are part of the complete answer.
        if !matches!(event, Event::TextDelta { .. } | Event::ReasoningDelta { .. }) {
            observer.nested(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use toolcell_core::CallResult;
    use toolcell_core::provider::{StopReason, Usage};

    use super::*;

    #[test]
    fn requests_calls_and_hooks_of_an_agent_are_counted() {
        let usage = |output| {
            Some(Usage {
                output,
                ..Usage::default()
            })
        };
        let receipt = |fuel| Receipt {
            fuel,
            ..Receipt::default()
        };
        let mut used = Used::default();
        let finished = |not_run| Event::CallFinished {
            id: "1".into(),
            tool: "t".into(),
            result: CallResult {
                not_run,
                ..CallResult::text("four").with_receipt(receipt(100))
            },
        };
        for event in [
            Event::StepFinished {
                step: 1,
                message: toolcell_core::Message::assistant("x"),
                stop: StopReason::Complete,
                usage: usage(1),
            },
            Event::Compacted {
                removed: 1,
                replacement: Vec::new(),
                usage: usage(2),
            },
            Event::SummaryFailed {
                reason: String::new(),
                usage: usage(4),
            },
            Event::StepInterrupted {
                step: 2,
                message: None,
                reason: String::new(),
                usage: usage(8),
            },
            Event::HookFinished {
                hook: "h".into(),
                moment: "after_turn".into(),
                receipt: receipt(7),
            },
            finished(false),
            finished(true),
        ] {
            used.note(&event);
        }
        assert_eq!((used.own.steps, used.own.usage.output), (2, 15));
        assert_eq!((used.own.calls, used.own.bytes, used.calls.fuel), (1, 4, 107));
    }
}
