//! What the kernel closes to the compiling process beside its limits: files and network (Landlock), and every system
//! call that compiling does not make (seccomp). Code that an attacker brings to run in the compiler can use memory and
//! processor time, and answer its parent.
//!
//! Where the kernel has neither, as on other systems than Linux, the process goes on without and says so.

use serde::{Deserialize, Serialize};

/// Restrictions of the compiling process that depend on the kernel, as the process itself found them after it had asked
/// for them. Limits of memory, time and files (`CompileLimits`) hold everywhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompilerIsolation {
    /// Filter of system calls: the process can use memory, threads and clocks, and the pipes to its parent.
    pub seccomp: Protection,
    /// Landlock: no file can be opened; with ABI 4, no TCP port either.
    pub landlock: Protection,
}

/// One protection by the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Protection {
    /// On. Where the kernel numbers its abilities, as Landlock does with its ABI, with that number.
    On(Option<u32>),
    /// Off, and why.
    Off(String),
}

#[cfg(not(target_os = "linux"))]
pub(super) fn isolate() -> CompilerIsolation {
    let off = || Protection::Off(format!("{} does not have it", std::env::consts::OS));
    CompilerIsolation {
        seccomp: off(),
        landlock: off(),
    }
}

#[cfg(target_os = "linux")]
pub(super) use linux::isolate;

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeMap;
    use std::error::Error;
    use std::fs::File;

    use landlock::{
        ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, LandlockStatus, Ruleset,
        RulesetAttr as _, RulesetStatus, Scope,
    };
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule, apply_filter,
    };

    use super::{CompilerIsolation, Protection};

    /// Newest ABI of Landlock whose restrictions are asked for.
    const ABI: ABI = ABI::V6;

    /// Restricts this thread and all that it starts from now on.
    pub(in crate::compile) fn isolate() -> CompilerIsolation {
        let off = |error: Box<dyn Error>| Protection::Off(error.to_string());
        // In this order: the filter leaves no system call to change Landlock's rules with.
        let landlock = restrict_files().unwrap_or_else(off);
        let seccomp = restrict_system_calls().unwrap_or_else(off);
        CompilerIsolation { seccomp, landlock }
    }

    /// Denies every access that Landlock knows, without an exception.
    pub(super) fn restrict_files() -> Result<Protection, Box<dyn Error>> {
        let status = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(ABI))?
            .handle_access(AccessNet::from_all(ABI))?
            .scope(Scope::from_all(ABI))?
            .create()?
            .restrict_self()?;
        let version = match status.landlock {
            LandlockStatus::Available { effective_abi, .. } => u32::try_from(effective_abi as i32).ok(),
            _ => None,
        };
        Ok(match status.ruleset {
            RulesetStatus::NotEnforced => {
                Protection::Off("the kernel does not have it, or has it switched off".into())
            }
            _ if File::open("/").is_ok() => Protection::Off("it has no effect here".into()),
            _ => Protection::On(version),
        })
    }

    /// Lets through what compiling needs. Everything else does not exist for the process (`ENOSYS`), which libraries know
    /// from older kernels and work around where they can.
    fn restrict_system_calls() -> Result<Protection, Box<dyn Error>> {
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

    /// System calls by number, each with the rules of which one must fit; without rules it is allowed as it is.
    fn allowed() -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
        let mut allowed: BTreeMap<i64, Vec<SeccompRule>> = [
            // The pipes to the parent, and the file in which the process reads how much memory it has.
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
            // Itself, its parent, its end.
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
            // No memory that can be executed, so that the process runs the code of this program alone.
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
            // Threads and no processes. `clone3` has its flags in memory, where no filter sees them.
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

    /// A flag of the C interface as a filter compares it.
    fn flag(flags: libc::c_int) -> u64 {
        u64::from(flags.unsigned_abs())
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::fs::File;
    use std::io;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use super::*;

    /// Runs in a thread that has given up its rights.
    fn isolated<T: Send + 'static>(run: impl FnOnce(&CompilerIsolation) -> T + Send + 'static) -> T {
        std::thread::spawn(|| {
            rustix::thread::set_no_new_privs(true).unwrap();
            run(&isolate())
        })
        .join()
        .unwrap()
    }

    fn has_seccomp(isolation: &CompilerIsolation) -> bool {
        let has = isolation.seccomp == Protection::On(None);
        if !has {
            println!("test skipped: no seccomp here: {isolation:?}");
        }
        has
    }

    /// Makes a system call as an attacker does who runs code of their own.
    #[expect(unsafe_code, reason = "no library makes these calls")]
    fn system_call(number: libc::c_long, arguments: [libc::c_long; 4]) -> Option<i32> {
        let [a, b, c, d] = arguments;
        // SAFETY: the calls are made with null pointers and flags, and each is one that the kernel refuses; what would
        // happen if it did not is a failed test.
        let result = unsafe { libc::syscall(number, a, b, c, d, -1, 0) };
        (result < 0).then(|| io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    #[test]
    fn isolated_thread_opens_connects_and_starts_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        isolated(move |isolation| {
            if has_seccomp(isolation) {
                let made = "/tmp/made-by-a-compiler";
                assert!(File::open("/etc/passwd").is_err());
                assert!(File::create(made).is_err());
                assert!(std::fs::read_dir("/").is_err());
                assert!(std::fs::metadata("/etc/passwd").is_err());
                assert!(std::os::unix::fs::symlink("/", made).is_err());
                assert!(TcpStream::connect(address).is_err());
                let error = Command::new("/bin/true").exec();
                assert_eq!(error.raw_os_error(), Some(libc::ENOSYS));
            }
        });
    }

    #[test]
    fn system_calls_beyond_compiling_do_not_exist() {
        isolated(|isolation| {
            if !has_seccomp(isolation) {
                return;
            }
            let me = i64::from(std::process::id());
            for (name, number, arguments) in [
                ("openat", libc::SYS_openat, [0, 0, 0, 0]),
                ("openat2", libc::SYS_openat2, [0, 0, 0, 0]),
                ("socket", libc::SYS_socket, [1, 1, 0, 0]),
                ("execve", libc::SYS_execve, [0, 0, 0, 0]),
                ("execveat", libc::SYS_execveat, [0, 0, 0, 0]),
                // 17 is SIGCHLD: what `fork` is.
                ("fork", libc::SYS_clone, [17, 0, 0, 0]),
                ("clone3", libc::SYS_clone3, [0, 0, 0, 0]),
                ("ptrace", libc::SYS_ptrace, [0, 0, 0, 0]),
                ("process_vm_readv", libc::SYS_process_vm_readv, [me, 0, 0, 0]),
                ("process_vm_writev", libc::SYS_process_vm_writev, [me, 0, 0, 0]),
                ("pidfd_open", libc::SYS_pidfd_open, [me, 0, 0, 0]),
                ("kill", libc::SYS_kill, [me, 0, 0, 0]),
                ("tgkill of another", libc::SYS_tgkill, [me + 1, me + 1, 0, 0]),
                (
                    "prctl",
                    libc::SYS_prctl,
                    [i64::from(libc::PR_SET_DUMPABLE), 1, 0, 0],
                ),
                ("prlimit64", libc::SYS_prlimit64, [0, 0, 0, 0]),
                ("memfd_create", libc::SYS_memfd_create, [0, 0, 0, 0]),
                ("io_uring_setup", libc::SYS_io_uring_setup, [1, 0, 0, 0]),
                ("bpf", libc::SYS_bpf, [0, 0, 0, 0]),
                ("perf_event_open", libc::SYS_perf_event_open, [0, 0, 0, 0]),
                ("userfaultfd", libc::SYS_userfaultfd, [0, 0, 0, 0]),
                ("unshare", libc::SYS_unshare, [0, 0, 0, 0]),
                ("mount", libc::SYS_mount, [0, 0, 0, 0]),
                ("keyctl", libc::SYS_keyctl, [0, 0, 0, 0]),
                ("ioctl", libc::SYS_ioctl, [0, 0, 0, 0]),
            ] {
                assert_eq!(system_call(number, arguments), Some(libc::ENOSYS), "{name}");
            }
        });
    }

    #[test]
    fn memory_can_be_written_and_never_executed() {
        isolated(|isolation| {
            if !has_seccomp(isolation) {
                return;
            }
            let anonymous = i64::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let read_write = i64::from(libc::PROT_READ | libc::PROT_WRITE);
            let execute = i64::from(libc::PROT_READ | libc::PROT_EXEC);
            assert_eq!(
                system_call(libc::SYS_mmap, [0, 4096, read_write, anonymous]),
                None
            );
            assert_eq!(
                system_call(libc::SYS_mmap, [0, 4096, execute, anonymous]),
                Some(libc::ENOSYS)
            );
            assert_eq!(
                system_call(libc::SYS_mprotect, [0, 4096, execute, 0]),
                Some(libc::ENOSYS)
            );
            // A thread is no process.
            assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
        });
    }

    #[test]
    fn landlock_alone_denies_every_file() {
        let opened = std::thread::spawn(|| {
            rustix::thread::set_no_new_privs(true).unwrap();
            match linux::restrict_files() {
                Ok(Protection::On(_)) => File::open("/etc/passwd").is_ok(),
                off => {
                    println!("test skipped: no Landlock here: {off:?}");
                    false
                }
            }
        });
        assert!(!opened.join().unwrap());
    }
}
