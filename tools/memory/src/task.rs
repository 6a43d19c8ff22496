//! The tool `memory_task`, and tasks as the result of their changes.
//!
//! A change contains only the fields that it changes, so that concurrent calls that change different fields both take
//! effect. A task without its first change does not exist: it was deleted meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use toolcell_sdk::serde::{Deserialize, Serialize};
use toolcell_sdk::{Result, ToolError, input, output, tool};

use crate::id::Id;
use crate::memory::{MAX_CONTENT, labels, line};
use crate::moment;
use crate::storage::{Keys, Storage};

/// Maximum dependencies of one task.
const MAX_DEPENDENCIES: usize = 32;

/// Operation on a task.
#[input]
#[derive(Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Action {
    Create,
    Update,
    Complete,
    Delete,
}

/// Progress of a task.
#[input]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Active,
    Pending,
    Done,
    Cancelled,
}

/// Priority of a task.
#[input]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Priority {
    Low,
    Medium,
    High,
    Critical,
}

/// Change of a task.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(crate = "toolcell_sdk::serde", default)]
struct Change {
    at: String,
    /// Set by the change that makes the task.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    created: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<Priority>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tags: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    depends_on: Option<BTreeSet<u64>>,
}

/// Task as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) status: Status,
    pub(crate) priority: Priority,
    pub(crate) tags: Vec<String>,
    pub(crate) depends_on: BTreeSet<u64>,
    pub(crate) created: String,
    pub(crate) updated: String,
}

/// Task as the model reads it.
#[output]
pub(crate) struct TaskView {
    /// Identifier of the task.
    pub(crate) id: String,
    pub(crate) title: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) description: String,
    pub(crate) status: Status,
    pub(crate) priority: Priority,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<String>,
    /// Tasks that it depends on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) depends_on: Vec<String>,
    /// Dependencies that are still open; the task cannot start before they are done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) blocked_by: Vec<String>,
    /// Time of creation, in UTC.
    pub(crate) created: String,
    /// Time of the last change, in UTC.
    pub(crate) updated: String,
}

/// Result of an operation.
#[output]
pub(crate) struct Done {
    /// The task as it is now; after `delete`, as it was.
    task: TaskView,
    /// Tasks that waited for this one alone and can start now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unblocked: Vec<String>,
}

impl Status {
    /// True if there is still something to do.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Active)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Active => "active",
            Self::Pending => "pending",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        })
    }
}

impl Task {
    /// All tasks that there are.
    pub(crate) fn all(storage: &Storage, keys: &Keys) -> Result<BTreeMap<u64, Self>> {
        let changes = storage.changes::<Change>(keys)?;
        let task = |(number, changes)| Some((number, Self::of(changes)?));
        Ok(changes.into_iter().filter_map(task).collect())
    }

    fn of(changes: Vec<Change>) -> Option<Self> {
        let made = changes.iter().find(|change| change.created)?;
        let mut task = Self {
            title: String::new(),
            description: String::new(),
            status: Status::Pending,
            priority: Priority::Medium,
            tags: Vec::new(),
            depends_on: BTreeSet::new(),
            created: made.at.clone(),
            updated: String::new(),
        };
        for change in changes {
            task.apply(change);
        }
        Some(task)
    }

    fn apply(&mut self, change: Change) {
        fn set<T>(field: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *field = value;
            }
        }
        set(&mut self.title, change.title);
        set(&mut self.description, change.description);
        set(&mut self.status, change.status);
        set(&mut self.priority, change.priority);
        set(&mut self.tags, change.tags);
        set(&mut self.depends_on, change.depends_on);
        self.updated = change.at;
    }

    /// The tasks that it waits for.
    pub(crate) fn blocked_by(&self, all: &BTreeMap<u64, Self>) -> Vec<u64> {
        let is_open = |number: &&u64| all.get(number).is_some_and(|task| task.status.is_open());
        if self.status.is_open() {
            self.depends_on.iter().filter(is_open).copied().collect()
        } else {
            Vec::new()
        }
    }

    pub(crate) fn view(&self, number: u64, all: &BTreeMap<u64, Self>) -> TaskView {
        TaskView {
            id: Id::Task(number).to_string(),
            title: self.title.clone(),
            description: self.description.clone(),
            status: self.status,
            priority: self.priority,
            tags: self.tags.clone(),
            depends_on: named(&self.depends_on),
            blocked_by: named(&self.blocked_by(all)),
            created: self.created.clone(),
            updated: self.updated.clone(),
        }
    }
}

fn named<'a>(numbers: impl IntoIterator<Item = &'a u64>) -> Vec<String> {
    numbers.into_iter().map(|n| Id::Task(*n).to_string()).collect()
}

