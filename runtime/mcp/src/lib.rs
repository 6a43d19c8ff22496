//! Serves [tools](toolcell_core::Tool) to clients of the Model Context Protocol (MCP).
//!
//! A [`Server`] answers the messages of one client on a stream, such as standard input and output. The framing, the
//! envelope and the types are implemented here, because a call in a cell takes microseconds. The crate neither decides
//! what a tool may do nor which calls run: the tools it is given do.
//!
//! Only this crate writes to the output, one JSON message on each line. What a tool returns, logs or reports is always a
//! string or a value inside such a message.
//!
//! | concept | module |
//! |---|---|
//! | versions of the protocol, negotiated for each request or by `initialize` | `version` |
//! | lines, and JSON-RPC 2.0 messages in them | `lines`, `message` |
//! | the requests of one client | `connection`, `call` |
//! | requests that are not answered yet | `in_flight` |
//! | messages that the client has not read yet | `outbox` |
//! | results and tools in the form of each version | `result`, `catalog` |
//!
//! Specifications: <https://modelcontextprotocol.io/specification>, <https://www.jsonrpc.org/specification>.

mod call;
mod catalog;
mod connection;
mod in_flight;
mod lines;
mod message;
mod outbox;
mod result;
mod server;
mod state;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod version;

pub use call::{LOG_KEY, MAX_RUNNING};
pub use catalog::{DuplicateTool, PAGE_TOOLS};
pub use connection::{MAX_BATCH, MAX_BATCHES};
pub use in_flight::{MAX_IN_FLIGHT, MAX_IN_FLIGHT_BYTES};
pub use lines::MAX_MESSAGE_BYTES;
pub use outbox::{BATCH_PART_BYTES, MAX_STALL, MAX_UNREAD_BYTES, MAX_UNREAD_WITH_NOTIFICATION};
pub use result::RECEIPT_KEY;
pub use server::Server;
pub use state::{Identity, ServerObserver};
pub use version::Version;
