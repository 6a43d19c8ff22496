//! Servers that do not answer any more: started again, and ended.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use toolcell_core::{Receipt, ToolError};

use super::said;
use crate::client::process::{InProcessServer, OutputTail};
use crate::client::server::{McpServer, Options};
use crate::client::testing::{Does, Scripted, call, fail, identity, text};

#[tokio::test(start_paused = true)]
async fn server_that_never_answers_again_is_started_again() {
    let scripted = Scripted::calls(|process, message| match process {
        0 => vec![],
        _ => vec![text(message, "done")],
    });
    let server = scripted.start().await;
    for _ in 0..3 {
        assert!(matches!(fail(&server).await, ToolError::Unavailable { .. }));
    }
    assert_eq!(said(&call(&server).await), "done");
    assert_eq!(scripted.starts(), 2);
}

#[tokio::test(start_paused = true)]
async fn program_of_a_server_ends_with_its_connection() {
    // One that hangs, and one that closes its output and runs on.
    for (does, calls) in [(Does::Hang, 3), (Does::End, 1)] {
        let scripted = Scripted::calls(move |_, _| vec![does.clone()]);
        let program = Arc::new(());
        let running = Arc::downgrade(&program);
        let once = Mutex::new(Some(program));
        let start = move || {
            let (ours, theirs) = tokio::io::duplex(1 << 10);
            tokio::spawn(scripted.clone().serve(theirs));
            Ok(InProcessServer {
                stream: Box::new(ours),
                guard: Box::new(once.lock().unwrap().take()),
                errors: OutputTail::default(),
                exit_code: Arc::default(),
            })
        };
        let server = McpServer::in_process(start, Receipt::default, Options::new("srv"), identity()).await;
        let server = server.unwrap();
        for _ in 0..calls {
            assert!(running.upgrade().is_some());
            assert!(matches!(fail(&server).await, ToolError::Unavailable { .. }));
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(running.upgrade().is_none(), "{calls}");
    }
}
