//! Users, terminals and servers of the suite.

pub(crate) mod cli_user;
pub(crate) mod model_server;
pub(crate) mod planted;
pub(crate) mod pty;
pub(crate) mod snippets;
