//! Kernel restrictions of the compiling process in addition to its limits: files and network (Landlock), and every
//! system call that compilation does not need (seccomp). Code that an attacker manages to run in the compiler can only
//! use memory and CPU time, and respond to its parent.
//!
//! Where the kernel supports neither, as on systems other than Linux, the process continues without them and reports
//! it.

#[cfg(target_os = "linux")]
mod files;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod system_calls;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

/// Kernel-dependent restrictions of the compiling process, as the process itself verified them after they were
/// requested. Limits of memory, time and files (`CompileLimits`) apply everywhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompilerIsolation {
    /// Filter of system calls: the process can use memory, threads and clocks, and the pipes to its parent.
    pub seccomp: Protection,
    /// Landlock: no file can be opened; with ABI 4, no TCP port either.
    pub landlock: Protection,
}

/// State of one kernel protection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Protection {
    /// Active, with the version of the kernel interface if it has one, such as the ABI of Landlock.
    On(Option<u32>),
    /// Inactive, with the reason.
    Off(String),
}

/// Restricts this thread and all threads that it starts afterwards.
pub(super) fn isolate() -> CompilerIsolation {
    let off = |error: Box<dyn std::error::Error>| Protection::Off(error.to_string());
    // In this order: the system call filter blocks the calls that restrict files.
    let landlock = files::restrict().unwrap_or_else(off);
    let seccomp = system_calls::restrict().unwrap_or_else(off);
    CompilerIsolation { seccomp, landlock }
}

#[cfg(not(target_os = "linux"))]
mod files {
    pub(super) fn restrict() -> Result<super::Protection, Box<dyn std::error::Error>> {
        Err(format!("{} does not support it", std::env::consts::OS).into())
    }
}

/// The filter knows the numbers of system calls and their arguments for two architectures of Linux.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod system_calls {
    pub(super) fn restrict() -> Result<super::Protection, Box<dyn std::error::Error>> {
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        Err(format!("there is no filter for {os} on {arch}").into())
    }
}
