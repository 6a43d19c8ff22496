//! Files as resources: `file:` URIs of what is granted.
//!
//! A file is read whole. A directory is a JSON object with the files below it, from which the host makes the list of resources.

use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use toolcell_sdk::resources::{Resource, Resources, Template};
use toolcell_sdk::serde_json::{Value, json};
use toolcell_sdk::{Context, Output, Result, ToolError, files, show};

use crate::media;
use crate::walk::{Kind, Walk};

/// Maximum number of files in the list of a directory. A host lists at most 1,024 resources of a component.
const MAX_LISTED: usize = 1_000;

/// Maximum size of a file that is read as a resource, in bytes. It is read whole, and a result has at most 4 MiB unless the
/// user changes that limit; `files_read` reads larger files in parts.
const MAX_FILE: u64 = 3 << 20;

/// Beginning of the URIs.
const SCHEME: &str = "file://";

/// Files below the granted directories.
pub(crate) struct Files;

impl Resources for Files {
    /// Nothing is known without a grant; directories are listed by reading them.
    fn list() -> Vec<Resource> {
        Vec::new()
    }

    fn templates() -> Vec<Template> {
        vec![Template::new("file:///{+path}", "file").description("A file, or the list of a directory.")]
    }

    fn read(uri: &str, _: &Context) -> Result<Output> {
        let path = path_of(uri).ok_or_else(|| ToolError::invalid("it is not a `file:` URI of a path"))?;
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(ToolError::invalid("there is no such file"));
            }
            Err(error) => return Err(files::explain(&path, &error)),
        };
        if metadata.is_dir() {
            return Ok(Output::new().text(listed(Path::new(&path))?.to_string()));
        }
        if metadata.len() > MAX_FILE {
            return Err(ToolError::failed(format_args!(
                "{} has {} bytes; a resource has at most {MAX_FILE}",
                show::quoted(&path),
                metadata.len()
            )));
        }
        let bytes = files::read_bytes(&path, MAX_FILE)?;
        Ok(match String::from_utf8(bytes) {
            Ok(text) => Output::new().text(text),
            Err(error) => {
                let bytes = error.into_bytes();
                let media_type = match media::of_name(&path) {
                    Some(media_type) => media_type,
                    None => media::sniff(&bytes).0,
                };
                Output::new().blob(media_type, bytes)
            }
        })
    }
}

/// Returns the files below a directory: neither hidden ones nor those that `.gitignore` files leave out. Links are not followed.
fn listed(directory: &Path) -> Result<Value> {
    let mut found = Vec::new();
    let mut is_complete = true;
    let depth = usize::from(u8::MAX);
    let walked = Walk { depth, all: false }.visit(directory, &mut |entry| {
        if entry.kind != Kind::File {
            return Ok(true);
        }
        if found.len() == MAX_LISTED {
            is_complete = false;
            return Ok(false);
        }
        let Some(path) = entry.path.to_str() else {
            return Ok(true);
        };
        let modified = fs::symlink_metadata(&entry.path)
            .and_then(|metadata| metadata.modified())
            .ok()
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
            .map(|since| since.as_nanos().to_string());
        found.push(json!({
            "uri": uri_of(path),
            "name": entry.relative,
            "mimeType": media::of_name(path),
            "size": entry.size,
            "modified": modified,
        }));
        Ok(true)
    })?;
    Ok(json!({ "files": found, "complete": is_complete && walked.complete }))
}

/// Returns the URI of an absolute path (RFC 8089).
fn uri_of(path: &str) -> String {
    let mut uri = SCHEME.to_owned();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
}

