//! What no grant gives: places, requests and buckets that are refused whatever else is granted.
//!
//! A denial always beats a grant. It is enforced where the tool acts, in the files view, the way out and the buckets, and
//! not by looking at a tool's arguments, so that it holds for tools whose arguments say nothing of what they open.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Everything that one tool is denied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Denials {
    /// Files and directories of the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathDenial>,
    /// HTTP requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub http: Vec<HttpDenial>,
    /// Buckets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<BucketDenial>,
    /// Whether the tool may change files that start programs ([`crate::protected::PROGRAMS`]) in its directories.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub programs: bool,
}

impl Denials {
    /// Whether nothing is denied beyond what always is.
    pub fn is_empty(&self) -> bool {
        let Self {
            paths,
            http,
            buckets,
            programs,
        } = self;
        paths.is_empty() && http.is_empty() && buckets.is_empty() && !programs
    }
}

/// A file or directory, with everything below it, whether it exists yet or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathDenial {
    /// Path on the host. A symbolic link denies itself and what it leads to.
    pub host: PathBuf,
    /// What is denied there.
    #[serde(default)]
    pub uses: DeniedUse,
    /// Who denies it, for the user: the line and its place.
    pub by: String,
}

/// What is denied at a place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeniedUse {
    /// Everything.
    #[default]
    All,
    /// Changing, making, moving and removing it; it can be read.
    Change,
}

/// HTTP requests that are refused. Each field narrows the denial; an empty one covers everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpDenial {
    /// Host, as in [`HttpGrant::host`](crate::policy::HttpGrant::host). An IP address also covers names that lead to it.
    pub host: String,
    /// Ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// Schemes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schemes: Vec<String>,
    /// Methods in capitals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// Prefix of the path, by whole segments.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Who denies it, for the user.
    pub by: String,
}

/// A bucket that is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketDenial {
    /// Name of the bucket on the host.
    pub bucket: String,
    /// Who denies it, for the user.
    pub by: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_are_empty_only_without_any_of_them() {
        assert!(Denials::default().is_empty());
        let path = PathDenial {
            host: "private".into(),
            uses: DeniedUse::All,
            by: String::new(),
        };
        let http = HttpDenial {
            host: "example.com".into(),
            ports: Vec::new(),
            schemes: Vec::new(),
            methods: Vec::new(),
            path: String::new(),
            by: String::new(),
        };
        let bucket = BucketDenial {
            bucket: "notes".into(),
            by: String::new(),
        };
        for denials in [
            Denials {
                paths: vec![path],
                ..Denials::default()
            },
            Denials {
                http: vec![http],
                ..Denials::default()
            },
            Denials {
                buckets: vec![bucket],
                ..Denials::default()
            },
            Denials {
                programs: true,
                ..Denials::default()
            },
        ] {
            assert!(!denials.is_empty(), "{denials:?}");
        }
    }
}
