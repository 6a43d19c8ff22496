//! References to packages: `PATH`, `https://…#sha256=…`, and `REGISTRY/REPOSITORY:TAG` or `…@sha256:…`.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use toolcell_sandbox::Digest;
use url::Url;

use crate::environment::Environment;

/// Maximum length of a reference, in bytes: that of a URL which every server accepts.
const MAX_LENGTH: usize = 2_000;

/// Prefix of the digest in the fragment of a URL.
const FRAGMENT: &str = "sha256=";

/// Source of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reference {
    /// A file of this machine.
    File(PathBuf),
    /// An address, and the digest of what is there.
    Https {
        /// The address, without a fragment.
        url: Url,
        /// Digest of the component.
        digest: Digest,
    },
    /// An artefact in an OCI registry.
    Oci(Image),
}

/// Reference to an artefact in an OCI registry (OCI Distribution Specification 1.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    /// Host, possibly with a port.
    pub(crate) registry: String,
    /// Name of the repository.
    pub(crate) repository: String,
    /// Tag; `latest` if neither tag nor digest is given.
    pub(crate) tag: Option<String>,
    /// Digest of the manifest.
    pub(crate) digest: Option<Digest>,
}

impl Reference {
    /// Parses a reference. A digest outside of it is that of a component over HTTPS.
    ///
    /// # Errors
    /// Returns an error with the reason.
    pub(crate) fn parse(text: &str, digest: Option<&str>, environment: &Environment) -> anyhow::Result<Self> {
        ensure!(text.len() <= MAX_LENGTH, "it is longer than {MAX_LENGTH} bytes");
        let has_scheme = |scheme: &str| {
            text.get(..scheme.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        };
        if has_scheme("http://") || has_scheme("https://") {
            return Self::address(text, digest);
        }
        ensure!(
            digest.is_none(),
            "--digest belongs to an address over HTTPS; an OCI reference ends in `@sha256:…`"
        );
        if let Some(image) = text.strip_prefix("oci://") {
            return Ok(Self::Oci(Image::parse(image)?));
        }
        ensure!(
            !text.contains("://"),
            "packages are files, `https://` addresses or OCI references"
        );
        let is_wasm = text
            .rsplit('.')
            .next()
            .is_some_and(|ending| ending.eq_ignore_ascii_case("wasm"));
        if is_wasm || text.starts_with(['.', '/', '~']) {
            return Ok(Self::File(environment.path(text, &environment.cwd)));
        }
        Ok(Self::Oci(Image::parse(text)?))
    }

    fn address(text: &str, digest: Option<&str>) -> anyhow::Result<Self> {
        let mut url = Url::parse(text).context("it is not a URL")?;
        ensure!(
            url.username().is_empty() && url.password().is_none(),
            "user names and passwords do not belong in it"
        );
        ensure!(
            url.scheme() == "https" || is_local(&url),
            "packages come over `https`; `http` is for this machine alone"
        );
        let of_fragment = match url.fragment() {
            None => None,
            Some(fragment) => Some(
                fragment
                    .strip_prefix(FRAGMENT)
                    .context("after `#` it has no `sha256=`")?,
            ),
        };
        let written = match (of_fragment, digest) {
            (Some(one), Some(other)) => {
                ensure!(
                    digest_of(one)? == digest_of(other)?,
                    "it has two different digests"
                );
                one
            }
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => {
                bail!("an address needs the digest of the component: `#sha256=…` at its end, or --digest")
            }
        };
        let digest = digest_of(written)?;
        url.set_fragment(None);
        Ok(Self::Https { url, digest })
    }

    /// Name for the package, from its last part.
    pub(crate) fn name(&self) -> Option<String> {
        let last = match self {
            Self::File(path) => path.file_stem()?.to_str()?.to_owned(),
            Self::Https { url, .. } => url
                .path_segments()?
                .next_back()?
                .trim_end_matches(".wasm")
                .to_owned(),
            Self::Oci(image) => image.repository.rsplit('/').next()?.to_owned(),
        };
        (!last.is_empty()).then_some(last)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Https { url, digest } => write!(f, "{url}#{FRAGMENT}{}", digest.hex()),
            Self::Oci(image) => write!(f, "{image}"),
        }
    }
}

