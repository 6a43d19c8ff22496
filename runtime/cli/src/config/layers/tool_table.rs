//! Converts tables of tools and hooks to settings: declaration, grants, denials, secret bindings.

use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toolcell_core::Grant;
use toolcell_core::secret::{SecretBinding, SecretPlacement};
use toolcell_core::suggest::nearest;

use crate::config::file::{BindingTable, DenyLine, ToolTable};
use crate::config::names::{self, TakenNames};
use crate::config::settings::{ComponentSource, GrantLine, Settings, ToolSettings};
use crate::config::source::{Layer, Origin, Source, Sourced};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::{Text, text};

/// Returns the tool that a table configures; a table with a component defines a new one. Tools of a project have a
/// prefix ([`PROJECT`](crate::config::source::PROJECT)).
pub(super) fn declare<'a>(
    settings: &'a mut Settings,
    taken: &TakenNames,
    name: &Spanned<String>,
    table: &ToolTable,
    source: &Arc<Source>,
    environment: &Environment,
) -> Result<&'a mut ToolSettings, Failure> {
    let key = name.get_ref();
    let fail = |what: Text| Failure::new(Exit::Config, what).why(source.point_at(&name.span()));
    let well_formed = toolcell_core::ToolName::new(key.as_str()).is_ok();
    let declared = match (&table.component, settings.tools.get(key)) {
        (Some(_), None) if !well_formed => {
            return Err(fail(text!("`{}` is not a valid name of a tool", key))
                .hint("use 1 to 64 characters of a-z, A-Z, 0-9, `_` and `-`, the first one a letter"));
        }
        (Some(component), None) => {
            let declared = match source.layer {
                Layer::User => key.clone(),
                Layer::Project => match taken.taken_by(key) {
                    None => names::of_project(key),
                    Some(owner) => {
                        return Err(fail(text!("a component of a project cannot be called `{}`", key))
                            .why(text!("the name belongs to {}", Text::sentence(owner, [])))
                            .hint("give it a name that is not in use"));
                    }
                },
            };
            let base = source.path.parent().unwrap_or(&environment.cwd);
            let path = Sourced {
                value: environment.path(component.get_ref(), base),
                origin: origin(source, component),
            };
            let tool = ToolSettings::new(declared.clone(), ComponentSource::File(path));
            settings.tools.insert(declared.clone(), tool);
            declared
        }
        (Some(component), Some(known)) => {
            let why = source.point_at(&component.span());
            let fail = Failure::new(Exit::Config, text!("`{}` cannot have another component", key)).why(why);
            return Err(match &known.component {
                ComponentSource::Shipped(_) => fail.why("it is built in"),
                ComponentSource::File(path) => {
                    fail.why(text!("it is already defined\n{}", path.origin.point_at()))
                }
            }
            .hint("give it another name"));
        }
        (None, Some(_)) => key.clone(),
        (None, None) => {
            let names: Vec<&str> = settings.tools.keys().map(String::as_str).collect();
            let fail = fail(text!("there is no tool `{}`", key));
            return Err(match nearest(key, &names).first() {
                Some(near) => fail.hint(text!("did you mean `{}`?", near)),
                None => fail.hint("a tool that is not built in needs a `component = \"FILE.wasm\"`"),
            });
        }
    };
    Ok(settings.tools.get_mut(&declared).expect("it was declared above"))
}

/// Returns the tools a table offers, if it lists any.
pub(super) fn only(table: &ToolTable, source: &Arc<Source>) -> Option<Sourced<Vec<String>>> {
    table.only.as_ref().map(|only| Sourced {
        value: only.get_ref().clone(),
        origin: origin(source, only),
    })
}

/// Returns the grants of a table; relative paths start at `base`.
pub(crate) fn grant_lines(
    grants: Option<&[Spanned<Grant>]>,
    source: &Arc<Source>,
    base: &Path,
) -> Vec<GrantLine> {
    grants
        .into_iter()
        .flatten()
        .map(|grant| GrantLine {
            grant: grant.get_ref().clone(),
            base: base.to_owned(),
            origin: origin(source, grant),
        })
        .collect()
}

