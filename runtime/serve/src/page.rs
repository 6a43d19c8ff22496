//! Files of the page, embedded in the program.

/// Policy of the page: nothing is loaded from elsewhere, and no page embeds it.
pub(crate) const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; \
                              connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

/// File of the page.
pub(crate) struct Asset {
    pub(crate) media_type: &'static str,
    pub(crate) bytes: &'static [u8],
}

/// Returns the file at a path.
pub(crate) fn asset(path: &str) -> Option<Asset> {
    let is_view = matches!(path, "/" | "/usage" | "/tools" | "/scratch")
        || path.starts_with("/s/")
        || path.starts_with("/scratch/");
    is_view.then_some(Asset {
        media_type: "text/html; charset=utf-8",
        bytes: include_bytes!("../page/index.html"),
    })
}
