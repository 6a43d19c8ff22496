//! Hook that follows instructions in the argument `text` of a call, such as `panic` or `say so`, and for summaries in the
//! prompt; used to test the isolation of hooks. The component also has a tool: a component can have both.

use toolcell_sdk::hook::{
    Call, CallReport, Failure, FinishedSummary, Hook, Message, PendingSummary, Prompt, Turn, TurnEnd, Verdict,
};
use toolcell_sdk::{Result, ToolError, hook, log, tool};

struct Unruly;

/// Follows the instruction in a call.
#[hook(name = "unruly")]
impl Hook for Unruly {
    fn before_prompt(prompt: &mut Prompt, turn: &mut Turn) -> Result<Verdict> {
        turn.set("asked", prompt.text())?;
        prompt.context.push(format!("session {}", turn.session()));
        prompt.instructions.push("Be brief.".into());
        match prompt.text().as_str() {
            "forbidden" => Ok(Verdict::cancel("this is not talked about")),
            "panic" => panic!("as told"),
            _ => Ok(Verdict::Proceed),
        }
    }

    fn before_call(call: &mut Call, turn: &mut Turn) -> Result<Verdict> {
        let order = call.text("text").unwrap_or_default().to_owned();
        let (word, rest) = order.split_once(' ').unwrap_or((&order, ""));
        match word {
            "change" => call.arguments["text"] = rest.into(),
            "break" => call.arguments["text"] = 7.into(),
            "refuse" => return Ok(Verdict::cancel(rest)),
            "abort" => return Ok(Verdict::abort(rest)),
            "say" => {
                log::info("it was told to say something");
                turn.notify(rest);
            }
            "fail" => return Err(ToolError::failed(rest)),
            "panic" => panic!("as told"),
            "spin" => loop {
                std::hint::black_box(());
            },
            "hoard" => {
                let mut hoard = Vec::new();
                loop {
                    hoard.push(std::hint::black_box(vec![1_u8; 1 << 20]));
                }
            }
            "flood" => turn.set("flood", "x".repeat(100_000))?,
            "read" => match std::fs::read_to_string(rest) {
                Ok(text) => turn.notify(text),
                Err(error) => turn.warn(format!("it could not read: {error}")),
            },
            _ => {}
        }
        Ok(Verdict::Proceed)
    }

    fn after_call(call: &CallReport, turn: &mut Turn) -> Result<()> {
        let asked: String = turn.get("asked").unwrap_or_default();
        let fuel = call
            .receipt
            .as_ref()
            .is_some_and(|receipt| receipt["fuel"].as_u64() > Some(0));
        let error = call.error.as_ref().map_or("none", |error| error.kind.as_str());
        turn.notify(format!(
            "after {}: asked `{asked}`, error {error}, has a receipt {fuel}",
            call.tool
        ));
        Ok(())
    }

    fn before_summary(summary: &mut PendingSummary, turn: &mut Turn) -> Result<Verdict> {
        turn.notify(format!("before a summary of {} messages", summary.messages.len()));
        match turn.get::<String>("asked").unwrap_or_default().as_str() {
            "summarise the first" => summary.messages.truncate(1),
            "summarise nothing" => summary.messages.clear(),
            "no summary" => return Ok(Verdict::cancel("it is not wanted")),
            "no turn with a summary" => return Ok(Verdict::abort("it is too long")),
            _ => {}
        }
        Ok(Verdict::Proceed)
    }

    fn after_summary(summary: &mut FinishedSummary, turn: &mut Turn) -> Result<Verdict> {
        match turn.get::<String>("asked").unwrap_or_default().as_str() {
            "keep the first" => summary.messages.insert(0, summary.replaced.remove(0)),
            "write it yourself" => {
                summary.messages = vec![
                    Message::user("By a hook:"),
                    Message::assistant("nothing happened"),
                ];
            }
            "keep all twice" => {
                let all = summary.messages.clone();
                summary.messages.extend(all);
            }
            "not this summary" => return Ok(Verdict::cancel("it is wrong")),
            "panic after the summary" => panic!("as told"),
            _ => {}
        }
        Ok(Verdict::Proceed)
    }

    fn after_turn(end: &TurnEnd, turn: &mut Turn) -> Result<()> {
        if turn.get::<String>("asked").as_deref() == Some("linger") {
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        turn.notify(format!("after the turn: {}, {} steps", end.outcome, end.steps));
        Ok(())
    }

    fn on_error(failure: &Failure, turn: &mut Turn) -> Result<()> {
        turn.notify(format!("error in {}", failure.kind));
        Ok(())
    }
}

/// Takes an instruction for the hook.
#[tool(read_only)]
fn unruly_order(text: &str) -> String {
    format!("the tool read: {text}")
}

toolcell_sdk::export_hook!(Unruly);
toolcell_sdk::export!(unruly_order);