/// Returns the denials of a file for all tools and hooks; relative paths start at `base`.
pub(super) fn deny_lines(lines: &[Spanned<DenyLine>], source: &Arc<Source>, base: &Path) -> Vec<GrantLine> {
    lines
        .iter()
        .map(|line| GrantLine {
            grant: line.get_ref().0.clone(),
            base: base.to_owned(),
            origin: origin(source, line),
        })
        .collect()
}

/// Returns the secret bindings of a table.
pub(crate) fn bindings(
    name: &Spanned<String>,
    tables: &[BindingTable],
    source: &Arc<Source>,
) -> Result<Vec<SecretBinding>, Failure> {
    let of_table = |binding: &BindingTable| {
        let placement = match (&binding.header, &binding.placeholder) {
            (Some(header), None) => SecretPlacement::Header {
                header: header.clone(),
                template: binding.template.clone().unwrap_or_else(|| "{}".into()),
            },
            (None, Some(placeholder)) if binding.template.is_none() => SecretPlacement::Placeholder {
                placeholder: placeholder.clone(),
            },
            _ => {
                return Err(Failure::new(
                    Exit::Config,
                    text!(
                        "the secret `{}` has no position in the requests of `{}`",
                        binding.secret,
                        name.get_ref()
                    ),
                )
                .why(source.point_at(&name.span()))
                .hint("set either `header`, optionally with `template`, or `placeholder`"));
            }
        };
        Ok(SecretBinding {
            name: binding.secret.clone(),
            origins: binding.origins.clone(),
            placement,
            methods: binding.methods.clone(),
            paths: binding.paths.clone(),
            responses: binding.responses.clone(),
        })
    };
    tables.iter().map(of_table).collect()
}

pub(super) fn origin<T>(source: &Arc<Source>, value: &Spanned<T>) -> Origin {
    Origin::File(source.clone(), value.span())
}

#[cfg(test)]
mod tests {
    use crate::config::{self, Overrides};

    use super::*;

    fn load(text: &str) -> Result<Settings, Failure> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        let overrides = Overrides {
            config: Some(path),
            ..Overrides::default()
        };
        config::load(&Environment::for_tests(dir.path(), &[]), overrides)
    }

    #[test]
    fn component_has_the_name_of_a_tool() {
        for (name, is_valid) in [("mine", true), ("a b", false), ("1", false), ("", false)] {
            let table = format!("[tools.\"{name}\"]\ncomponent = \"x.wasm\"\n");
            assert_eq!(load(&table).is_ok(), is_valid, "{name}");
        }
    }

    #[test]
    fn bound_secret_has_one_position_in_a_request() {
        for (position, is_valid) in [
            ("header = \"X-Key\"", true),
            ("header = \"X-Key\"\ntemplate = \"Key {}\"", true),
            ("placeholder = \"HERE\"", true),
            ("placeholder = \"HERE\"\ntemplate = \"Key {}\"", false),
            ("header = \"X-Key\"\nplaceholder = \"HERE\"", false),
            ("", false),
        ] {
            let table = format!(
                "[secrets.k]\nenv = \"KEY\"\n[tools.mine]\ncomponent = \"x.wasm\"\n\
                 [[tools.mine.secrets]]\nsecret = \"k\"\norigins = [\"https://example.com\"]\n{position}\n"
            );
            assert_eq!(load(&table).is_ok(), is_valid, "{position}");
        }
    }

    #[test]
    fn denials_of_the_file_are_for_all_tools() {
        let settings = load("deny = [\"private\", \"deny-http=example.com\"]\n").unwrap();
        let lines: Vec<String> = settings.deny.iter().map(|line| line.grant.to_string()).collect();
        assert_eq!(lines, ["deny=private", "deny-http=example.com"]);
    }
}
