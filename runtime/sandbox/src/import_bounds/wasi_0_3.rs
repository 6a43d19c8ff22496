//! Functions of WASI 0.3 that a component of the concurrent engine can import, as in the parent module.

use super::Row;

/// Functions with their bounds.
pub(super) const TABLE: &[(&str, &[Row])] = &[
    (
        "wasi:cli/environment",
        &[
            (
                "get-environment",
                "",
                "the granted variables, reserved before they are copied",
            ),
            (
                "get-arguments",
                "",
                "those of a program, reserved before they are copied",
            ),
            ("get-initial-cwd", "", "always empty"),
        ],
    ),
    ("wasi:cli/exit", &[("exit", "", ""), ("exit-with-code", "", "")]),
    (
        "wasi:cli/stdin",
        &[(
            "read-via-stream",
            "",
            "read into the memory of the guest, at most as much as it asks for",
        )],
    ),
    (
        "wasi:cli/stdout",
        &[(
            "write-via-stream",
            "read from the memory of the guest, and kept or logged within the limits of both",
            "",
        )],
    ),
    (
        "wasi:cli/stderr",
        &[(
            "write-via-stream",
            "read from the memory of the guest, and kept or logged within the limits of both",
            "",
        )],
    ),
    ("wasi:cli/terminal-stdin", &[("get-terminal-stdin", "", "")]),
    ("wasi:cli/terminal-stdout", &[("get-terminal-stdout", "", "")]),
    ("wasi:cli/terminal-stderr", &[("get-terminal-stderr", "", "")]),
    (
        "wasi:clocks/monotonic-clock",
        &[
            ("now", "", ""),
            ("get-resolution", "", ""),
            ("wait-until", "", ""),
            ("wait-for", "", ""),
        ],
    ),
    (
        "wasi:clocks/system-clock",
        &[("now", "", ""), ("get-resolution", "", "")],
    ),
    (
        "wasi:random/random",
        &[
            ("get-random-bytes", "", "1 MiB, reserved"),
            ("get-random-u64", "", ""),
        ],
    ),
    (
        "wasi:random/insecure",
        &[
            ("get-insecure-random-bytes", "", "1 MiB, reserved"),
            ("get-insecure-random-u64", "", ""),
        ],
    ),
    ("wasi:random/insecure-seed", &[("get-insecure-seed", "", "")]),
];

/// Kinds of resources that a function can create, beside streams and futures, which count as handles and are paid
/// for in advance (`TASK_OBJECT` in `cell`).
pub(super) const RESOURCES: &[(&str, &str)] = &[("terminal-input", "SMALL"), ("terminal-output", "SMALL")];
