//! Evidence of the publisher of a component, not verified yet: a signature, or bundles of Sigstore.

/// A component, and what was found with it.
#[derive(Debug)]
pub(crate) struct Evidence {
    component: Vec<u8>,
    /// Manifest of the artefact that the component came from.
    manifest: Option<Vec<u8>>,
    /// Signatures or bundles, or why one cannot be read.
    found: Vec<anyhow::Result<Vec<u8>>>,
}

impl Evidence {
    /// Returns the evidence for a component in a file or behind an address.
    pub(crate) fn beside(component: Vec<u8>, found: Option<Vec<u8>>) -> Self {
        Self {
            component,
            manifest: None,
            found: found.into_iter().map(Ok).collect(),
        }
    }

    /// Returns the evidence for the component of an artefact.
    pub(crate) fn of_artefact(
        component: Vec<u8>,
        manifest: Vec<u8>,
        found: Vec<anyhow::Result<Vec<u8>>>,
    ) -> Self {
        Self {
            component,
            manifest: Some(manifest),
            found,
        }
    }

    /// Bytes of the component.
    pub(crate) fn component(&self) -> &[u8] {
        &self.component
    }

    /// Takes the component.
    pub(crate) fn into_component(self) -> Vec<u8> {
        self.component
    }

    /// Bytes that a bundle signs: the manifest of an artefact, which has the digest of the component, or the component.
    #[cfg_attr(not(feature = "sigstore"), expect(dead_code, reason = "for bundles alone"))]
    pub(crate) fn signed(&self) -> &[u8] {
        self.manifest.as_deref().unwrap_or(&self.component)
    }

    /// Returns the first that was found.
    pub(crate) fn first(&self) -> Option<anyhow::Result<&[u8]>> {
        self.found().next()
    }

    /// Returns all that was found.
    pub(crate) fn found(&self) -> impl Iterator<Item = anyhow::Result<&[u8]>> {
        self.found.iter().map(|one| match one {
            Ok(bytes) => Ok(bytes.as_slice()),
            Err(error) => Err(anyhow::anyhow!("{error:#}")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_of_several_signatures_counts() {
        let found = [b"one", b"two"].map(|text| Ok(text.to_vec()));
        let evidence = Evidence::of_artefact(b"component".to_vec(), b"manifest".to_vec(), found.into());
        assert_eq!(evidence.first().unwrap().unwrap(), b"one");
    }
}
