//! Fuzz targets under libFuzzer, which keeps every input that reaches new code.
//!
//! Enabled if `tests/fuzz/coverage` sets `--cfg toolcell_fuzz`, the instrumentation of the compiler, and the library to
//! link. A target is the same test as in the suite; the process ends with its first finding, or when its time or number
//! of inputs is exhausted. A panic is saved in `tests/corpora/fuzz`, as in the suite; an input that crashes the
//! process, hangs it or exhausts its memory is saved by libFuzzer next to its own corpus.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int};
use std::path::{Path, PathBuf};

/// Timeout of one input, in seconds.
const INPUT_TIMEOUT: u32 = 60;

/// Memory limit of the process, in MiB.
const MEMORY_LIMIT: u32 = 4096;

type Check<'a> = dyn FnMut(&[u8]) + 'a;

thread_local! {
    /// Check of the target on this thread.
    static CHECK: Cell<Option<*mut Check<'static>>> = const { Cell::new(None) };
}

unsafe extern "C" {
    fn LLVMFuzzerRunDriver(
        argc: *mut c_int,
        argv: *mut *mut *mut c_char,
        callback: extern "C" fn(*const u8, usize) -> c_int,
    ) -> c_int;
}

extern "C" fn one_input(data: *const u8, len: usize) -> c_int {
    let input = if len == 0 {
        &[]
    } else {
        // SAFETY: libFuzzer passes `len` bytes that remain valid until this function returns.
        unsafe { std::slice::from_raw_parts(data, len) }
    };
    if let Some(check) = CHECK.get() {
        // SAFETY: `run` stored it and does not return before libFuzzer does; libFuzzer calls on the thread of `run` and
        // never from within a call.
        unsafe { (*check)(input) };
    }
    0
}

/// Arguments of a libFuzzer run.
pub(super) struct Campaign<'a> {
    pub(super) name: &'a str,
    pub(super) inputs: Vec<Vec<u8>>,
    pub(super) words: &'a [&'a str],
    pub(super) seconds: Option<u64>,
    pub(super) runs: Option<u64>,
    pub(super) seed: Option<u64>,
}

/// Runs libFuzzer with a check that aborts the process on failure. Does not return.
pub(super) fn run(campaign: &Campaign<'_>, check: &mut Check<'_>) -> ! {
    let corpus = campaign.directory();
    std::fs::create_dir_all(&corpus).expect("a directory for the corpus");
    for input in &campaign.inputs {
        let file = corpus.join(format!("{:016x}", super::hash(input)));
        std::fs::write(file, input).expect("a file of the corpus");
    }
    let dictionary = corpus.with_extension("dict");
    let words = campaign.words.iter().filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(|word| quoted(word)).collect();
    std::fs::write(&dictionary, words.join("\n")).expect("the dictionary");
    let mut arguments = vec![
        "fuzz".to_owned(),
        format!("-artifact_prefix={}-", corpus.display()),
        format!("-max_len={}", super::MAX_LENGTH),
        format!("-timeout={INPUT_TIMEOUT}"),
        format!("-rss_limit_mb={MEMORY_LIMIT}"),
        "-print_final_stats=1".to_owned(),
        format!("-max_total_time={}", campaign.seconds.unwrap_or(0)),
        format!(
            "-runs={}",
            campaign.runs.map_or("-1".to_owned(), |n| n.to_string())
        ),
        format!("-seed={}", campaign.seed.unwrap_or(0)),
    ];
    // libFuzzer refuses a dictionary without words.
    if !words.is_empty() {
        arguments.push(format!("-dict={}", dictionary.display()));
    }
    arguments.push(corpus.display().to_string());
    let arguments: Vec<CString> = arguments
        .into_iter()
        .map(|argument| CString::new(argument).expect("no NUL"))
        .collect();
    let mut argv: Vec<*mut c_char> = arguments.iter().map(|a| a.as_ptr().cast_mut()).collect();
    argv.push(std::ptr::null_mut());
    let mut argc = c_int::try_from(arguments.len()).expect("a dozen");
    let mut argv = argv.as_mut_ptr();
    let check: *mut Check<'_> = check;
    // SAFETY: only the lifetime changes; `one_input` says why the check is there whenever it is called.
    CHECK.set(Some(unsafe {
        std::mem::transmute::<*mut Check<'_>, *mut Check<'static>>(check)
    }));
    // SAFETY: the arguments are NUL-terminated, end with a null pointer and stay until this process ends.
    let status = unsafe { LLVMFuzzerRunDriver(&raw mut argc, &raw mut argv, one_input) };
    std::process::exit(status)
}

impl Campaign<'_> {
    /// Returns the directory of libFuzzer's corpus, next to the build output: it does not belong in the repository.
    fn directory(&self) -> PathBuf {
        let program = std::env::current_exe().expect("this test is a program");
        let target = program
            .ancestors()
            .find(|a| a.ends_with("debug") || a.ends_with("release"));
        target
            .and_then(Path::parent)
            .unwrap_or(Path::new("."))
            .join("corpus")
            .join(self.name)
    }
}

/// Formats a word as a dictionary entry.
fn quoted(word: &str) -> String {
    let bytes: Vec<String> = word.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
    format!("\"{}\"", bytes.concat())
}
