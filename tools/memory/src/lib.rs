//! The `memory` tools: notes that outlive a session, ranked search in them, links between them, and tasks.
//!
//! All data is in one bucket, under keys that need no index and no lock (`shelf`): each change is one operation of the
//! store, so a call that is killed has done all or nothing, and concurrent calls do not overwrite each other.

mod discover;
mod graph;
mod id;
mod link;
mod memory;
mod moment;
mod rank;
mod recall;
mod shelf;
mod store;
mod task;
mod tasks;
mod words;

use discover::memory_discover;
use link::memory_link;
use recall::memory_recall;
use store::memory_store;
use task::memory_task;
use tasks::memory_tasks;

toolcell_sdk::export!(
    memory_store,
    memory_recall,
    memory_discover,
    memory_link,
    memory_task,
    memory_tasks,
);
