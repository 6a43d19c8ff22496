//! Serves agents over HTTP: to browsers, to OpenAI clients, and to programs by an API of its own (`API.md`).
//!
//! The crate knows no agent and no tool: a [`Host`] runs turns and describes what it has, and a
//! [`SessionStore`](toolcell_core::SessionStore) keeps the sessions. Connections, hosts, origins, tokens, limits and drain are those of
//! [`toolcell_http`], as for the server of the Model Context Protocol, which is mounted beside it.
//!
//! | concept | module |
//! |---|---|
//! | routes, and who may use them | `server`, `access`, `clients` |
//! | what the server needs of the program around it | `host` |
//! | sessions with a turn or a reader: events, questions, state | `live`, `turns` |
//! | the API of Toolcell | `api` |
//! | the API of OpenAI clients | `v1` |
//! | room for what clients do not read | `room` |
//! | metrics for supervision | `metrics` |
//! | files of the page | `page` |
//! | Markdown of answers, for the page | `markdown` |

mod access;
mod answer;
mod api;
mod body;
mod clients;
mod host;
mod live;
mod markdown;
mod metrics;
mod page;
mod room;
mod server;
mod turns;
mod v1;

pub use access::{Access, LINK_PATH, LinkPrinter, PageKey};
pub use clients::{AuditLine, Client, ClientLimits, Decision, MAX_REQUESTS};
pub use host::{
    AgentInfo, Asker, Attachment, CallPlace, CancelCall, ClientCall, ClientTool, Found, Host, Keep,
    PreparedTurn, QuestionText, Refusal, RunTurn, ScratchDecision, Start, TextPart, TurnEnd, TurnRequest,
    Words,
};
pub use room::{MAX_CLIENT_MESSAGES, MAX_MESSAGES, MAX_UNREAD};
pub use server::{MAX_CONNECTIONS, Server};
pub use turns::MAX_TURNS;
