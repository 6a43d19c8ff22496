//! Serves [tools](toolcell_core::Tool) to clients of the Model Context Protocol (MCP), and makes tools of those that its
//! servers have ([`client`]).
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
//! | the server of tools | `server` |
//! | the requests of one client | `server::connection`, `server::call` |
//! | requests that are not answered yet | `server::in_flight` |
//! | messages that the client has not read yet | `server::outbox` |
//! | the same over HTTP: tokens, sessions, limits, metrics | `server::http` |
//! | questions to the user about a call | `server::question` |
//! | results and tools in the form of each version | `server::result`, `server::catalog` |
//! | resources and prompts beside tools | `server::context` |
//! | servers of others, whose tools become ours | [`client`] |
//!
//! Specifications: <https://modelcontextprotocol.io/specification>, <https://www.jsonrpc.org/specification>.

pub mod client;
mod lines;
mod message;
mod param_headers;
mod server;
mod version;

pub use lines::MAX_MESSAGE_BYTES;
pub use server::http::{
    Access, Authorization, HttpServer, KnownBy, MAX_CONNECTIONS, MAX_HTTP_RUNNING, MAX_HTTP_UNREAD_BYTES,
    MAX_REQUESTS, MAX_SESSIONS, Metrics, PATH, Reached, SESSION_IDLE,
};
pub use server::{
    BATCH_PART_BYTES, Duplicate, Identity, LOG_KEY, MAX_BATCH, MAX_BATCHES, MAX_COMPLETIONS, MAX_FOLLOWED,
    MAX_IN_FLIGHT, MAX_IN_FLIGHT_BYTES, MAX_QUESTIONS, MAX_RUNNING, MAX_STALL, MAX_UNREAD_BYTES,
    MAX_UNREAD_WITH_NOTIFICATION, Offered, PAGE_CONTEXT, PAGE_TOOLS, QUESTION_TIME, RECEIPT_KEY, Server,
    ServerObserver,
};
pub use version::Version;
