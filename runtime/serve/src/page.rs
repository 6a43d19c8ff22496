//! Files of the page, part of the binary.
//!
//! They are served as they are in `page/`: there is no build step. Only `index.html` names the digest of all of them in their paths, so
//! that a browser keeps them without asking again, and the modules that it loads at once. [`HEADERS`] go with each of them. The policy lets the page
//! load from and connect to its own server only, and forbids HTML, scripts and styles from strings, so that whatever an answer
//! contains can neither run nor send anything away.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::LazyLock;

use bytes::Bytes;

/// Content Security Policy of the page.
pub(crate) const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; \
     connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; \
     require-trusted-types-for 'script'; trusted-types 'none'";

/// Headers of every file of the page.
pub(crate) const HEADERS: &[(&str, &str)] = &[
    ("content-security-policy", CSP),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    (
        "permissions-policy",
        "camera=(), microphone=(), geolocation=(), usb=(), payment=()",
    ),
    ("vary", "accept-encoding"),
];

/// A file of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asset {
    /// Value of `Content-Type`.
    pub(crate) media_type: &'static str,
    /// Content.
    pub(crate) bytes: Bytes,
    /// Content for a client with `Accept-Encoding: gzip`.
    pub(crate) gzip: Bytes,
    /// Value of `ETag`, with its quotes.
    pub(crate) etag: String,
}

macro_rules! files {
    ($($name:literal)*) => {
        [$(($name, include_bytes!(concat!("../page/", $name)).as_slice()),)*]
    };
}

/// Content of `page/`; a test compares it with the folder.
static FILES: &[(&str, &[u8])] = &files![
    "api.js"
    "app.js"
    "contract.js"
    "dom.js"
    "icon.svg"
    "index.html"
    "model.js"
    "stream.js"
    "style.css"
    "views/calls.js"
    "views/chat.js"
    "views/composer.js"
    "views/items.js"
    "views/question.js"
    "views/scratch.js"
    "views/sessions.js"
    "views/side.js"
    "views/timeline.js"
    "views/tools.js"
    "views/usage.js"
];

/// Path of the files. `index.html` also answers the paths of the views.
const PREFIX: &str = "/page/";

/// The page itself.
const INDEX: &str = "index.html";

/// Script that loads the others.
const SCRIPT: &str = "app.js";

static ASSETS: LazyLock<BTreeMap<&'static str, Asset>> = LazyLock::new(|| {
    FILES
        .iter()
        .map(|(name, bytes)| {
            let bytes = match *name {
                INDEX => Bytes::from(index(&String::from_utf8_lossy(bytes))),
                _ => Bytes::from_static(bytes),
            };
            (*name, compressed(name, bytes))
        })
        .collect()
});

/// Digest of all files, which is part of their paths: a file at such a path never changes.
static DIGEST: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = blake3::Hasher::new();
    for (name, bytes) in FILES {
        hasher.update(name.as_bytes());
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    }
    hasher.finalize().to_hex()[..16].to_owned()
});

/// Returns the page with the digest in the paths of its files. It names all modules: a browser would find them one after another.
fn index(html: &str) -> String {
    let modules = FILES.iter().map(|(name, _)| *name);
    let modules: String = modules
        .filter(|name| name.ends_with(".js") && *name != SCRIPT)
        .map(|name| format!("<link rel=\"modulepreload\" href=\"{PREFIX}{name}\">\n"))
        .collect();
    let html = html.replace("</head>", &format!("{modules}</head>"));
    html.replace(PREFIX, &format!("{PREFIX}{}/", *DIGEST))
}

fn compressed(name: &str, bytes: Bytes) -> Asset {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    // Writing to memory does not fail; without a compressed form the plain one is served.
    let gzip = encoder
        .write_all(&bytes)
        .and_then(|()| encoder.finish())
        .unwrap_or_default();
    Asset {
        media_type: media_type(name),
        etag: format!("\"{}\"", &blake3::hash(&bytes).to_hex()[..32]),
        bytes,
        gzip: gzip.into(),
    }
}

/// Compresses all files, so that the first visit does not wait for it.
pub(crate) fn prepare() {
    LazyLock::force(&ASSETS);
}