/// Returns the absolute path of a URI; `None` for one of another host, with a query or a fragment, or with invalid encoding.
fn path_of(uri: &str) -> Option<String> {
    let encoded = uri.strip_prefix(SCHEME).filter(|path| path.starts_with('/'))?;
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
    String::from_utf8(bytes).ok().filter(|path| !path.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_sdk::Content;

    fn read(path: &Path) -> Result<Output> {
        Files::read(&uri_of(path.to_str().unwrap()), &Context::default())
    }

    fn list(path: &Path) -> Value {
        toolcell_sdk::serde_json::from_str(&read(path).unwrap().to_text()).unwrap()
    }

    #[test]
    fn uri_names_the_path_in_one_way() {
        let uri = uri_of("/a b/é%?#.md");
        assert_eq!(uri, "file:///a%20b/%C3%A9%25%3F%23.md");
        assert_eq!(path_of(&uri).as_deref(), Some("/a b/é%?#.md"));
        assert_eq!(path_of("file:///a+b@c").as_deref(), Some("/a+b@c"));
        for bad in [
            "file://host/a",
            "file:/a",
            "http:///a",
            "/a",
            "file:///a?b",
            "file:///a#b",
            "file:///%",
            "file:///%4",
            "file:///%+1",
            "file:///%FF",
            "file:///a%00",
        ] {
            assert_eq!(path_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn text_is_read_whole_and_other_files_as_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a b.md");
        fs::write(&path, "# A\r\nb").unwrap();
        assert_eq!(read(&path).unwrap().to_text(), "# A\r\nb");
        for (name, bytes, media_type) in [
            ("picture", &b"\x89PNG\r\n\x1a\n\xff"[..], "image/png"),
            ("x.pdf", b"\xff", "application/pdf"),
            ("other", b"\xff\xfe\0", "application/octet-stream"),
        ] {
            let path = dir.path().join(name);
            fs::write(&path, bytes).unwrap();
            let expected = Content::Blob {
                media_type: media_type.into(),
                data: bytes.to_vec(),
            };
            assert_eq!(read(&path).unwrap().content, [expected], "{name}");
        }
    }

    #[test]
    fn missing_file_is_no_resource() {
        let dir = tempfile::tempdir().unwrap();
        let error = read(&dir.path().join("none")).unwrap_err();
        assert_eq!(error.kind(), toolcell_sdk::ErrorKind::InvalidArguments);
        let error = Files::read("file://host/etc", &Context::default()).unwrap_err();
        assert_eq!(error.kind(), toolcell_sdk::ErrorKind::InvalidArguments);
    }

    #[test]
    fn file_above_the_limit_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        fs::File::create(&path).unwrap().set_len(MAX_FILE).unwrap();
        assert!(read(&path).is_ok());
        fs::File::create(&path).unwrap().set_len(MAX_FILE + 1).unwrap();
        let error = read(&path).unwrap_err();
        assert!(
            error
                .message()
                .ends_with("has 3145729 bytes; a resource has at most 3145728"),
            "{error}"
        );
    }

    #[test]
    fn directory_lists_the_files_below_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/b c.md"), "12345").unwrap();
        fs::write(dir.path().join(".hidden"), "").unwrap();
        fs::write(dir.path().join("a.unknown"), "").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink("/", dir.path().join("link")).unwrap();
        let listed = list(dir.path());
        assert_eq!(listed["complete"], true);
        let names: Vec<&Value> = listed["files"]
            .as_array()
            .unwrap()
            .iter()
            .map(|file| &file["name"])
            .collect();
        assert_eq!(names, ["a.unknown", "sub/b c.md"]);
        let file = &listed["files"][1];
        assert_eq!(
            (&file["size"], &file["mimeType"]),
            (&json!(5), &json!("text/markdown"))
        );
        assert!(file["uri"].as_str().unwrap().ends_with("/sub/b%20c.md"));
        assert!(file["modified"].as_str().unwrap().len() > 10);
    }

    #[test]
    fn long_list_says_that_it_is_not_complete() {
        let dir = tempfile::tempdir().unwrap();
        for i in 0..MAX_LISTED {
            fs::write(dir.path().join(format!("{i}")), "").unwrap();
        }
        assert_eq!(list(dir.path())["complete"], true);
        fs::write(dir.path().join("one more"), "").unwrap();
        let listed = list(dir.path());
        assert_eq!(listed["complete"], false);
        assert_eq!(listed["files"].as_array().unwrap().len(), MAX_LISTED);
    }
}
