//! `toolcell model`: GGUF files on this machine.

use std::path::Path;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use toolcell_local::gguf::Gguf;
use toolcell_local::template::Templates;
use toolcell_local::{GgufError, Model, directory};

use crate::agent::model::local::{self, models_dir};
use crate::config::units::{Bytes, Count};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::reason;
use crate::ui::render::Console;
use crate::ui::render::json::print_line;
use crate::ui::terminal::{BAD, FAINT, GOOD, NAME, Name, Own, STRONG, Shown, Text, WARN, text};

/// Length of the context for which memory is estimated, in tokens, if the model was trained for as many: that of a
/// conversation with a few files in it.
const USUAL_CONTEXT: u64 = 8_192;

/// Width of the names of facts, in columns.
const FACT_WIDTH: usize = 15;

/// List and inspect the files of local models.
#[derive(Debug, Subcommand)]
pub(crate) enum LocalModel {
    List(List),
    Inspect(Inspect),
}

/// List the GGUF files in the directory of models, with their sizes and what is wrong with them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell model list
  toolcell model list --dir ~/models")]
pub(crate) struct List {
    /// Directory [default: `models` in the data directory of Toolcell].
    #[arg(long, value_name = "DIR")]
    dir: Option<String>,

    /// Print one JSON array.
    #[arg(long)]
    json: bool,
}

/// Show the facts in the header of a GGUF file: its architecture, tokenizer and chat template, and the memory that it takes.
///
/// The file is read as untrusted input, and nothing of it is run except its chat template, on a short conversation.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell model inspect ./model.gguf
  toolcell model inspect ./model.gguf --context 32k")]
pub(crate) struct Inspect {
    /// File of the model, or its name in the directory of models.
    #[arg(value_name = "FILE")]
    file: String,

