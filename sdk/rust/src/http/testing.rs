//! Responses for tests on the host, where there is no network.

use std::cell::RefCell;

use super::request::Target;
use super::{Request, Response};
use crate::{Result, ToolError, show};

type Server = Box<dyn FnMut(&Request) -> Result<Response>>;

thread_local! {
    static SERVER: RefCell<Option<Server>> = const { RefCell::new(None) };
}

/// Answers the requests that this thread sends from now on.
pub fn respond(server: impl FnMut(&Request) -> Result<Response> + 'static) {
    SERVER.set(Some(Box::new(server)));
}

/// A response with a status and a body.
pub fn response(status: u16, body: impl Into<Vec<u8>>) -> Response {
    Response {
        status,
        body: body.into(),
        ..Response::default()
    }
}

impl Response {
    /// Adds a header, in tests.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.to_lowercase(), value.into()));
        self
    }
}

pub(super) fn send(request: &Request, _: &Target<'_>, _: &[(String, Vec<u8>)]) -> Result<Response> {
    // Taken out, so that a server may send requests itself.
    let Some(mut server) = SERVER.take() else {
        return Err(ToolError::unavailable(format_args!(
            "{}: no network outside of a cell; in a test, call `http::testing::respond`",
            show::quoted(request.url())
        )));
    };
    let response = server(request);
    SERVER.with_borrow_mut(|slot| {
        slot.get_or_insert(server);
    });
    response
}
