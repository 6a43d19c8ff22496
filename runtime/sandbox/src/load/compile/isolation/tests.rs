//! Abilities of a thread that has dropped all rights not needed for compilation.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

use std::fs::File;
use std::io;
use std::net::{TcpListener, TcpStream};

use super::*;

/// Runs in a thread that has dropped its rights.
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

/// Makes a system call as injected code would.
#[expect(unsafe_code, reason = "no library makes these calls")]
fn system_call(number: libc::c_long, arguments: [libc::c_long; 4]) -> Option<i32> {
    let [a, b, c, d] = arguments;
    // SAFETY: the calls are made with null pointers and flags, and the kernel rejects each of them; if it did not, the
    // test would fail.
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
            // Not by `exec` of the standard library, which resets the ignored SIGPIPE of this process.
            assert_eq!(system_call(libc::SYS_execve, [0; 4]), Some(libc::ENOSYS));
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
            // 17 is SIGCHLD, which makes it a `fork`.
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
        // A thread is not a process.
        assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
    });
}

#[test]
fn landlock_alone_denies_every_file() {
    let opened = std::thread::spawn(|| {
        rustix::thread::set_no_new_privs(true).unwrap();
        match files::restrict() {
            Ok(Protection::On(_)) => File::open("/etc/passwd").is_ok(),
            off => {
                println!("test skipped: no Landlock here: {off:?}");
                false
            }
        }
    });
    assert!(!opened.join().unwrap());
}
