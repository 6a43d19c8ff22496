//! Guard hook: files may be written only below `scratch/`, and reads are limited unless the model sets a limit.

use toolcell_sdk::hook::{Call, Hook, Place, PlaceKind, Turn, Verdict};
use toolcell_sdk::{Result, hook};

struct KeepFiles;

/// Allows writing files only below `scratch/`.
#[hook(guard, priority = 10)]
impl Hook for KeepFiles {
    fn before_call(call: &mut Call, turn: &mut Turn) -> Result<Verdict> {
        match call.tool.as_str() {
            "files_read" => call.default("limit", 200),
            "files_list" | "files_search" => {}
            // The other ones change files, also those of a later version. Where the arguments lead counts, however they are
            // spelled.
            name if name.starts_with("files_") && !is_scratch(&call.places) => {
                turn.notify("the model wanted to write outside `scratch/`");
                return Ok(Verdict::cancel("only files below `scratch/` may be written"));
            }
            _ => {}
        }
        Ok(Verdict::Proceed)
    }
}

fn is_scratch(places: &[Place]) -> bool {
    let mut paths = places
        .iter()
        .filter(|place| place.kind == PlaceKind::Path)
        .peekable();
    paths.peek().is_some() && paths.all(|path| path.plain.starts_with("/scratch/"))
}

toolcell_sdk::export_hook!(KeepFiles);

#[cfg(test)]
mod tests {
    use toolcell_sdk::serde_json::json;

    use super::*;

    fn ask(tool: &str, plain: &str) -> (Call, Verdict) {
        let call = Call::new(tool, json!({ "path": plain }));
        let mut call = call.leading_to(Place::path("/path", plain, plain));
        let verdict = KeepFiles::before_call(&mut call, &mut Turn::default()).unwrap();
        (call, verdict)
    }

    #[test]
    fn only_files_below_scratch_are_written() {
        for (path, goes) in [
            ("/scratch/a", true),
            ("/scratch/b/c", true),
            ("/a", false),
            ("/scratched/a", false),
            ("/", false),
        ] {
            for tool in ["files_write", "files_edit", "files_delete", "files_move"] {
                assert_eq!(ask(tool, path).1 == Verdict::Proceed, goes, "{tool} {path}");
            }
            assert_eq!(ask("files_search", path).1, Verdict::Proceed, "{path}");
        }
    }

    #[test]
    fn reads_have_a_limit() {
        assert_eq!(ask("files_read", "a").0.arguments["limit"], 200);
    }
}
