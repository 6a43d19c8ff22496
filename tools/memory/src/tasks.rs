//! `memory_tasks`.

use std::cmp::Reverse;

use toolcell_sdk::{Result, output, tool};

use crate::memory::label;
use crate::shelf::Shelf;
use crate::task::{Priority, Status, Task, TaskView};

/// Most tasks in one answer.
const MAX_LIMIT: u32 = 100;

/// Tasks.
#[output]
pub(crate) struct Listed {
    /// Active ones first, then those that can start, then the blocked ones; within that, those that matter most.
    tasks: Vec<TaskView>,
    /// How many match, shown or not.
    total: usize,
    /// All tasks that there are, by how far they are.
    counts: Counts,
}

/// Numbers of tasks.
#[output]
#[derive(Default)]
struct Counts {
    active: usize,
    pending: usize,
    /// Those of the open ones that wait for another task.
    blocked: usize,
    done: usize,
    cancelled: usize,
}

/// List tasks and count them: by default those that are open, the next one to do first.
#[tool(title = "List tasks", read_only, idempotent)]
pub(crate) fn memory_tasks(
    /// Only with one of these statuses; the open ones (`active`, `pending`) unless said otherwise.
    #[default(vec![Status::Active, Status::Pending])]
    status: Vec<Status>,
    /// Only with at least this priority.
    priority: Option<Priority>,
    /// Only with this tag.
    tag: Option<String>,
    /// Only those that wait for another task, or only those that do not.
    blocked: Option<bool>,
    /// Most tasks to list, up to 100.
    #[default(20)]
    limit: u32,
) -> Result<Listed> {
    let tag = tag.map(|tag| label("tag", &tag)).transpose()?;
    let shelf = Shelf::open()?;
    let all = Task::all(&shelf, &shelf.keys()?)?;
    let mut counts = Counts::default();
    let mut fitting = Vec::new();
    for (number, task) in &all {
        let is_blocked = !task.blocked_by(&all).is_empty();
        counts.blocked += usize::from(is_blocked);
        *match task.status {
            Status::Active => &mut counts.active,
            Status::Pending => &mut counts.pending,
            Status::Done => &mut counts.done,
            Status::Cancelled => &mut counts.cancelled,
        } += 1;
        let fits = status.contains(&task.status)
            && priority.is_none_or(|least| task.priority >= least)
            && tag.as_ref().is_none_or(|tag| task.tags.contains(tag))
            && blocked.is_none_or(|wanted| wanted == is_blocked);
        if fits {
            let order = (
                !task.status.is_open(),
                is_blocked,
                task.status,
                Reverse(task.priority),
                *number,
            );
            fitting.push((order, *number, task));
        }
    }
    fitting.sort_by_key(|(order, ..)| *order);
    let total = fitting.len();
    fitting.truncate(limit.clamp(1, MAX_LIMIT) as usize);
    Ok(Listed {
        tasks: fitting
            .into_iter()
            .map(|(_, number, task)| task.view(number, &all))
            .collect(),
        total,
        counts,
    })
}
