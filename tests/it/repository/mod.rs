//! The repository itself: packages, documents, interfaces of WASI and prebuilt tools.

mod dependencies;
mod guide;
mod limits_page;
mod prebuilt;
mod promises;
mod readme;
mod settings_page;
mod wasi_interfaces;
pub(crate) mod workspace;
