//! Directories that are offered as resources: the built-in component `files` lists and reads them, in cells.
//!
//! What holds for a grant of the directory holds here: denials, protected places, links. The list is made anew while clients are
//! connected.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use toolcell_core::policy::DirAccess;
use toolcell_core::resource::{URI_ARGUMENT, check_uri};
use toolcell_core::{
    ArgumentPlace, BoxFuture, CallContext, CallResult, Content, Grant, RemainingBudget, ResourceSpec,
    ResourceTemplate, Resources, Tool, ToolCall, ToolSpec, UriTemplate, inert,
};

use crate::components::builtin;
use crate::components::loader::{ComponentLoader, Loaded};
use crate::config::settings::GrantLine;
use crate::config::{ComponentSource, Origin, Settings, ToolSettings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::{Own, text};

/// Name by which rules and receipts know the directories: they are read by `read_resource_of_directory`.
const NAME: &str = "directory";

/// The component that reads them.
const COMPONENT: &str = "files";

/// The flag.
const FLAG: &str = "--resources";

/// Maximum number of directories. Each is walked every few seconds.
const MAX_DIRECTORIES: usize = 16;

/// Directories, with the settings of the component that reads them.
pub(super) struct Directories {
    settings: ToolSettings,
    roots: Vec<Root>,
}

/// A directory.
struct Root {
    /// Real path.
    path: String,
    /// Its URI, which ends with a slash.
    uri: String,
    /// Path for display.
    shown: String,
}

/// Files of all directories, by their URIs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    files: BTreeMap<String, ListedFile>,
    /// Directories of which not all files are listed, for display.
    pub(super) incomplete: Vec<String>,
}

/// File of a directory.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedFile {
    uri: String,
    name: String,
    mime_type: Option<String>,
    size: u64,
    modified: Option<String>,
}

/// List of a directory, as the component writes it.
#[derive(Deserialize)]
struct ListedDirectory {
    files: Vec<ListedFile>,
    complete: bool,
}

impl Directories {
    /// Takes the directories of the flag; `None` without any.
    ///
    /// # Errors
    /// Returns an error if there are too many, or a path is not Unicode or leads to no directory.
    pub(super) fn new(
        flags: &[String],
        settings: &Settings,
        environment: &Environment,
    ) -> Result<Option<Self>, Failure> {
        if flags.is_empty() {
            return Ok(None);
        }
        if flags.len() > MAX_DIRECTORIES {
            return Err(Failure::new(
                Exit::Usage,
                text!(
                    "{} is given {} times, more than {}",
                    Own(FLAG),
                    flags.len(),
                    MAX_DIRECTORIES
                ),
            )
            .hint("name a directory above them"));
        }
        let mut shipped = builtin::ALL.iter();
        let component = shipped.find(|shipped| shipped.name == COMPONENT);
        let component = component.map(ComponentSource::Shipped).ok_or_else(|| {
            Failure::new(
                Exit::Component,
                text!("{} needs the component `{}`", Own(FLAG), COMPONENT),
            )
            .why("it was not built together with this program")
        })?;
        let mut own = ToolSettings::new(NAME, component);
        // Denials and limits of the same component, which would read the files otherwise.
        let known = settings.tools.get(COMPONENT);
        if let Some(known) = known.filter(|known| matches!(known.component, ComponentSource::Shipped(_))) {
            own.limits.clone_from(&known.limits);
            let denials = known.grants.iter().filter(|line| line.grant.is_denial());
            own.grants.extend(denials.cloned());
        }
        own.apply_denials(&settings.overrides, environment);
        own.dangerous = settings.overrides.dangerous;
        let mut roots: Vec<Root> = Vec::new();
        for written in flags {
            let path = environment.path(written, &environment.cwd);
            let shown = environment.shown(&path);
            let fail = || {
                Failure::new(
                    Exit::Usage,
                    text!("{} `{}` cannot be offered", Own(FLAG), written),
                )
            };
            if written.is_empty() {
                return Err(fail()
                    .why("the path is empty")
                    .hint("name a directory, such as `.`"));
            }
            let real = path.canonicalize();
            let real = real.map_err(|error| fail().because(error).hint("name a directory that exists"))?;
            if !real.is_dir() {
                return Err(fail()
                    .why("it is not a directory")
                    .hint("name the directory that holds it"));
            }
            let real = real
                .into_os_string()
                .into_string()
                .map_err(|_| fail().why("the path is not Unicode"))?;
            if roots.iter().any(|root| root.path == real) {
                continue;
            }
            own.grants.push(GrantLine {
                grant: Grant::Dir {
                    host: real.clone(),
                    guest: Some(real.clone()),
                    access: DirAccess::READ,
                },
                base: environment.cwd.clone(),
                origin: Origin::Flag(FLAG),
            });
            roots.push(Root {
                uri: format!("{}/", uri_of(real.trim_end_matches('/'))),
                path: real,
                shown,
            });
        }
        Ok(Some(Self { settings: own, roots }))
    }

