//! `toolcell tool test` and `toolcell tool dev`.

mod cases;
mod checks;
mod dev;

use std::path::PathBuf;

use crate::repository::workspace::root;
use crate::support::cli_user::User;

/// Names of the shipped components.
const SHIPPED: [&str; 6] = ["clock", "fetch", "files", "json", "memory", "text"];

/// A user whose temporary files are below the home directory.
fn user() -> (User, PathBuf) {
    let mut user = User::new();
    let temporary = user.home().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    user.var("TMPDIR", temporary.to_str().unwrap());
    (user, temporary)
}

#[test]
fn shipped_tools_pass_their_own_tests() {
    let (user, temporary) = user();
    let mut with_cases = 0;
    for name in SHIPPED {
        let cases = root().join("tools").join(name).join("cases.toml");
        let mut arguments = vec!["tool", "test", name, "--strict", "--json"];
        if cases.exists() {
            with_cases += 1;
            arguments.extend(["--cases", cases.to_str().unwrap()]);
        }
        let report = user.run(&arguments).ended(0).json();
        assert_eq!((&report["failed"], &report["warned"]), (&0.into(), &0.into()));
        assert!(report["calls"].as_u64().unwrap() > 30, "{report}");
    }
    assert!(with_cases >= 4);
    // Planted files are removed.
    assert_eq!(std::fs::read_dir(temporary).unwrap().count(), 0);
}