/// Create, update, complete or delete one task. Tasks outlive the session; `memory_tasks` lists them.
///
/// An update changes what is given and leaves the rest as it is.
#[tool(title = "Keep a task", destructive)]
pub(crate) fn memory_task(
    /// `create` needs a `title`; the others need an `id`. `complete` sets the status `done`.
    action: Action,
    /// Id of the task, such as `t18`.
    id: Option<String>,
    /// Work to be done, in one line.
    title: Option<String>,
    /// Details needed for it.
    #[alias("content", "text")]
    description: Option<String>,
    /// Progress; a new task is `pending`.
    status: Option<Status>,
    /// Priority; a new task is `medium`.
    priority: Option<Priority>,
    /// Words to find it by.
    tags: Option<Vec<String>>,
    /// Ids of the tasks that must be done first, all of them.
    depends_on: Option<Vec<String>>,
) -> Result<Done> {
    let fields = [
        title.is_some(),
        description.is_some(),
        status.is_some(),
        priority.is_some(),
        tags.is_some(),
        depends_on.is_some(),
    ];
    let has_fields = fields.contains(&true);
    let number = match (action, &id) {
        (Action::Create, None) if title.is_some() => None,
        (Action::Create, None) => return Err(ToolError::invalid("`create` needs a `title`")),
        (Action::Create, Some(_)) => {
            return Err(ToolError::invalid(
                "a new task has no `id` yet; use `update` to change one",
            ));
        }
        (_, None) => return Err(ToolError::invalid("say which task by its `id`")),
        (Action::Update, Some(_)) if !has_fields => {
            return Err(ToolError::invalid("`update` needs something to change"));
        }
        (Action::Delete, Some(_)) if has_fields => {
            return Err(ToolError::invalid("`delete` needs the `id` and nothing else"));
        }
        (Action::Complete, Some(_)) if status.is_some() => {
            return Err(ToolError::invalid("`complete` sets the status itself"));
        }
        (_, Some(id)) => Some(Id::task(id)?),
    };
    if description.as_ref().is_some_and(|text| text.len() > MAX_CONTENT) {
        return Err(ToolError::invalid(format_args!(
            "`description` has more than {MAX_CONTENT} bytes"
        )));
    }
    let mut change = Change {
        at: moment::now(),
        created: action == Action::Create,
        title: title.map(|title| line("title", &title)).transpose()?,
        description,
        status: if action == Action::Complete {
            Some(Status::Done)
        } else {
            status
        },
        priority,
        tags: tags.map(|tags| labels(&tags)).transpose()?,
        depends_on: None,
    };
    let needs = depends_on.map(|ids| {
        ids.iter()
            .map(|id| Id::task(id))
            .collect::<Result<BTreeSet<u64>>>()
    });
    change.depends_on = needs.transpose()?;

    let storage = Storage::open()?;
    let keys = storage.keys()?;
    let mut all = Task::all(&storage, &keys)?;
    if let Some(number) = number
        && !all.contains_key(&number)
    {
        let id = Id::Task(number);
        return Err(ToolError::failed(format_args!(
            "there is no task `{id}`; `memory_tasks` lists tasks"
        )));
    }
    if let Some(needs) = &change.depends_on {
        check_dependencies(number, needs, &all)?;
    }
    let waiting: Vec<u64> = all
        .iter()
        .filter(|(_, task)| task.blocked_by(&all).as_slice() == number.as_slice())
        .map(|(number, _)| *number)
        .collect();
    let (number, view) = match (action, number) {
        (Action::Delete, Some(number)) => {
            let view = all[&number].view(number, &all);
            storage.remove_task(number, &keys)?;
            all.remove(&number);
            (number, view)
        }
        (_, known) => {
            let drawn = storage.draw()?;
            // The first change of a task has the number of the task.
            let number = known.unwrap_or(drawn);
            storage.put_change(number, drawn, &change)?;
            let task = match all.remove(&number) {
                Some(mut task) => {
                    task.apply(change);
                    Some(task)
                }
                None => Task::of(vec![change]),
            };
            all.extend(task.map(|task| (number, task)));
            (number, all[&number].view(number, &all))
        }
    };
    let unblocked = waiting.iter().filter(|waits| {
        let task = all.get(waits).filter(|task| task.status.is_open());
        **waits != number && task.is_some_and(|task| task.blocked_by(&all).is_empty())
    });
    Ok(Done {
        unblocked: named(unblocked),
        task: view,
    })
}

/// Checks that tasks can be waited for.
fn check_dependencies(task: Option<u64>, needs: &BTreeSet<u64>, all: &BTreeMap<u64, Task>) -> Result<()> {
    if needs.len() > MAX_DEPENDENCIES {
        return Err(ToolError::invalid(format_args!(
            "a task can depend on at most {MAX_DEPENDENCIES} others"
        )));
    }
    if let Some(unknown) = needs.iter().find(|number| !all.contains_key(number)) {
        let id = Id::Task(*unknown);
        return Err(ToolError::invalid(format_args!(
            "`depends_on`: there is no such task `{id}`"
        )));
    }
    let Some(task) = task else { return Ok(()) };
    let mut open: Vec<u64> = needs.iter().copied().collect();
    let mut seen = BTreeSet::new();
    while let Some(number) = open.pop() {
        if number == task {
            let id = Id::Task(task);
            return Err(ToolError::invalid(format_args!("`{id}` would depend on itself")));
        }
        if seen.insert(number) {
            open.extend(all.get(&number).into_iter().flat_map(|task| &task.depends_on));
        }
    }
    Ok(())
}
