//! What the kernel closes to the compiling process beside its limits: files and network (Landlock), and every system
//! call that compiling does not make (seccomp). Code that an attacker brings to run in the compiler can use memory and
//! processor time, and answer its parent.
//!
//! Where the kernel has neither, as on other systems than Linux, the process goes on without and says so.

#[cfg(target_os = "linux")]
mod files;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod system_calls;
#[cfg(test)]
mod tests;

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

/// Restricts this thread and all that it starts from now on.
pub(super) fn isolate() -> CompilerIsolation {
    let off = |error: Box<dyn std::error::Error>| Protection::Off(error.to_string());
    // In this order: the filter of system calls leaves none to restrict files with.
    let landlock = files::restrict().unwrap_or_else(off);
    let seccomp = system_calls::restrict().unwrap_or_else(off);
    CompilerIsolation { seccomp, landlock }
}

#[cfg(not(target_os = "linux"))]
mod files {
    pub(super) fn restrict() -> Result<super::Protection, Box<dyn std::error::Error>> {
        Err(format!("{} does not have it", std::env::consts::OS).into())
    }
}

/// The numbers of system calls and their arguments are known here for two architectures of Linux.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod system_calls {
    pub(super) fn restrict() -> Result<super::Protection, Box<dyn std::error::Error>> {
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        Err(format!("there is no filter for {os} on {arch}").into())
    }
}
