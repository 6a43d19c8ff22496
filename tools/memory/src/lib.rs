//! The `memory` tools: notes that outlive a session, ranked search in them, links between them, and tasks.
//!
//! All data is in one bucket, under keys that need no lock (`storage`): each change is one operation of the store, so a
//! call that is killed has done all or nothing, and concurrent calls do not overwrite each other. An index of the words
//! (`index`) makes searching fast and never decides what is found.

mod discover;
mod graph;
mod id;
mod index;
mod link;
mod list_tasks;
mod memory;
mod moment;
mod rank;
mod recall;
mod remember;
mod storage;
mod task;
mod words;

use discover::memory_discover;
use link::memory_link;
use list_tasks::memory_tasks;
use recall::memory_recall;
use remember::memory_store;
use task::memory_task;

toolcell_sdk::export!(
    memory_store,
    memory_recall,
    memory_discover,
    memory_link,
    memory_task,
    memory_tasks,
);
