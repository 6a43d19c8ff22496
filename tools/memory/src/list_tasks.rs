//! The tool `memory_tasks`.

use std::cmp::Reverse;

use toolcell_sdk::{Result, output, tool};

use crate::memory::label;
use crate::storage::Storage;
use crate::task::{Priority, Status, Task, TaskView};

/// Maximum number of tasks in one answer.
const MAX_LIMIT: u32 = 100;

/// Matching tasks, their total number, and the number of all tasks by status.
#[output]
pub(crate) struct Listed {
    /// Active ones first, then those that can start, then the blocked ones; within that, those that matter most.
    tasks: Vec<TaskView>,
    /// Number of matching tasks, shown or not.
    total: usize,
    /// Number of all tasks by status.
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
    let storage = Storage::open()?;
    let all = Task::all(&storage, &storage.keys()?)?;
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

#[cfg(test)]
mod tests {
    use toolcell_sdk::serde_json::{Value, json};
    use toolcell_sdk::testing;

    use super::*;
    use crate::link::memory_link;
    use crate::remember::memory_store;
    use crate::task::memory_task;

    fn task(arguments: Value) -> Result<Value> {
        Ok(testing::call::<memory_task>(arguments)?.structured.unwrap())
    }

    fn create(title: &str, more: Value) -> String {
        let mut arguments = json!({"action": "create", "title": title});
        arguments
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        task(arguments).unwrap()["task"]["id"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    fn tasks(arguments: Value) -> Value {
        let listed = testing::call::<memory_tasks>(arguments);
        listed.unwrap().structured.unwrap()
    }

    fn ids(listed: &Value) -> Vec<&str> {
        let tasks = listed["tasks"].as_array().unwrap();
        tasks.iter().map(|task| task["id"].as_str().unwrap()).collect()
    }

    #[test]
    fn completing_the_last_dependency_unblocks_a_task() {
        let dig = create("Dig", json!({}));
        let pour = create("Pour", json!({}));
        let build = create("Build", json!({"depends_on": [dig, pour], "priority": "high"}));
        let listed = tasks(json!({}));
        assert_eq!(
            ids(&listed),
            [dig.as_str(), &pour, &build],
            "a blocked task comes last, whatever its priority"
        );
        assert_eq!(listed["tasks"][2]["blocked_by"], json!([dig, pour]));
        assert_eq!(ids(&tasks(json!({"blocked": true}))), [build.as_str()]);
        assert_eq!(ids(&tasks(json!({"blocked": false}))), [dig.as_str(), &pour]);

        let done = task(json!({"action": "complete", "id": dig})).unwrap();
        assert_eq!(done.get("unblocked"), None, "it depends on another task, too");
        let done = task(json!({"action": "complete", "id": pour})).unwrap();
        assert_eq!(done["unblocked"], json!([build]));
        assert_eq!(done["task"]["status"], "done");
        assert_eq!(
            tasks(json!({}))["counts"],
            json!({"active": 0, "pending": 1, "blocked": 0, "done": 2, "cancelled": 0})
        );
        assert_eq!(ids(&tasks(json!({"status": ["done"]}))), [dig.as_str(), &pour]);
    }

    #[test]
    fn update_changes_given_fields_only() {
        let id = create("Dig", json!({"tags": ["garden"], "description": "Deep"}));
        let changed = task(json!({"action": "update", "id": id, "status": "active", "title": "Dig more"}));
        let now = &changed.unwrap()["task"];
        assert_eq!(
            [
                &now["title"],
                &now["status"],
                &now["description"],
                &now["tags"][0],
                &now["priority"]
            ],
            ["Dig more", "active", "Deep", "garden", "medium"]
        );
        assert_eq!(tasks(json!({}))["tasks"][0]["title"], "Dig more");
    }

    #[test]
    fn concurrent_changes_both_apply() {
        use crate::storage::Storage;
        let id = create("Dig", json!({}));
        // Two calls that have read the same state.
        let storage = Storage::open().unwrap();
        storage
            .put_change(1, 7, &json!({"at": "x", "priority": "critical"}))
            .unwrap();
        storage
            .put_change(1, 6, &json!({"at": "y", "status": "active"}))
            .unwrap();
        let listed = tasks(json!({}));
        assert_eq!(ids(&listed), [id]);
        assert_eq!(listed["tasks"][0]["priority"], "critical");
        assert_eq!(listed["tasks"][0]["status"], "active");
    }

    #[test]
    fn deleted_task_is_removed_with_its_links() {
        let dig = create("Dig", json!({}));
        let build = create("Build", json!({"depends_on": [dig]}));
        testing::call::<memory_store>(json!({"content": "a note"})).unwrap();
        testing::call::<memory_link>(json!({"from": "m3", "to": dig, "relation": "about"})).unwrap();
        let done = task(json!({"action": "delete", "id": dig})).unwrap();
        assert_eq!(done["unblocked"], json!([build]));
        assert_eq!(ids(&tasks(json!({}))), [build.as_str()]);
        let keys = crate::storage::Storage::open().unwrap().keys().unwrap();
        assert!(keys.links.is_empty());
        let again = task(json!({"action": "delete", "id": dig})).unwrap_err();
        assert!(again.message().contains("there is no task"), "{again}");
        // A late change does not restore it.
        crate::storage::Storage::open()
            .unwrap()
            .put_change(1, 9, &json!({"at": "x"}))
            .unwrap();
        assert_eq!(ids(&tasks(json!({}))), [build.as_str()]);
    }

    #[test]
    fn tasks_are_ordered_by_urgency_and_filtered() {
        let low = create("Low", json!({"priority": "low"}));
        let critical = create("Critical", json!({"priority": "critical", "tags": ["now"]}));
        let active = create("Active", json!({"status": "active"}));
        assert_eq!(ids(&tasks(json!({}))), [active.as_str(), &critical, &low]);
        assert_eq!(
            ids(&tasks(json!({"priority": "medium"}))),
            [active.as_str(), &critical]
        );
        assert_eq!(ids(&tasks(json!({"tag": "#Now"}))), [critical.as_str()]);
        let listed = tasks(json!({"limit": 1}));
        assert_eq!((ids(&listed).len(), &listed["total"]), (1, &json!(3)));
    }

    #[test]
    fn invalid_requests_are_refused_with_a_remedy() {
        let a = create("A", json!({}));
        let b = create("B", json!({"depends_on": [a]}));
        for (arguments, says) in [
            (json!({"action": "create"}), "needs a `title`"),
            (json!({"action": "create", "title": "x", "id": a}), "no `id` yet"),
            (json!({"action": "update", "title": "x"}), "by its `id`"),
            (json!({"action": "update", "id": a}), "something to change"),
            (json!({"action": "delete", "id": a, "title": "x"}), "nothing else"),
            (
                json!({"action": "complete", "id": a, "status": "active"}),
                "sets the status itself",
            ),
            (
                json!({"action": "complete", "id": "t99"}),
                "there is no task `t99`",
            ),
            (json!({"action": "complete", "id": "m1"}), "a memory, not a task"),
            (
                json!({"action": "update", "id": a, "depends_on": [b]}),
                "would depend on itself",
            ),
            (
                json!({"action": "update", "id": a, "depends_on": [a]}),
                "would depend on itself",
            ),
            (
                json!({"action": "create", "title": "x", "depends_on": ["t99"]}),
                "no such task",
            ),
        ] {
            let error = task(arguments).unwrap_err();
            assert!(error.message().contains(says), "{error}");
        }
        assert_eq!(tasks(json!({}))["total"], 2);
    }
}
