//! Types whose values appear in messages, and the few of them that are inserted as our own text.

use std::borrow::Cow;

use super::text::{Piece, Text, TextValue};
use crate::ui::reason;

/// Values that are quoted.
macro_rules! quoted {
    ($($type:ty),*) => {$(
        impl TextValue for $type {
            fn append_to(&self, text: &mut Text) {
                text.push_foreign(self.to_string());
            }
        }
    )*};
}

/// Values that consist of our own digits and units.
macro_rules! own {
    ($($type:ty),*) => {$(
        impl TextValue for $type {
            fn append_to(&self, text: &mut Text) {
                text.push(Piece::Own(Cow::Owned(self.to_string())));
            }
        }
    )*};
}

quoted!(
    String,
    Cow<'_, str>,
    toolcell_core::Grant,
    std::path::Display<'_>,
    crate::approval::saved_approvals::Scope
);
own!(
    u8,
    u16,
    u32,
    u64,
    usize,
    i32,
    i64,
    crate::config::units::Bytes,
    crate::config::units::Count,
    crate::config::units::Span,
    crate::config::units::money::Money,
    char,
    crate::config::source::Layer,
    crate::config::provider::ProviderName,
    toolcell_core::ToolName,
    toolcell_core::grant_risk::GrantRisk,
    toolcell_core::provider::ProviderErrorKind,
    toolcell_sandbox::Digest,
    similar::udiff::UnifiedHunkHeader
);

/// Errors: [`reason`] knows which of their words are ours.
macro_rules! reasons {
    ($($type:ty => $of:path),* $(,)?) => {$(
        impl TextValue for $type {
            fn append_to(&self, text: &mut Text) {
                $of(self).append_to(text);
            }
        }
    )*};
}

reasons!(
    std::io::Error => reason::of_io,
    anyhow::Error => reason::outermost,
    toolcell_core::ToolError => reason::of_tool,
    toolcell_fs::FileError => reason::of_file,
);
