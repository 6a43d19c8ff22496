//! Denials: paths, requests and buckets that are refused whatever the grants say.
//!
//! A denial always overrides a grant. It is enforced where the tool acts (file system, egress, buckets) rather than by
//! inspecting arguments, so it also holds for tools whose arguments do not show what they open.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// All denials of one tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Denials {
    /// Files and directories of the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathDenial>,
    /// HTTP requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub http: Vec<HttpDenial>,
    /// Denied buckets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<BucketDenial>,
    /// Allows changes to files that start programs ([`crate::protected::PROGRAMS`]) in the granted directories.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub programs: bool,
}

impl Denials {
    /// Returns `true` if only the built-in denials apply.
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

/// A file, or a directory with everything below it. It need not exist yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathDenial {
    /// Path on the host. For a symbolic link, both the link and its target are denied.
    pub host: PathBuf,
    /// Operations that are denied.
    #[serde(default)]
    pub uses: DeniedUse,
    /// Origin of the denial, for the user: the configuration line and its place.
    pub by: String,
}

/// Operations that are denied on a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeniedUse {
    /// All operations.
    #[default]
    All,
    /// Modifying, creating, moving and removing; reading is allowed.
    Change,
}

/// HTTP requests that are denied. Each field narrows the denial; an empty field matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpDenial {
    /// Host, as in [`HttpGrant::host`](crate::policy::HttpGrant::host). An IP address also matches names that resolve
    /// to it.
    pub host: String,
    /// Ports of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// Schemes, `http` or `https`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schemes: Vec<String>,
    /// Methods in upper case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// Path prefix, by whole segments.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Origin of the denial, for the user.
    pub by: String,
}

/// A bucket that is denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketDenial {
    /// Name of the bucket on the host.
    pub bucket: String,
    /// Origin of the denial, for the user.
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
