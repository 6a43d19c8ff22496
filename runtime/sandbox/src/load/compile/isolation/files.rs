//! Denial of all file access and network ports, by Landlock.

use std::error::Error;
use std::fs::File;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, LandlockStatus, Ruleset,
    RulesetAttr as _, RulesetStatus, Scope,
};

use super::Protection;

/// Newest ABI whose restrictions are requested; an older kernel enforces those that it supports.
const ABI: ABI = ABI::V6;

/// Denies every kind of access that Landlock supports, without exceptions.
pub(super) fn restrict() -> Result<Protection, Box<dyn Error>> {
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
            Protection::Off("the kernel does not support it, or has it disabled".into())
        }
        _ if File::open("/").is_ok() => Protection::Off("it has no effect here".into()),
        _ => Protection::On(version),
    })
}
