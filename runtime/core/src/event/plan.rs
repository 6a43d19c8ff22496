//! Plan of a model, in steps that the user can follow.

use serde::{Deserialize, Serialize};

/// A goal and the steps towards it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Goal of the plan.
    pub goal: String,
    /// Steps in order.
    pub steps: Vec<PlanStep>,
}

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanStep {
    /// Description of the step.
    pub description: String,
    /// True if the step is done.
    #[serde(default)]
    pub completed: bool,
    /// Result of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

impl Plan {
    /// Returns the index of the first step that is not done; `None` if all are done.
    pub fn current(&self) -> Option<usize> {
        self.steps.iter().position(|step| !step.completed)
    }
}

/// Formats the plan for the model and the user: the goal, then one line for each step.
impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Goal: {}", self.goal)?;
        let current = self.current();
        for (i, step) in self.steps.iter().enumerate() {
            let mark = match (step.completed, current == Some(i)) {
                (true, _) => "x",
                (false, true) => ">",
                (false, false) => " ",
            };
            write!(f, "\n{}. [{mark}] {}", i + 1, step.description)?;
            if let Some(result) = &step.result {
                write!(f, ": {result}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_is_printed_with_goal_steps_and_current_mark() {
        let step = |description: &str, completed, result: Option<&str>| PlanStep {
            description: description.into(),
            completed,
            result: result.map(str::to_owned),
        };
        let plan = Plan {
            goal: "Ship it".into(),
            steps: vec![
                step("Build", true, Some("no warnings")),
                step("Test", false, None),
                step("Tag", false, None),
            ],
        };
        assert_eq!(plan.current(), Some(1));
        assert_eq!(
            plan.to_string(),
            "Goal: Ship it\n1. [x] Build: no warnings\n2. [>] Test\n3. [ ] Tag"
        );
    }

    #[test]
    fn current_step_is_the_first_that_is_not_done() {
        let step = |completed| PlanStep {
            description: String::new(),
            completed,
            result: None,
        };
        for (steps, current) in [
            (vec![], None),
            (vec![step(true)], None),
            (vec![step(false), step(false)], Some(0)),
            (vec![step(true), step(true), step(false)], Some(2)),
        ] {
            let goal = String::new();
            assert_eq!(Plan { goal, steps }.current(), current);
        }
    }
}