    /// Length of the context for which memory is estimated, in tokens [default: 8192, or that of the model if it is less].
    #[arg(long, value_name = "TOKENS")]
    context: Option<Count>,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl LocalModel {
    pub(crate) fn run(self, environment: &Environment, console: &Console) -> Result<Exit, Failure> {
        match self {
            Self::List(List { dir, json }) => list(dir.as_deref(), json, environment, console),
            Self::Inspect(command) => command.run(environment, console),
        }
    }
}

fn list(
    dir: Option<&str>,
    json: bool,
    environment: &Environment,
    console: &Console,
) -> Result<Exit, Failure> {
    let named = dir.map(|dir| environment.path(dir, &environment.cwd));
    let is_named = named.is_some();
    let dir = named.or_else(|| models_dir(environment)).ok_or_else(|| {
        Failure::new(Exit::Config, "there is no data directory").hint("name one with --dir DIR")
    })?;
    let shown = environment.shown(&dir);
    let listed = match directory::list(&dir) {
        Ok(listed) => listed,
        Err(error) if !is_named && error.kind() == std::io::ErrorKind::NotFound => {
            directory::Listed::default()
        }
        Err(error) => {
            let failure = Failure::new(Exit::Usage, text!("could not list `{}`", shown)).because(error);
            return Err(failure.hint("name a directory with GGUF files: --dir DIR"));
        }
    };
    if listed.is_cut {
        console.note(text!(
            "`{}` has more entries than are listed: {} files are read at most",
            shown,
            Count(directory::MAX_FILES as u64)
        ));
    }
    if json {
        let array: Vec<Value> = listed
            .files
            .iter()
            .map(|(path, model)| row(path, model))
            .collect();
        print_line(console, &array)?;
        return Ok(Exit::Ok);
    }
    if listed.files.is_empty() {
        console.note(text!("there are no GGUF files in `{}`", shown));
        return Ok(Exit::Ok);
    }
    let names: Vec<String> = listed.files.iter().map(|(path, _)| file_name(path)).collect();
    let name = |name: &str| text!("{}", Shown(name));
    let widths = names.iter().map(|text| name(text).plain().chars().count());
    let width = widths.max().unwrap_or(0);
    console.write(|s| {
        for (file, (_, model)) in names.iter().zip(&listed.files) {
            s.out.cell(STRONG, name(file), width)?;
            match model {
                Ok(model) => s.out.styled(FAINT, summary(model))?,
                Err(error) => {
                    s.out.styled(BAD, "  unreadable: ")?;
                    s.out.text(reason::of(error))?;
                }
            }
            s.out.end_line()?;
        }
        s.out.flush()
    })?;
    Ok(Exit::Ok)
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn row(path: &Path, model: &Result<Model, GgufError>) -> Value {
    let file = file_name(path);
    match model {
        Ok(model) => json!({
            "file": file,
            "architecture": model.architecture,
            "parameters": model.parameters,
            "bytes": model.weight_bytes,
            "context": model.context,
        }),
        Err(error) => json!({ "file": file, "error": error.to_string() }),
    }
}

fn summary(model: &Model) -> Text {
    let types = model.types.first().map_or("", |(kind, _)| kind.name());
    text!(
        "  {}  {} parameters  {}  {}",
        Name(&model.architecture),
        Count(model.parameters),
        Own(types),
        Bytes(model.weight_bytes)
    )
}

impl Inspect {
    fn run(self, environment: &Environment, console: &Console) -> Result<Exit, Failure> {
        let path = local::file(&self.file, environment);
        let of_file = |error: GgufError| {
            Failure::new(
                Exit::Usage,
                text!("could not read the model `{}`", environment.shown(&path)),
            )
            .because(error)
            .hint("name a GGUF file, or see `toolcell model list`")
        };
        let templates = Templates::new(local::templates(environment)?);
        let gguf = Gguf::open(&path).map_err(of_file)?;
        let model = Model::of(&gguf).map_err(of_file)?;
        let mut ids: Vec<u64> = model.special.values().copied().collect();
        ids.sort_unstable();
        let tokens = gguf
            .elements(&path, "tokenizer.ggml.tokens", &ids)
            .map_err(of_file)?;
        let special = model.special.iter().map(|(role, id)| {
            let token = tokens.iter().find(|(known, _)| known == id);
            (*role, *id, token.map(|(_, text)| text.clone()))
        });
        let facts = Facts {
            context: self.context.map_or_else(
                || model.context.unwrap_or(USUAL_CONTEXT).min(USUAL_CONTEXT),
                |context| context.0,
            ),
            special: special.collect(),
            template: (model.chat_template.as_deref()).map(|source| Template::of(source, &templates)),
            version: gguf.version,
            model,
        };
        if self.json {
            print_line(console, &facts.json())?;
        } else {
            facts.print(&environment.shown(&path), console)?;
        }
        Ok(Exit::Ok)
    }
}

/// Chat template of a file.
struct Template {
    bytes: usize,
    has_tools: bool,
    /// Reason for which it cannot be used.
    fault: Option<String>,
}

impl Template {
    fn of(source: &str, templates: &Templates) -> Self {
        let checked = templates.check(source);
        Self {
            bytes: source.len(),
            has_tools: checked.as_ref().is_ok_and(|checked| checked.has_tools),
            fault: checked.err().map(|error| error.to_string()),
        }
    }
}

/// Facts that are shown.
struct Facts {
    model: Model,
    version: u32,
    context: u64,
    /// Role, number and text of special tokens.
    special: Vec<(&'static str, u64, Option<String>)>,
    template: Option<Template>,
}

impl Facts {
    fn json(&self) -> Value {
        let model = &self.model;
        let special: serde_json::Map<String, Value> = (self.special.iter())
            .map(|(role, id, text)| ((*role).to_owned(), json!({ "id": id, "text": text })))
            .collect();
        let memory = model.memory(self.context, 1);
        json!({
            "version": self.version,
            "architecture": model.architecture,
            "name": model.name,
            "parameters": model.parameters,
            "types": model.types.iter()
                .map(|(kind, bytes)| json!({ "type": kind.to_string(), "bytes": bytes }))
                .collect::<Vec<_>>(),
            "context": model.context,
            "layers": model.layers,
            "tokenizer": model.tokenizer,
            "tokenizer_variant": model.tokenizer_variant,
            "vocabulary": model.vocabulary,
            "special": special,
            "chat_template": self.template.as_ref().map(|template| json!({
                "bytes": template.bytes,
                "tools": template.has_tools,
                "error": template.fault,
            })),
            "memory": memory.map(|memory| json!({
                "context": self.context,
                "weights": memory.weights,
                "cache": memory.cache,
                "work": memory.work,
                "total": memory.total(),
            })),
            "error": model.check().err().map(|error| error.to_string()),
        })
    }

    fn print(&self, file: &str, console: &Console) -> Result<(), Failure> {
        let rows = self.rows();
        let fault = self.model.check().err();
        console.write(|s| {
            let out = &mut s.out;
            out.styled(NAME, text!("{}", Shown(file)))?;
            out.line(text!(
                "  GGUF version {}, {}",
                self.version,
                Bytes(self.model.weight_bytes)
            ))?;
            for (name, text) in rows {
                out.text("  ")?;
                out.cell(FAINT, name, FACT_WIDTH)?;
                out.line(text)?;
            }
            match &fault {
                None => {
                    out.styled(GOOD, "  + ")?;
                    out.line("the numbers of its header that engines take unchecked are in order")?;
                }
                Some(fault) => {
                    out.styled(WARN, "  ! ")?;
                    out.line(reason::of(fault))?;
                }
            }
            out.flush()
        })?;
        Ok(())
    }

    /// Names of facts and their texts.
    fn rows(&self) -> Vec<(&'static str, Text)> {
        let model = &self.model;
        let count = |number: Option<u64>| match number {
            Some(number) => text!("{}", Count(number)),
            None => Text::from("not stated"),
        };
        let name = |name: &Option<String>| match name {
            Some(name) => text!("{}", Name(name)),
            None => Text::from("not stated"),
        };
        let types = (model.types.iter()).map(|(kind, bytes)| text!("{} {}", Own(kind.name()), Bytes(*bytes)));
        let mut rows = vec![
            ("architecture", text!("{}", Name(&model.architecture))),
            ("name", name(&model.name)),
            ("parameters", text!("{}", Count(model.parameters))),
            ("weights", Text::join(types, ", ")),
            ("layers", count(model.layers)),
            ("context", text!("{} tokens", count(model.context))),
            (
                "tokenizer",
                text!(
                    "{}, variant {}, {} tokens",
                    name(&model.tokenizer),
                    name(&model.tokenizer_variant),
                    count(model.vocabulary)
                ),
            ),
        ];
        for (role, id, token) in &self.special {
            let token = token.as_deref().map_or_else(
                || Text::from("not in the vocabulary"),
                |token| text!("`{}`", token),
            );
            rows.push(("special token", text!("{} {} {}", Own(role), id, token)));
        }
        rows.push((
            "chat template",
            match &self.template {
                None => "none: its conversations have no known form".into(),
                Some(Template {
                    bytes,
                    fault: Some(fault),
                    ..
                }) => text!(
                    "{}, unusable: {}",
                    Bytes(*bytes as u64),
                    Text::foreign(fault.as_str())
                ),
                Some(template) if template.has_tools => {
                    text!("{}, with tools", Bytes(template.bytes as u64))
                }
                Some(template) => text!("{}, without tools", Bytes(template.bytes as u64)),
            },
        ));
        rows.push((
            "memory",
            match model.memory(self.context, 1) {
                Some(memory) => text!(
                    "about {} with {} tokens of context: weights {}, keys and values {}, intermediate results {}",
                    Bytes(memory.total()),
                    Count(self.context),
                    Bytes(memory.weights),
                    Bytes(memory.cache),
                    Bytes(memory.work)
                ),
                None => "unknown: the file lacks numbers for it".into(),
            },
        ));
        rows
    }
}
