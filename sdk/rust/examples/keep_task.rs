//! Hook that keeps the user's first message word for word when the older part of a conversation is summarised.

use toolcell_sdk::hook::{FinishedSummary, Hook, Role, Turn, Verdict};
use toolcell_sdk::{Result, hook};

struct KeepTask;

/// Keeps the first message of the user when a conversation is summarised.
#[hook]
impl Hook for KeepTask {
    fn after_summary(summary: &mut FinishedSummary, _turn: &mut Turn) -> Result<Verdict> {
        let first = summary
            .replaced
            .iter()
            .position(|message| message.role() == Role::User);
        if let Some(first) = first {
            let task = summary.replaced.remove(first);
            summary.messages.insert(0, task);
        }
        Ok(Verdict::Proceed)
    }
}

toolcell_sdk::export_hook!(KeepTask);

#[cfg(test)]
mod tests {
    use toolcell_sdk::hook::Message;

    use super::*;

    #[test]
    fn first_message_of_the_user_comes_before_the_summary() {
        let mut summary = FinishedSummary {
            replaced: vec![
                Message::assistant("Hello."),
                Message::user("The task."),
                Message::user("Another."),
            ],
            messages: vec![Message::assistant("The summary.")],
        };
        KeepTask::after_summary(&mut summary, &mut Turn::default()).unwrap();
        let texts: Vec<String> = summary.messages.iter().map(Message::text).collect();
        assert_eq!(texts, ["The task.", "The summary."]);
    }
}
