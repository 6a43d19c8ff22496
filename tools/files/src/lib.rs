//! The `files` tools: list, read, search, write, edit, move, copy and delete files below the directories that the policy grants.
//! They can also be read as resources.

mod delete;
mod edit;
mod ignore_rules;
mod list;
mod media;
mod read;
mod relocate;
mod replace;
mod resources;
mod search;
mod walk;
mod write;

use delete::files_delete;
use edit::files_edit;
use list::files_list;
use read::files_read;
use relocate::{files_copy, files_make_directory, files_move};
use search::files_search;
use write::files_write;

toolcell_sdk::export!(
    files_list,
    files_read,
    files_search,
    files_write,
    files_edit,
    files_move,
    files_copy,
    files_make_directory,
    files_delete
);

toolcell_sdk::export_resources!(resources::Files);