/// Returns the name of a file whose path has the digest.
fn kept(path: &str) -> Option<&str> {
    path.strip_prefix(PREFIX)?
        .strip_prefix(DIGEST.as_str())?
        .strip_prefix('/')
}

/// Value of `Cache-Control`. A browser keeps a file whose path has the digest. It may keep others, and asks by their tags whether they are
/// still the same.
pub(crate) fn cache_control(path: &str) -> &'static str {
    match kept(path) {
        Some(_) => "public, max-age=31536000, immutable",
        None => "no-cache",
    }
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

/// Returns the file for a path: those of the page below `/page/` with or without the digest, and the page itself for `/` and the paths of its views.
pub(crate) fn asset(path: &str) -> Option<&'static Asset> {
    if let Some(name) = kept(path).or_else(|| path.strip_prefix(PREFIX)) {
        return ASSETS.get(name);
    }
    is_view(path).then(|| ASSETS.get(INDEX)).flatten()
}

/// Returns a page with a failure, for a user whose browser asked for one. Its texts are those of the server; what stands between
/// backticks is code.
pub(crate) fn failure(message: &str, hints: &[String]) -> String {
    let title = sentence(message);
    let hints: String = hints
        .iter()
        .map(|hint| format!("<p>{}</p>\n", marked(&sentence(hint))))
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{} · Toolcell</title>\n\
         <link rel=\"icon\" href=\"/page/icon.svg\" type=\"image/svg+xml\">\n\
         <link rel=\"stylesheet\" href=\"/page/style.css\">\n</head>\n<body>\n\
         <header class=\"bar\"><a class=\"brand\" href=\"/\">Toolcell</a></header>\n\
         <main id=\"main\"><div class=\"page\"><div class=\"failure\"><h1>{}</h1>\n{hints}</div></div></main>\n</body>\n</html>\n",
        escaped(&title),
        marked(&title),
    )
}

/// Returns a text with a capital letter first.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().collect::<String>());
    format!("{}{}", first.unwrap_or_default(), chars.as_str())
}

fn marked(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(place, part)| match place % 2 {
        0 => escaped(part),
        _ => format!("<code>{}</code>", escaped(part)),
    });
    parts.collect()
}

fn escaped(text: &str) -> String {
    let parts = text.chars().map(|character| match character {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        other => other.to_string(),
    });
    parts.collect()
}

/// True if a value of `Accept-Encoding` names gzip, without a weight of zero.
pub(crate) fn accepts_gzip(value: &str) -> bool {
    value.split(',').any(|one| {
        let (name, weight) = one.split_once(';').unwrap_or((one, ""));
        let weight = weight
            .trim()
            .strip_prefix("q=")
            .map_or(Ok(1.0), str::parse::<f32>);
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_ok_and(|weight| weight > 0.0)
    })
}

