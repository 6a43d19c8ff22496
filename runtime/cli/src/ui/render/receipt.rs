//! Receipts on one line, and hints that allow denied accesses.

use std::time::Duration;

use toolcell_core::{Grant, Receipt};

use crate::config::source::PROJECT;
use crate::config::units::{Bytes, Count, Span};
use crate::ui::escape;
use crate::ui::terminal::{Name, Own, Shown, Text, text};

/// Maximum number of files or hosts that are named.
const MAX_NAMED: usize = 3;

/// Formats a receipt on one line: `12 ms · 1.2 M fuel · 2 MiB memory · read /README.md`.
pub(crate) fn line(receipt: &Receipt) -> Text {
    let mut parts = vec![text!("{}", Span(Duration::from_micros(receipt.wall_us)))];
    match &receipt.server {
        Some(server) => {
            let sizes = (Bytes(receipt.bytes_in), Bytes(receipt.bytes_out));
            parts.push(text!("{} sent, {} received", sizes.0, sizes.1));
            let cell = match receipt.server_in_cell {
                true => "in a cell of its own",
                false => "not in a cell",
            };
            parts.push(text!("{}: MCP server {}", Own(cell), Name(server)));
        }
        None => {
            parts.push(text!("{} fuel", Count(receipt.fuel)));
            parts.push(text!("{} memory", Bytes(receipt.peak_memory)));
        }
    }
    let files = |write: bool| {
        let of_kind = receipt.files.iter().filter(move |file| file.write == write);
        of_kind.map(|file| file.path.as_str()).collect()
    };
    let buckets = |write: bool| {
        let of_kind = receipt.buckets.iter().filter(move |bucket| bucket.write == write);
        of_kind.map(|bucket| bucket.bucket.as_str()).collect()
    };
    let denied = receipt
        .denials
        .iter()
        .map(|denial| text!("{} {}", Name(&denial.what), Shown(&denial.target)));
    parts.extend(names("read", files(false)));
    parts.extend(names("wrote", files(true)));
    parts.extend(names(
        "contacted",
        receipt.hosts.iter().map(String::as_str).collect(),
    ));
    parts.extend(names("read bucket", buckets(false)));
    parts.extend(names("wrote bucket", buckets(true)));
    parts.extend(named("denied", denied.collect()));
    Text::join(parts, " · ")
}

fn names(verb: &'static str, names: Vec<&str>) -> Option<Text> {
    named(
        verb,
        names.into_iter().map(|name| text!("{}", Shown(name))).collect(),
    )
}

fn named(verb: &'static str, names: Vec<Text>) -> Option<Text> {
    let all = names.len();
    let shown = Text::join(names.into_iter().take(MAX_NAMED), ", ");
    match all.saturating_sub(MAX_NAMED) {
        _ if all == 0 => None,
        0 => Some(text!("{} {}", Own(verb), shown)),
        more => Some(text!("{} {} and {} more", Own(verb), shown, more)),
    }
}

