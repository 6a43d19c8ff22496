//! Guard hook: files may be written only below `scratch/`, and reads are limited unless the model sets a limit.

use toolcell_sdk::hook::{Call, Hook, Turn, Verdict};
use toolcell_sdk::{Result, hook};

struct KeepFiles;

/// Allows writing files only below `scratch/`.
#[hook(guard, priority = 10)]
impl Hook for KeepFiles {
    fn before_call(call: &mut Call, turn: &mut Turn) -> Result<Verdict> {
        match call.tool.as_str() {
            "files_read" => call.default("max_lines", 200),
            "files_write" | "files_edit" if !is_scratch(call.text("path").unwrap_or_default()) => {
                turn.notify("the model wanted to write outside `scratch/`");
                return Ok(Verdict::cancel("only files below `scratch/` may be written"));
            }
            _ => {}
        }
        Ok(Verdict::Proceed)
    }
}

fn is_scratch(path: &str) -> bool {
    let mut parts = path.trim_start_matches("./").split('/');
    parts.next() == Some("scratch") && parts.all(|part| part != "..")
}

toolcell_sdk::export_hook!(KeepFiles);

#[cfg(test)]
mod tests {
    use toolcell_sdk::serde_json::json;

    use super::*;

    fn ask(tool: &str, path: &str) -> (Call, Verdict) {
        let mut call = Call::new(tool, json!({ "path": path }));
        let verdict = KeepFiles::before_call(&mut call, &mut Turn::default()).unwrap();
        (call, verdict)
    }

    #[test]
    fn only_files_below_scratch_are_written() {
        for (path, goes) in [
            ("scratch/a", true),
            ("./scratch/b/c", true),
            ("scratch/../a", false),
            ("scratched/a", false),
            ("/scratch/a", false),
            ("", false),
        ] {
            assert_eq!(ask("files_write", path).1 == Verdict::Proceed, goes, "{path}");
        }
    }

    #[test]
    fn reads_have_a_limit() {
        assert_eq!(ask("files_read", "a").0.arguments["max_lines"], 200);
    }
}
