//! Routes of `/api` and `/v1`: which methods a path takes, and what the OpenAPI document says of them.

use super::{MAX_DAYS, events, sessions};

/// Route of the API.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    /// Path, with `{id}` and the like for one part of it.
    pub(crate) path: &'static str,
    pub(super) summary: &'static str,
    /// Schema of the body; empty for none.
    pub(super) body: &'static str,
    /// Status of a success, and the schema of its body; empty for one that is not JSON.
    pub(super) success: (u16, &'static str),
    /// Statuses of errors, beside those of every route.
    pub(super) errors: &'static [u16],
    pub(super) query: &'static [Param],
}

/// Parameter of the query.
pub(super) struct Param {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

/// Type of a parameter.
pub(super) enum Kind {
    /// Text of at most so many bytes; `usize::MAX` is no maximum of its own.
    Text(usize),
    /// Whole number from 0 with its maximum; `u64::MAX` is none.
    Number(u64),
}

const fn text(name: &'static str, most: usize) -> Param {
    let kind = Kind::Text(most);
    Param { name, kind }
}

const fn number(name: &'static str, most: u64) -> Param {
    let kind = Kind::Number(most);
    Param { name, kind }
}

/// Statuses of errors of every route: no token, another host, too many requests, a failure, and the end of the server. The status 405 is
/// that of methods that are not there.
pub(super) const COMMON: [u16; 5] = [401, 403, 429, 500, 503];

/// Statuses of errors of a route with a body: wrong, too large, not JSON.
pub(super) const OF_BODY: [u16; 3] = [400, 413, 415];

const fn get(path: &'static str, summary: &'static str, schema: &'static str) -> Route {
    Route {
        method: "GET",
        path,
        summary,
        body: "",
        success: (200, schema),
        errors: &[],
        query: &[],
    }
}

const fn post(
    path: &'static str,
    summary: &'static str,
    body: &'static str,
    success: (u16, &'static str),
    errors: &'static [u16],
) -> Route {
    Route {
        method: "POST",
        path,
        summary,
        body,
        success,
        errors,
        query: &[],
    }
}

impl Route {
    const fn query(mut self, query: &'static [Param]) -> Self {
        self.query = query;
        self
    }

    const fn errors(mut self, errors: &'static [u16]) -> Self {
        self.errors = errors;
        self
    }
}

/// All routes.
pub(crate) const ROUTES: &[Route] = &[
    get("/api/info", "Version, agents and limits of the server", "Info"),
    get("/api/questions", "Open questions of all sessions", "Questions"),
    get("/api/tools", "Access and tools of each component", "Tools"),
    get("/api/usage", "Turns, tokens, costs and calls by day", "Usage")
        .query(&[number("days", MAX_DAYS)])
        .errors(&[400]),
    post(
        "/api/markdown",
        "Markdown as trees of known elements",
        "Markdown",
        (200, "Rendered"),
        &[],
    ),
    get("/api/sessions", "Sessions, most recently used first", "Sessions")
        .query(&[
            text("q", sessions::MAX_QUERY),
            number("limit", sessions::MAX_PAGE),
            text("cursor", usize::MAX),
        ])
        .errors(&[400]),
    post(
        "/api/sessions",
        "Creates a session",
        "NewSession",
        (201, "Session"),
        &[404],
    ),
    get(
        "/api/sessions/{id}",
        "A session, with its budget, plan and questions",
        "SessionDetails",
    ),
    Route {
        method: "PATCH",
        path: "/api/sessions/{id}",
        summary: "Names a session",
        body: "Name",
        success: (200, "Session"),
        errors: &[409],
        query: &[],
    },
    Route {
        method: "DELETE",
        path: "/api/sessions/{id}",
        summary: "Deletes a session",
        body: "",
        success: (204, ""),
        errors: &[409],
        query: &[],
    },
    post(
        "/api/sessions/{id}/fork",
        "Creates a session from the beginning of another one",
        "Fork",
        (201, "Session"),
        &[],
    ),
    get(
        "/api/sessions/{id}/export",
        "The events of a session as JSON lines",
        "",
    ),
    get(
        "/api/sessions/{id}/events",
        "Events of a session, as a page or as a stream",
        "Events",
    )
    .query(&[number("after", u64::MAX), number("limit", events::MAX_PAGE)])
    .errors(&[400]),
    get(
        "/api/sessions/{id}/receipts",
        "Calls of a session with their receipts",
        "Receipts",
    ),
    get(
        "/api/sessions/{id}/questions",
        "Open questions of a session",
        "Questions",
    ),
    post(
        "/api/sessions/{id}/questions/{question}",
        "Answers a question",
        "Answer",
        (200, "Nothing"),
        &[409],
    ),
    post(
        "/api/sessions/{id}/turns",
        "Starts a turn with a message",
        "Turn",
        (202, "Started"),
        &[409],
    ),
    post(
        "/api/sessions/{id}/resume",
        "Continues an open turn",
        "Nothing",
        (202, "Started"),
        &[409],
    ),
    post(
        "/api/sessions/{id}/abandon",
        "Ends an open turn",
        "Nothing",
        (202, "Started"),
        &[409],
    ),
    post(
        "/api/sessions/{id}/cancel",
        "Cancels the running turn",
        "Nothing",
        (202, "Nothing"),
        &[409],
    ),
    post(
        "/api/sessions/{id}/calls/{call}/cancel",
        "Cancels a running call, while its turn goes on",
        "Nothing",
        (202, "Nothing"),
        &[409],
    ),
    post(
        "/api/sessions/{id}/compact",
        "Summarises the older part of the conversation",
        "Nothing",
        (202, "Started"),
        &[409],
    ),
    post(
        "/api/sessions/{id}/undo",
        "Removes the last turn from the conversation",
        "Nothing",
        (200, "Undone"),
        &[409],
    ),
    get("/api/scratch", "Scratch directories", "Scratches"),
    get("/api/scratch/{name}", "Changes in a scratch directory", "Scratch").errors(&[400, 404, 409]),
    post(
        "/api/scratch/{name}/commit",
        "Commits changes in a scratch directory",
        "ScratchFiles",
        (200, "ScratchDone"),
        &[404, 409],
    ),
    post(
        "/api/scratch/{name}/discard",
        "Discards changes in a scratch directory",
        "ScratchFiles",
        (200, "ScratchDone"),
        &[404, 409],
    ),
    get("/v1/models", "Agents as models of OpenAI clients", "Models"),
    get("/v1/models/{model}", "An agent as a model", "Model").errors(&[400, 404]),
    post(
        "/v1/chat/completions",
        "Chat Completions of OpenAI clients",
        "ChatCompletion",
        (200, "ChatAnswer"),
        &[404, 409, 502],
    ),
    post(
        "/v1/responses",
        "Responses of OpenAI clients",
        "NewResponse",
        (200, "Response"),
        &[404, 409, 502],
    ),
    get("/v1/responses/{id}", "A stored response", "Response").errors(&[400]),
];

/// Methods of a path, and its route.
pub(crate) struct Found {
    /// Path of the route, with `{id}` and the like.
    pub(crate) route: &'static str,
    /// Methods that the path takes.
    pub(crate) methods: Vec<&'static str>,
}

/// Finds the route of a path; `None` if there is nothing at it.
pub(crate) fn find(path: &str) -> Option<Found> {
    let parts: Vec<&str> = path.split('/').collect();
    let fits = |route: &&Route| {
        let names: Vec<&str> = route.path.split('/').collect();
        let fit = |(name, part): (&&str, &&str)| name == part || (name.starts_with('{') && !part.is_empty());
        names.len() == parts.len() && names.iter().zip(&parts).all(fit)
    };
    let found: Vec<&Route> = ROUTES.iter().filter(fits).collect();
    let route = found.first()?.path;
    let mut methods: Vec<&str> = found.iter().map(|route| route.method).collect();
    // Where there is an answer to GET, there is its head (RFC 9110, section 9.3.2).
    if let Some(at) = methods.iter().position(|method| *method == "GET") {
        methods.insert(at + 1, "HEAD");
    }
    Some(Found { route, methods })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_has_the_methods_of_its_route() {
        for (path, route, methods) in [
            ("/api/info", "/api/info", &["GET", "HEAD"][..]),
            (
                "/api/sessions/1",
                "/api/sessions/{id}",
                &["GET", "HEAD", "PATCH", "DELETE"],
            ),
            ("/api/sessions/1/turns", "/api/sessions/{id}/turns", &["POST"]),
            ("/v1/models/a", "/v1/models/{model}", &["GET", "HEAD"]),
            ("/v1/responses", "/v1/responses", &["POST"]),
        ] {
            let found = find(path).unwrap();
            assert_eq!((found.route, &*found.methods), (route, methods));
        }
        for path in [
            "/api",
            "/api/",
            "/api/sessions/",
            "/api/sessions/1/none/x",
            "/v1/models/",
            "/v1/models/a/b",
        ] {
            assert!(find(path).is_none(), "{path}");
        }
    }
}
