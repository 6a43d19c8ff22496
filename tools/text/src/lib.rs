//! The `text` tools: count, compare and hash text, given directly or as a file.

mod count;
mod diff;
mod hash;
mod source;

use count::text_count;
use diff::text_diff;
use hash::text_hash;

toolcell_sdk::export!(text_count, text_diff, text_hash);
