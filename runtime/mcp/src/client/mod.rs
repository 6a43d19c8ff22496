//! Client of MCP servers: their tools become [`Tool`](toolcell_core::Tool)s.
//!
//! A server is an external program, outside of every cell. What it sends is bounded and checked like the output of
//! a component, and nothing that it does ends a run: a server that crashes, hangs, floods or answers nonsense fails its
//! own calls only.
//!
//! | concept | module |
//! |---|---|
//! | a server: started, restarted, its tools and calls | `server` |
//! | its process and the group of it | `process` |
//! | requests over HTTP, sessions, events | `http` |
//! | access tokens of a server over HTTP, which the embedder supplies | `http/authorization` |
//! | one connection: requests, answers, and unsolicited messages | `link`, `pending`, `message` |
//! | messages between the requests, over HTTP from streams of their own | `link/listening` |
//! | negotiation of the version, lists of tools | `session` |
//! | definitions and results in our form | `definition`, `content` |
//! | resources and prompts, as tools | `resources` |
//! | questions of the server to the user | `elicitation` |
//! | one tool of a server | `tool` |

mod content;
mod definition;
mod elicitation;
mod error;
mod http;
mod link;
mod message;
mod pending;
mod process;
mod resources;
mod searched;
mod server;
mod session;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tool;

pub use content::MAX_RESULT_BYTES;
pub use definition::{Definition, LeftOut, MAX_DESCRIPTION, MAX_TITLE, MAX_TOOLS};
pub use elicitation::{
    Elicitation, ElicitationAnswer, ElicitationField, Elicitor, FieldKind, MAX_CHOICES, MAX_ELICITATIONS,
    MAX_FIELDS,
};
pub use error::{ServerError, StartError};
pub use http::{
    Challenge, MAX_CHALLENGE_BYTES, MAX_STREAM_BYTES, Refused, Remote, RemoteError, TokenSource,
    check_header_name, check_url,
};
pub use link::{MAX_ANSWER_BYTES, MAX_MESSAGE_MEMORY, MAX_VALUES};
pub use message::MAX_REQUEST_ID;
pub use pending::MAX_UNSOLICITED;
pub use process::{ByteStream, InProcessServer, Launch, MAX_OUTPUT_TAIL, OutputTail, end_all_processes};
pub use resources::{MAX_ENTRIES, MAX_LIST_BYTES, PromptInfo};
pub use server::{MAX_RESTART_DELAY, MAX_TIMEOUT, McpServer, Options, RESTART_DELAY};
pub use session::{MAX_PAGES, MAX_ROUNDS};