    /// Loads the component, and lists the directories.
    ///
    /// # Errors
    /// Returns an error if a directory cannot be granted or listed.
    pub(super) async fn load(
        &self,
        loader: &ComponentLoader<'_>,
    ) -> Result<(Loaded, Reader, Listing), Failure> {
        let mut loaded = loader.load(&self.settings).await?;
        loader.add_context(&mut loaded).await?;
        // Its tools are offered under its own name, with the grants that they have there.
        loaded.tools.clear();
        let Some(of_component) = loaded.context.resources.take() else {
            return Err(Failure::new(
                Exit::Component,
                text!("the component `{}` reads no resources", COMPONENT),
            )
            .why("it is from another version of this program"));
        };
        let reader = Reader(of_component.reader);
        let listing = self.list(&reader).await?;
        loaded.context.prompts = None;
        loaded.context.resources = Some(Resources {
            resources: self.resources(&listing),
            templates: self.templates(&listing)?,
            reader: Arc::new(reader.clone()),
        });
        Ok((loaded, reader, listing))
    }

    /// Lists the directories: not for a client, so that neither rules nor budgets apply.
    ///
    /// # Errors
    /// Returns an error if one cannot be listed.
    pub(super) async fn list(&self, reader: &Reader) -> Result<Listing, Failure> {
        let mut listing = Listing::default();
        for root in &self.roots {
            let fail = || Failure::new(Exit::Failed, text!("`{}` cannot be listed", root.shown));
            let call = ToolCall {
                id: "list".into(),
                name: reader.0.spec().name.clone(),
                arguments: [(URI_ARGUMENT.to_owned(), Value::from(root.uri.as_str()))]
                    .into_iter()
                    .collect(),
            };
            let result = reader.0.call(call, CallContext::unobserved()).await;
            if let Some(error) = &result.error {
                return Err(fail().why(text!("{}", error.to_string())));
            }
            let Some(Content::Text { text }) = result.content.first() else {
                return Err(fail().why("the list is no text"));
            };
            let listed: ListedDirectory =
                serde_json::from_str(text).map_err(|error| fail().because(error))?;
            if !listed.complete {
                listing.incomplete.push(root.shown.clone());
            }
            // One whose URI is too long cannot be read.
            let files = listed
                .files
                .into_iter()
                .filter(|file| check_uri(&file.uri).is_ok());
            listing.files.extend(files.map(|file| (file.uri.clone(), file)));
        }
        Ok(listing)
    }

    fn resources(&self, listing: &Listing) -> Vec<ResourceSpec> {
        let directories = self.roots.iter().map(|root| ResourceSpec {
            uri: root.uri.clone(),
            name: on_one_line(&root.shown),
            title: None,
            description: Some("The list of the files in this directory.".into()),
            media_type: Some("application/json".into()),
            size: None,
        });
        let files = listing.files.values().map(|file| ResourceSpec {
            uri: file.uri.clone(),
            name: on_one_line(&file.name),
            title: None,
            description: None,
            media_type: file.mime_type.clone(),
            // It would change the list as often as the file.
            size: None,
        });
        directories.chain(files).collect()
    }

    /// Returns a template for each directory, with the listed paths for completion.
    fn templates(&self, listing: &Listing) -> Result<Vec<ResourceTemplate>, Failure> {
        let templates = self.roots.iter().map(|root| {
            let template = UriTemplate::parse(&format!("{}{{+path}}", root.uri)).map_err(|error| {
                Failure::new(Exit::Usage, text!("`{}` cannot be offered", root.shown)).because(error)
            })?;
            let below = listing.files.keys();
            let below = below.filter_map(|uri| Some(uri.strip_prefix(&root.uri)?.to_owned()));
            Ok(ResourceTemplate {
                template,
                name: root.shown.clone(),
                title: None,
                description: Some("A file in this directory.".into()),
                media_type: None,
                values: vec![("path".into(), below.collect())],
            })
        });
        templates.collect()
    }

    /// Returns the URIs of what differs between two lists.
    pub(super) fn changes(&self, old: &Listing, new: &Listing) -> Changes {
        let uris: BTreeSet<&String> = old.files.keys().chain(new.files.keys()).collect();
        let changed = uris
            .into_iter()
            .filter(|uri| old.files.get(*uri) != new.files.get(*uri));
        let mut uris: BTreeSet<String> = changed.cloned().collect();
        // The list of a directory has sizes and times as well.
        let directories = self
            .roots
            .iter()
            .filter(|root| uris.iter().any(|uri| uri.starts_with(&root.uri)));
        let directories: Vec<String> = directories.map(|root| root.uri.clone()).collect();
        uris.extend(directories);
        Changes {
            is_of_list: !old.files.keys().eq(new.files.keys()),
            uris,
        }
    }
}

