//! Python: componentize-py makes a component with CPython of the modules that the tool imports.

use std::path::Path;

use super::super::compiler::BuildContext;
use super::super::language::{Language, Wasi};
use super::super::world::{self, WORLD};
use super::MODULE;
use crate::error::Failure;
use crate::ui::terminal::text;

/// Module with the exports of the component, among the intermediate files.
const ENTRY: &str = "toolcell_entry";

/// Directory of packages that become part of the tool.
const PACKAGES: &str = "deps";

/// Modules of the standard library of Python 3.14. One that a file of the tool replaces is missing in the SDK and in the library itself.
const STANDARD_MODULES: &str = "\
    abc annotationlib antigravity argparse array ast asyncio atexit base64 bdb binascii bisect builtins \
    bz2 cProfile calendar cmath cmd code codecs codeop collections colorsys compileall compression \
    concurrent configparser contextlib contextvars copy copyreg csv ctypes curses dataclasses datetime \
    dbm decimal difflib dis doctest email encodings ensurepip enum errno faulthandler fcntl filecmp \
    fileinput fnmatch fractions ftplib functools gc genericpath getopt getpass gettext glob graphlib grp \
    gzip hashlib heapq hmac html http idlelib imaplib importlib inspect io ipaddress itertools json \
    keyword linecache locale logging lzma mailbox marshal math mimetypes mmap modulefinder msvcrt \
    multiprocessing netrc nt ntpath nturl2path numbers opcode operator optparse os pathlib pdb pickle \
    pickletools pkgutil platform plistlib poplib posix posixpath pprint profile pstats pty pwd \
    py_compile pyclbr pydoc pydoc_data pyexpat queue quopri random re readline reprlib resource \
    rlcompleter runpy sched secrets select selectors shelve shlex shutil signal site smtplib socket \
    socketserver sqlite3 sre_compile sre_constants sre_parse ssl stat statistics string stringprep \
    struct subprocess symtable sys sysconfig syslog tabnanny tarfile tempfile termios textwrap this \
    threading time timeit tkinter token tokenize tomllib trace traceback tracemalloc tty turtle \
    turtledemo types typing unicodedata unittest urllib uuid venv warnings wave weakref webbrowser \
    winreg winsound wsgiref xml xmlrpc zipapp zipfile zipimport zlib zoneinfo";

pub(super) async fn build(context: &BuildContext<'_>) -> Result<Vec<u8>, Failure> {
    let main = Path::new(&context.manifest.main);
    let module = main
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !module.chars().all(is_word) || module.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(context
            .failed()
            .why(text!("`{}` cannot be imported in Python", context.manifest.main))
            .hint("name the file with letters, digits and `_`"));
    }
    if is_standard(module) {
        return Err(context
            .failed()
            .why(text!(
                "`{}` is a module of Python's standard library",
                module.to_owned()
            ))
            .hint(text!(
                "name the file otherwise, such as `{}_tool.py`, also as `main` in tool.toml",
                module.to_owned()
            )));
    }
    let componentize = context.find("componentize-py", Language::Python.preparation())?;
    let has_wasi = !context.manifest.wasi.is_empty();
    // CPython imports everything but HTTP by itself.
    let http: &[Wasi] = if context.manifest.uses(Wasi::Http) {
        &[Wasi::Http]
    } else {
        &[]
    };
    world::write(context, http, "wasi")?;
    let without = if has_wasi { "" } else { "import toolcell.no_wasi\n" };
    let entry = format!("from toolcell.component import Tools\nimport {module}\n{without}");
    context.write(&format!("{ENTRY}.py"), entry.as_bytes())?;

    let (wit, build, output) = (
        context.intermediate(world::DIR),
        context.intermediate(""),
        context.intermediate(MODULE),
    );
    let parent = main.parent().and_then(Path::to_str).unwrap_or_default();
    let sources = if parent.is_empty() { "." } else { parent };
    let mut arguments = vec!["-d", &wit, "-w", WORLD, "componentize"];
    if !has_wasi {
        arguments.push("--stub-wasi");
    }
    arguments.extend(["-p", ".", "-p", sources, "-p", &build]);
    if context.dir.join(PACKAGES).is_dir() {
        arguments.extend(["-p", PACKAGES]);
    }
    arguments.extend([ENTRY, "-o", &output]);
    context.run(&componentize, arguments).await?;
    context.output(&output)
}

fn is_standard(module: &str) -> bool {
    STANDARD_MODULES.split(' ').any(|standard| standard == module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_is_no_module_of_the_library() {
        let names: Vec<&str> = STANDARD_MODULES.split(' ').collect();
        assert!(names.is_sorted() && names.len() > 150 && !names.contains(&""));
        for name in names {
            assert!(
                is_standard(name) && !is_standard(&format!("{name}_tool")),
                "{name}"
            );
        }
        assert!(!is_standard("weather") && !is_standard("json_tool"));
    }
}
