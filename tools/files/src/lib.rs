//! The `files` tools: list, read, search, write and edit files below the directories that the policy grants.

mod edit;
mod ignore_rules;
mod list;
mod media;
mod read;
mod replace;
mod search;
mod walk;
mod write;

use edit::files_edit;
use list::files_list;
use read::files_read;
use search::files_search;
use write::files_write;

toolcell_sdk::export!(files_list, files_read, files_search, files_write, files_edit);
