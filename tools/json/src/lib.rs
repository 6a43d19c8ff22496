//! The `json` tool: jq programs on JSON documents of any shape, run by jaq.

mod document;
mod program;
mod query;

use query::json_query;

toolcell_sdk::export!(json_query);