/// True for the path of a view: `/`, `/s/ID`, `/s/ID/timeline`, `/usage`, `/tools`, `/scratch` and `/scratch/NAME`.
fn is_view(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match parts.as_slice() {
        [""] | ["usage" | "tools" | "scratch"] => true,
        ["s", id] | ["s", id, "timeline"] | ["scratch", id] => !id.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Maximum size of the page with all of its files, compressed, in bytes: it is to appear at once.
    const MAX_PAGE_BYTES: usize = 80 << 10;

    fn page() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/page"))
    }

    fn names(folder: &Path, prefix: &str) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true => names.extend(self::names(&entry.path(), &format!("{name}/"))),
                false => drop(names.insert(name)),
            }
        }
        names
    }

    #[test]
    fn every_file_of_the_folder_is_served() {
        let served: BTreeSet<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(served, names(page(), ""));
        for name in served {
            let asset = asset(&format!("/page/{name}")).unwrap();
            assert_ne!(asset.media_type, "application/octet-stream", "{name}");
            assert!(!asset.gzip.is_empty(), "{name}");
        }
    }

    #[test]
    fn files_with_the_digest_in_their_path_are_kept() {
        let index = asset("/").unwrap();
        let html = std::str::from_utf8(&index.bytes).unwrap();
        let paths: Vec<&str> = (html.split(['"']))
            .filter(|part| part.starts_with(PREFIX))
            .collect();
        // The icon and all others but the page itself.
        assert_eq!(paths.len(), FILES.len() - 1, "{html}");
        for path in paths {
            assert!(
                asset(path).is_some() && cache_control(path).ends_with("immutable"),
                "{path}"
            );
            let other = path.replace(DIGEST.as_str(), "0000000000000000");
            assert!(
                asset(&other).is_none() && cache_control(&other) == "no-cache",
                "{other}"
            );
        }
        for path in ["/", "/s/1", "/page/app.js"] {
            assert!(
                asset(path).is_some() && cache_control(path) == "no-cache",
                "{path}"
            );
        }
    }

    #[test]
    fn compressed_form_is_for_clients_that_accept_it() {
        for (value, accepts) in [
            ("gzip, deflate, br", true),
            ("br;q=1.0, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip;q=x", false),
            ("br", false),
            ("xgzip", false),
            ("", false),
        ] {
            assert_eq!(accepts_gzip(value), accepts, "{value}");
        }
    }

    #[test]
    fn page_is_small() {
        let size: usize = ASSETS.values().map(|asset| asset.gzip.len()).sum();
        assert!(size <= MAX_PAGE_BYTES, "{size}");
    }

    #[test]
    fn failure_is_a_page_without_markup_of_others() {
        let page = failure("the `a<b>` & \"c\"", &["open `d`".to_owned()]);
        assert!(
            page.contains(
                "<h1>The <code>a&lt;b&gt;</code> &amp; &quot;c&quot;</h1>\n<p>Open <code>d</code></p>"
            ),
            "{page}"
        );
        assert!(!page.contains("<script") && !page.contains("style="), "{page}");
    }

    #[test]
    fn landmarks_of_items_are_unique() {
        // A section with a name is a landmark, and an item can be there twice.
        for (name, bytes) in FILES.iter().filter(|(name, _)| name.starts_with("views/")) {
            let source = String::from_utf8_lossy(bytes);
            for (at, _) in source.match_indices("h(\"section") {
                let attributes = source[at..].split_once('{').map_or("", |(_, rest)| rest);
                let attributes = attributes.split('}').next().unwrap_or_default();
                let head = source[at..].split_once(')').map_or("", |(head, _)| head);
                let is_named = head.contains("aria-label\"") && attributes.contains("aria-label\": \"");
                assert!(!is_named, "{name}: {head}");
            }
        }
    }

    #[test]
    fn views_are_the_page_and_other_paths_are_not() {
        let index = asset("/page/index.html").unwrap();
        for path in [
            "/",
            "/s/1",
            "/s/1/timeline",
            "/usage",
            "/tools",
            "/scratch",
            "/scratch/a",
        ] {
            assert_eq!(asset(path), Some(index), "{path}");
        }
        for path in [
            "",
            "/s",
            "/s/",
            "/s/1/x",
            "/s/1/timeline/",
            "/api",
            "/page",
            "/page/",
            "/page/../src/page.rs",
            "/page//app.js",
            "/app.js",
            "//",
            "/usage/",
            "/index.html",
        ] {
            assert_eq!(asset(path), None, "{path}");
        }
    }

    #[test]
    fn page_names_no_other_host_and_needs_no_html_of_strings() {
        for (name, bytes) in FILES {
            let text = std::str::from_utf8(bytes).unwrap();
            // The name of a namespace is not an address.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for word in [
                "http://",
                "https://",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "DOMParser",
                "srcdoc",
                "style=",
                "@import",
                "url(",
            ] {
                assert!(!text.contains(word), "{name}: {word}");
            }
        }
    }

    #[test]
    fn page_knows_every_element_of_rendered_markdown() {
        let source = std::str::from_utf8(&asset("/page/dom.js").unwrap().bytes).unwrap();
        for tag in crate::markdown::Tag::ALL {
            let name = tag.name();
            let is_known =
                source.contains(&format!("{name}: \"")) || source.contains(&format!("case \"{name}\""));
            assert!(is_known, "{name}");
        }
    }
}