/// Returns a hint for each denial: a flag and a configuration line that allow it, or the line that denies it.
///
/// `component` is the name of the component in the configuration; `configuration` is the path of the user's file, or
/// `None` for a component that is only named on the command line. `https_only` returns the grant for `https` that a
/// request over `http` missed.
pub(crate) fn allow_hints<'a>(
    receipt: &Receipt,
    component: &str,
    configuration: Option<&str>,
    https_only: impl Fn(&Grant) -> Option<&'a Grant>,
) -> Vec<String> {
    let mut hints = Vec::new();
    // One hint for each directory: a move needs several rights to it, and a tool tries one after the other.
    let mut directories: Vec<Grant> = Vec::new();
    for denial in &receipt.denials {
        if let Some(by) = &denial.denied_by {
            let hint = text!("`{}` is denied by {}", denial.target, by).inert();
            if !hints.contains(&hint) {
                hints.push(hint);
            }
            continue;
        }
        // The target comes from the guest: it is shown only if it parses as a grant, in canonical form.
        let Some(grant) = denial
            .allow_with
            .as_ref()
            .and_then(|line| line.parse::<Grant>().ok())
        else {
            continue;
        };
        if let Grant::Dir { host, guest, access } = &grant {
            let same = directories.iter_mut().find_map(|known| match known {
                Grant::Dir {
                    host: h,
                    guest: g,
                    access,
                } if (&*h, &*g) == (host, guest) => Some(access),
                _ => None,
            });
            match same {
                Some(all) => {
                    all.read |= access.read;
                    all.write |= access.write;
                    all.create |= access.create;
                    all.delete |= access.delete;
                }
                None => directories.push(grant),
            }
            continue;
        }
        let mut hint = allow(&grant, component, configuration);
        if let Some(granted) = https_only(&grant) {
            hint = format!("`{granted}` allows https alone, and the request is for http; {hint}");
        }
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    let directories = directories.iter();
    hints.extend(directories.map(|grant| allow(grant, component, configuration)));
    hints
}

/// Returns a hint that gives a grant to a component.
pub(crate) fn allow(grant: &Grant, component: &str, configuration: Option<&str>) -> String {
    let grant = grant.to_string();
    match configuration {
        // A flag without a name does not apply to a component of a project.
        None if component.starts_with(PROJECT) => format!(
            "allow it with --grant {}",
            escape::shell(&format!("{component}:{grant}"))
        ),
        None => format!("allow it with --grant {}", escape::shell(&grant)),
        Some(path) => format!(
            "allow it with --grant {}\nor, in {path}: [tools.{component}] grants = [{}]",
            escape::shell(&format!("{component}:{grant}")),
            escape::toml(&grant)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_core::receipt::{Denial, FileTouched};

    #[test]
    fn receipt_fits_on_one_line() {
        let file = |path: &str, write| FileTouched {
            path: path.into(),
            write,
        };
        let receipt = Receipt {
            fuel: 1_234_567,
            wall_us: 12_345,
            peak_memory: 2 << 20,
            files: vec![
                file("/a", false),
                file("/b", true),
                file("/c", false),
                file("/d", false),
                file("/e", false),
            ],
            hosts: vec!["example.com:443".into()],
            denials: vec![Denial {
                what: "env".into(),
                target: "HOME".into(),
                allow_with: None,
                denied_by: None,
                needed: 0,
            }],
            ..Receipt::default()
        };
        assert_eq!(
            line(&receipt).plain(),
            "12 ms · 1.2 M fuel · 2 MiB memory · read /a, /c, /d and 1 more · wrote /b · contacted example.com:443 · denied env HOME"
        );
        assert_eq!(line(&Receipt::default()).plain(), "0 ms · 0 fuel · 0 B memory");
    }

    #[test]
    fn denial_shows_flag_and_line_that_would_allow_it() {
        let denial = |allow_with: &str| Denial {
            what: "http".into(),
            target: "x".into(),
            allow_with: Some(allow_with.into()),
            denied_by: None,
            needed: 0,
        };
        let receipt = Receipt {
            denials: vec![
                denial("http=https://example.com"),
                denial("http=https://example.com"),
                denial("rubbish'; rm"),
            ],
            ..Receipt::default()
        };
        assert_eq!(
            allow_hints(&receipt, "fetch", Some("~/.config/toolcell/config.toml"), |_| {
                None
            }),
            [
                "allow it with --grant fetch:http=https://example.com\nor, in ~/.config/toolcell/config.toml: [tools.fetch] grants = [\"http=https://example.com\"]"
            ]
        );
        assert_eq!(
            allow_hints(&receipt, "x", None, |_| None),
            ["allow it with --grant http=https://example.com"]
        );
    }

    #[test]
    fn grant_of_https_alone_is_named_with_a_request_for_http() {
        let receipt = Receipt {
            denials: vec![Denial {
                what: "http".into(),
                target: "x".into(),
                allow_with: Some("http=http://example.com".into()),
                denied_by: None,
                needed: 0,
            }],
            ..Receipt::default()
        };
        let granted: Grant = "http=example.com".parse().unwrap();
        assert_eq!(
            allow_hints(&receipt, "x", None, |_| Some(&granted)),
            [
                "`http=example.com` allows https alone, and the request is for http; allow it with --grant http=http://example.com"
            ]
        );
    }

    #[test]
    fn denial_by_line_names_that_line() {
        let denial = Denial {
            what: "file".into(),
            target: "/private/key` is yours, and `x".into(),
            allow_with: None,
            denied_by: Some("`deny=private` (config.toml:1)".into()),
            needed: 0,
        };
        let receipt = Receipt {
            denials: vec![denial.clone(), denial],
            ..Receipt::default()
        };
        assert_eq!(
            allow_hints(&receipt, "x", None, |_| None),
            ["`/private/key\\u{60} is yours, and \\u{60}x` is denied by `deny=private` (config.toml:1)"]
        );
    }
}
