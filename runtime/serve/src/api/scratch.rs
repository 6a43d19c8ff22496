//! Changes in scratch directories: shown, committed and discarded by file. They are files of the user, and no client's.

use hyper::Response;
use serde::Deserialize;
use toolcell_http::BoxBody;

use crate::answer::{self, Failure};
use crate::clients::{AuditLine, Decision};
use crate::host::ScratchDecision;
use crate::server::{Call, Server};

/// Maximum number of files of a request.
pub(super) const MAX_FILES: usize = 10_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Chosen {
    #[serde(default)]
    files: Option<Vec<String>>,
}

/// # Errors
/// The client is not the user of the server.
fn check(call: &Call) -> Result<(), Failure> {
    match call.caller.owner.is_empty() {
        true => Ok(()),
        false => {
            let message = "scratch directories are those of the user of the server";
            Err(Failure::new(hyper::StatusCode::FORBIDDEN, "forbidden", message))
        }
    }
}

fn none() -> Failure {
    Failure::not_found("there is no such scratch directory")
}

pub(super) async fn list(server: &Server, call: &Call) -> Result<Response<BoxBody>, Failure> {
    check(call)?;
    Ok(answer::ok(&server.turns.host.scratches().await?))
}

pub(super) async fn show(server: &Server, call: &Call, name: &str) -> Result<Response<BoxBody>, Failure> {
    check(call)?;
    let shown = server.turns.host.scratch(name).await?;
    Ok(answer::ok(&shown.ok_or_else(none)?))
}

pub(super) async fn decide(
    server: &Server,
    call: &Call,
    name: &str,
    decision: ScratchDecision,
) -> Result<Response<BoxBody>, Failure> {
    check(call)?;
    let chosen: Chosen = call.parse()?;
    if chosen.files.as_ref().is_some_and(|files| files.len() > MAX_FILES) {
        return Err(Failure::invalid(format!("`files` has at most {MAX_FILES} paths")));
    }
    let host = &server.turns.host;
    let what = match decision {
        ScratchDecision::Commit => "commit",
        ScratchDecision::Discard => "discard",
    };
    let count = match &chosen.files {
        Some(files) => format!("{} files", files.len()),
        None => "all files".into(),
    };
    let done = host.decide_scratch(name, decision, chosen.files).await;
    let line = |is_allowed| {
        AuditLine::new(
            Some(&call.caller.owner),
            Decision::Scratch,
            is_allowed,
            format!("{what} {name}: {count}"),
        )
    };
    match done {
        Ok(Some(done)) => {
            host.audit(&line(true));
            Ok(answer::ok(&done))
        }
        Ok(None) => {
            host.audit(&line(false));
            Err(none())
        }
        Err(refusal) => {
            host.audit(&line(false));
            Err(refusal.into())
        }
    }
}