/// Returns a reference without the user and the password that are written in it: what stands before the last `@`, except that of a
/// digest. A password can have any characters, and the reference need not be valid.
pub(crate) fn without_user(text: &str) -> String {
    let mut ends = text.rmatch_indices('@').map(|(at, _)| at);
    let end = ends.find(|at| !text[at + 1..].starts_with("sha256:"));
    match end {
        Some(at) if text[..at].contains(':') => {
            let scheme = text[..at].find("://").map_or("", |length| &text[..length + 3]);
            format!("{scheme}…{}", &text[at..])
        }
        _ => text.to_owned(),
    }
}

impl Image {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let hint = "an OCI reference is `REGISTRY/REPOSITORY:TAG`, such as `ghcr.io/me/tool:1`; a file begins with `./` or ends in `.wasm`";
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(Digest::try_from(digest.to_owned())?)),
            None => (text, None),
        };
        let (registry, rest) = rest.split_once('/').context(hint)?;
        let (repository, tag) = match rest.rsplit_once(':') {
            Some((repository, tag)) => (repository, Some(tag.to_owned())),
            None => (rest, None),
        };
        // A URL leaves out white space.
        let is_host = (registry.contains(['.', ':']) || registry == "localhost")
            && !registry.contains(|c: char| c.is_whitespace() || c.is_control());
        ensure!(
            is_host,
            "`{}` is not the host of a registry; {hint}",
            registry.escape_debug()
        );
        let parts = |part: &str| {
            let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
            let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            part.chars().all(is_inner) && part.starts_with(ends) && part.ends_with(ends)
        };
        ensure!(
            repository.len() <= 255 && repository.split('/').all(parts),
            "`{}` is not the name of a repository, which has small letters, digits, `/`, `.`, `_` and `-`",
            repository.escape_debug()
        );
        if let Some(tag) = &tag {
            let is_part = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            ensure!(
                !tag.is_empty()
                    && tag.len() <= 128
                    && tag.chars().all(is_part)
                    && !tag.starts_with(['.', '-']),
                "`{}` is not a tag",
                tag.escape_debug()
            );
        }
        let image = Self {
            registry: registry.to_owned(),
            repository: repository.to_owned(),
            tag,
            digest,
        };
        image.url("")?;
        Ok(image)
    }

    /// The manifest's name for requests: its digest, or the tag.
    pub(crate) fn version(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => "latest".into(),
        }
    }

    /// Address of a resource of the repository. Registries of this machine are spoken to over `http`.
    pub(crate) fn url(&self, path: &str) -> anyhow::Result<Url> {
        let host = match self.registry.as_str() {
            "docker.io" | "index.docker.io" => "registry-1.docker.io",
            other => other,
        };
        let repository = &self.repository;
        let url = |scheme: &str| Url::parse(&format!("{scheme}://{host}/v2/{repository}/{path}"));
        let secure = url("https").context("its registry is not a host")?;
        ensure!(
            secure.username().is_empty() && secure.path().starts_with("/v2/"),
            "its registry is not a host"
        );
        let plain = url("http")?;
        Ok(if is_local(&plain) { plain } else { secure })
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

/// True for an address of this machine, by its own words: no look-up can make another one of it.
pub(crate) fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

fn digest_of(text: &str) -> anyhow::Result<Digest> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    Ok(Digest::try_from(format!("sha256:{digits}"))?)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn parse(text: &str) -> anyhow::Result<Reference> {
        Reference::parse(text, None, &Environment::for_tests(Path::new("/work"), &[]))
    }

    #[test]
    fn user_and_password_are_left_out() {
        let digest = format!("sha256:{HEX}");
        for (text, shown) in [
            ("https://u:p@h.example/x.wasm", "https://…@h.example/x.wasm"),
            ("https://u:p/w?#@h.example/x", "https://…@h.example/x"),
            ("https:/u:p@h.example", "…@h.example"),
            ("u:p@ghcr.io/me/x:1", "…@ghcr.io/me/x:1"),
            ("u:p@ghcr.io/me/x@sha256:1", "…@ghcr.io/me/x@sha256:1"),
            ("ghcr.io:443/me/x:1", "ghcr.io:443/me/x:1"),
            ("./a@b.wasm", "./a@b.wasm"),
        ] {
            assert_eq!(without_user(text), shown);
        }
        let pinned = format!("ghcr.io:443/me/x@{digest}");
        assert_eq!(without_user(&pinned), pinned);
    }

    #[test]
    fn reference_is_a_file_an_address_or_an_artefact() {
        for (text, shown, name) in [
            ("a.wasm".to_owned(), "/work/a.wasm".to_owned(), "a"),
            ("./dir/tool".into(), "/work/./dir/tool".into(), "tool"),
            (
                format!("https://example.com/x/roman.wasm#sha256={HEX}"),
                format!("https://example.com/x/roman.wasm#sha256={HEX}"),
                "roman",
            ),
            ("ghcr.io/me/tool".into(), "ghcr.io/me/tool".into(), "tool"),
            (
                "oci://ghcr.io/me/tool:1.2".into(),
                "ghcr.io/me/tool:1.2".into(),
                "tool",
            ),
            (
                format!("localhost:5000/tool:1@sha256:{HEX}"),
                format!("localhost:5000/tool:1@sha256:{HEX}"),
                "tool",
            ),
        ] {
            let reference = parse(&text).unwrap();
            assert_eq!(reference.to_string(), shown, "{text}");
            assert_eq!(reference.name().as_deref(), Some(name), "{text}");
        }
    }

    #[test]
    fn reference_that_cannot_be_checked_is_refused() {
        for text in [
            "https://example.com/a.wasm",
            "https://example.com/a.wasm#sha256=12",
            "https://example.com/a.wasm#md5=12",
            "https://me:secret@example.com/a.wasm",
            "http://example.com/a.wasm",
            "ftp://example.com/a.wasm",
            "tool",
            "me/tool",
            "ghcr.io/Me/tool",
            "ghcr.io/../tool",
            "ghcr.io/me/tool:",
            "ghcr.io/me/tool:a b",
            "ghcr.io/me/tool@sha256:12",
            "ghcr.io:x/me/tool",
            "gh\ncr.io/me/tool",
            "ghcr.io\t:443/me/tool",
            "ghcr.io\u{a0}/me/tool",
            "a@ghcr.io/me/tool",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let long = |length: usize| parse(&format!("./{}", "x".repeat(length - 2)));
        assert!(long(MAX_LENGTH).is_ok() && long(MAX_LENGTH + 1).is_err());
    }

    #[test]
    fn only_registries_of_this_machine_are_plain() {
        for (text, url) in [
            ("ghcr.io/me/tool", "https://ghcr.io/v2/me/tool/manifests/latest"),
            (
                "localhost:5000/tool",
                "http://localhost:5000/v2/tool/manifests/latest",
            ),
            (
                "127.0.0.1:5000/tool",
                "http://127.0.0.1:5000/v2/tool/manifests/latest",
            ),
            (
                "10.0.0.1:5000/tool",
                "https://10.0.0.1:5000/v2/tool/manifests/latest",
            ),
            (
                "localhost.example.com/tool",
                "https://localhost.example.com/v2/tool/manifests/latest",
            ),
            (
                "docker.io/me/tool",
                "https://registry-1.docker.io/v2/me/tool/manifests/latest",
            ),
        ] {
            let Reference::Oci(image) = parse(text).unwrap() else {
                panic!("{text}");
            };
            let path = format!("manifests/{}", image.version());
            assert_eq!(image.url(&path).unwrap().as_str(), url);
        }
    }
}
