//! Versions of the protocol.

/// Version of the protocol, in order of publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// `2024-11-05`
    V2024_11_05,
    /// `2025-03-26`: annotations of tools, audio, batches.
    V2025_03_26,
    /// `2025-06-18`: structured results, links, titles; no batches.
    V2025_06_18,
    /// `2025-11-25`
    V2025_11_25,
    /// `2026-07-28`: without sessions. Each request states its version.
    V2026_07_28,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Self; 5] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
        Self::V2026_07_28,
    ];

    /// Newest version that begins with `initialize`.
    pub(crate) const NEWEST_WITH_SESSION: Self = Self::V2025_11_25;

    /// Returns the version as it is written in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Returns the version with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == name)
    }

    /// True if each request states its version, instead of an `initialize` at the beginning.
    pub(crate) fn is_stateless(self) -> bool {
        self > Self::NEWEST_WITH_SESSION
    }

    /// Returns the version for a client that requests one with `initialize`: the same if it is supported, or the newest.
    pub(crate) fn negotiated(requested: &str) -> Self {
        Self::named(requested)
            .filter(|version| !version.is_stateless())
            .unwrap_or(Self::NEWEST_WITH_SESSION)
    }

    /// Names of the versions that a request can state.
    pub(crate) fn stateless_names() -> Vec<&'static str> {
        let stateless = Self::ALL.into_iter().filter(|version| version.is_stateless());
        stateless.map(Self::as_str).collect()
    }
}
