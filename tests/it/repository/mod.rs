//! The repository itself: packages, documents, contract and prebuilt tools.

mod contract;
mod dependencies;
mod guide;
mod limits_page;
mod prebuilt;
mod promises;
mod readme;
mod settings_page;
pub(crate) mod workspace;
