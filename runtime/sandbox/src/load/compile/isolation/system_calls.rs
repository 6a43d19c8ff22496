//! Filter of all system calls that compilation does not need, by seccomp.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

use super::Protection;

/// Allows the calls that compilation needs. All others fail with `ENOSYS`, which libraries know from older kernels and
/// work around where they can.
pub(super) fn restrict() -> Result<Protection, Box<dyn Error>> {
    let filter: BpfProgram = SeccompFilter::new(
        allowed()?,
        SeccompAction::Errno(libc::ENOSYS.unsigned_abs()),
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into()?,
    )?
    .try_into()?;
    apply_filter(&filter)?;
    Ok(match File::open("/") {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Protection::On(None),
        _ => Protection::Off("it has no effect here".into()),
    })
}

/// Allowed system calls by number, each with alternative rules; without rules it is always allowed.
fn allowed() -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    let mut allowed: BTreeMap<i64, Vec<SeccompRule>> = [
        // The pipes to the parent, and the file with the memory use of the process.
        libc::SYS_read,
        libc::SYS_pread64,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_close,
        // Memory.
        libc::SYS_brk,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_madvise,
        libc::SYS_getrandom,
        // Threads, their stacks and their signals.
        libc::SYS_futex,
        libc::SYS_rseq,
        libc::SYS_set_robust_list,
        libc::SYS_sigaltstack,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sched_getaffinity,
        libc::SYS_sched_yield,
        libc::SYS_restart_syscall,
        // Clocks.
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_nanosleep,
        // The process itself, its parent, its exit.
        libc::SYS_getpid,
        libc::SYS_getppid,
        libc::SYS_gettid,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ]
    .into_iter()
    .map(|number| (number, Vec::new()))
    .collect();
    let process = u64::from(std::process::id());
    let thread = flag(libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD);
    for (number, argument, operator, value) in [
        // No executable memory, so that the process only runs the code of this program.
        (
            libc::SYS_mmap,
            2,
            SeccompCmpOp::MaskedEq(flag(libc::PROT_EXEC)),
            0,
        ),
        (
            libc::SYS_mprotect,
            2,
            SeccompCmpOp::MaskedEq(flag(libc::PROT_EXEC)),
            0,
        ),
        // Threads but no processes. `clone3` has its flags in memory, where no filter sees them.
        (libc::SYS_clone, 0, SeccompCmpOp::MaskedEq(thread), thread),
        // An abort: a signal to itself.
        (libc::SYS_tgkill, 0, SeccompCmpOp::Eq, process),
        // Names of threads.
        (libc::SYS_prctl, 0, SeccompCmpOp::Eq, flag(libc::PR_SET_NAME)),
    ] {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
        allowed.insert(number, vec![SeccompRule::new(vec![condition])?]);
    }
    Ok(allowed)
}

/// Converts a flag of the C interface for comparison in a filter.
fn flag(flags: libc::c_int) -> u64 {
    u64::from(flags.unsigned_abs())
}