/// Difference between two lists.
pub(super) struct Changes {
    /// True if there are other files.
    pub(super) is_of_list: bool,
    /// What has changed, with its directories.
    pub(super) uris: BTreeSet<String>,
}

/// Reads a file by its URI. For rules and hooks, the URI is the path of the file.
#[derive(Clone)]
pub(super) struct Reader(Arc<dyn Tool>);

impl Tool for Reader {
    fn spec(&self) -> &ToolSpec {
        self.0.spec()
    }

    fn call(&self, call: ToolCall, cx: CallContext) -> BoxFuture<'_, CallResult> {
        self.0.call(call, cx)
    }

    fn max_use(&self) -> RemainingBudget {
        self.0.max_use()
    }

    fn places(&self, arguments: &Value) -> Vec<ArgumentPlace> {
        let uri = arguments.get(URI_ARGUMENT).and_then(Value::as_str);
        let Some(path) = uri.and_then(path_of) else {
            return self.0.places(arguments);
        };
        let mut places = self.0.places(&json!({ "path": path }));
        for place in &mut places {
            place.pointer = format!("/{URI_ARGUMENT}");
        }
        places
    }

    fn changes_files(&self) -> bool {
        self.0.changes_files()
    }
}

/// Returns the URI of an absolute path (RFC 8089), as the component writes it.
fn uri_of(path: &str) -> String {
    let mut uri = "file://".to_owned();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
}

/// Returns the path in a URI, as the component reads it; `None` if it refuses the URI.
fn path_of(uri: &str) -> Option<String> {
    let encoded = uri.strip_prefix("file://").filter(|path| path.starts_with('/'))?;
    if encoded.contains(['?', '#']) {
        return None;
    }
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let code = rest.split_off(..2)?;
        let is_hex = code.iter().all(u8::is_ascii_hexdigit);
        let code = std::str::from_utf8(code).ok().filter(|_| is_hex)?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// Returns the name of a file for a list that clients show: one with line breaks, or characters that are invisible or change the
/// order of others, as a JSON string, as tools show it to models.
fn on_one_line(name: &str) -> String {
    match name.contains(inert::is_unsafe) {
        true => inert::json(&serde_json::Value::from(name).to_string()),
        false => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_with_odd_characters_is_a_json_string() {
        for (name, shown) in [
            ("b c.md", "b c.md"),
            ("größe", "größe"),
            ("a\nserving", r#""a\nserving""#),
            ("a\u{1b}[2J", r#""a\u001b[2J""#),
            ("txt\u{202e}exe", r#""txt\u202eexe""#),
        ] {
            assert_eq!(on_one_line(name), shown);
        }
    }

    #[test]
    fn uri_and_path_are_those_of_the_component() {
        let uri = uri_of("/a b/é%?#.md");
        assert_eq!(uri, "file:///a%20b/%C3%A9%25%3F%23.md");
        assert_eq!(path_of(&uri).as_deref(), Some("/a b/é%?#.md"));
        for bad in [
            "file://host/a",
            "file:///a?b",
            "file:///a#b",
            "file:///%",
            "file:///%+1",
            "file:///%FF",
        ] {
            assert_eq!(path_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn changes_are_of_files_and_of_their_directories() {
        let environment_root = |path: &str| Root {
            path: path.into(),
            uri: format!("{}/", uri_of(path)),
            shown: path.into(),
        };
        let directories = Directories {
            settings: ToolSettings::new(NAME, ComponentSource::Shipped(&builtin::ALL[0])),
            roots: vec![environment_root("/a"), environment_root("/b")],
        };
        let listing = |files: &[(&str, u64)]| Listing {
            files: files
                .iter()
                .map(|(path, size)| {
                    let file = ListedFile {
                        uri: uri_of(path),
                        name: "n".into(),
                        mime_type: None,
                        size: *size,
                        modified: None,
                    };
                    (file.uri.clone(), file)
                })
                .collect(),
            incomplete: Vec::new(),
        };
        let old = listing(&[("/a/1", 1), ("/a/2", 1), ("/b/1", 1)]);
        for (new, is_of_list, uris) in [
            (listing(&[("/a/1", 1), ("/a/2", 1), ("/b/1", 1)]), false, &[][..]),
            (
                listing(&[("/a/1", 1), ("/a/2", 2), ("/b/1", 1)]),
                false,
                &["file:///a/", "file:///a/2"],
            ),
            (
                listing(&[("/a/1", 1), ("/b/1", 1)]),
                true,
                &["file:///a/", "file:///a/2"],
            ),
        ] {
            let changes = directories.changes(&old, &new);
            assert_eq!(changes.is_of_list, is_of_list);
            assert_eq!(changes.uris.iter().collect::<Vec<_>>(), uris);
        }
    }
}
