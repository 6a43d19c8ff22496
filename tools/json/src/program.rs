//! Programs of jq.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use jaq_core::load::{self, Arena, File, Loader};
use jaq_core::{Compiler, Ctx, DataT, Filter, Lut, Vars, compile, data};
use jaq_json::Val;
use jaq_std::input::{HasInputs, Inputs, RcIter};
use toolcell_sdk::{Result, ToolError, show};

use crate::document::to_text;

/// Definitions of jq that the library lacks.
const MISSING: &str = include_str!("missing.jq");

/// Longest error of a program, in bytes; a longer one loses its middle, because it can contain whole documents.
const MAX_ERROR: usize = 400;

/// A compiled program.
pub(crate) struct Program(Filter<Kind>);

/// Types of a program: values without borrowed data, and access to the documents that follow.
struct Kind;

impl DataT for Kind {
    type V<'a> = Val;
    type Data<'a> = Data<'a>;
}

#[derive(Clone)]
struct Data<'a> {
    lut: &'a Lut<Kind>,
    inputs: Inputs<'a, Val>,
    /// Message of `halt_error`.
    message: &'a RefCell<Option<Val>>,
}

impl<'a> data::HasLut<'a, Kind> for Data<'a> {
    fn lut(&self) -> &'a Lut<Kind> {
        self.lut
    }
}

impl<'a> HasInputs<'a, Val> for Data<'a> {
    fn inputs(&self) -> Inputs<'a, Val> {
        self.inputs
    }
}

/// Output of a program.
pub(crate) enum Yield {
    Value(Val),
    /// The program stopped with `halt`.
    Halt,
}

/// Environment variables that are granted, for `$ENV`.
fn variables() -> Val {
    let variables = std::env::vars();
    Val::obj(
        variables
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
    )
}

impl Program {
    /// # Errors
    /// Description and position of the error.
    pub(crate) fn compile(code: &str) -> Result<Self> {
        let missing = load::parse(MISSING, |parser| parser.defs()).unwrap_or_default();
        let definitions = (jaq_core::defs().chain(jaq_std::defs()))
            .chain(jaq_json::defs())
            .chain(missing);
        let inputs = jaq_std::input::funs()
            .into_vec()
            .into_iter()
            .map(jaq_core::native::run);
        let message: jaq_core::native::Fun<Kind> =
            jaq_core::native::run(("keep_message", Vec::new().into(), |(context, value)| {
                *context.data().message.borrow_mut() = Some(value.clone());
                Box::new(std::iter::once(Ok(value)))
            }));
        let functions = (jaq_core::funs().chain(jaq_std::funs()))
            .chain(jaq_json::funs())
            .chain(inputs)
            .chain([message]);
        let arena = Arena::default();
        let modules = Loader::new(definitions)
            .load(&arena, File { code, path: () })
            .map_err(|errors| {
                ToolError::invalid(format_args!("`program`: {}", load_errors(code, &errors)))
            })?;
        let filter = Compiler::default()
            .with_global_vars(["$ENV"])
            .with_funs(functions)
            .compile(modules)
            .map_err(|errors| {
                ToolError::invalid(format_args!("`program`: {}", compile_errors(code, &errors)))
            })?;
        Ok(Self(filter))
    }

    /// Runs the program on each document that it has not read by `input` or `inputs`, and passes each output to `take`,
    /// until it returns `false`.
    ///
    /// # Errors
    /// The number of the last document read, and the error of the program.
    pub(crate) fn run(
        &self,
        documents: Vec<Val>,
        take: &mut dyn FnMut(Yield) -> bool,
    ) -> Result<(), (usize, String)> {
        let (read, message) = (Cell::new(0), RefCell::new(None));
        let counted = documents.into_iter().inspect(|_| read.set(read.get() + 1));
        let inputs: &RcIter<dyn Iterator<Item = Result<Val, String>>> = &RcIter::new(counted.map(Ok));
        for input in inputs {
            let data = Data {
                lut: &self.0.lut,
                inputs,
                message: &message,
            };
            let context = Ctx::<Kind>::new(data, Vars::new([variables()]));
            let input = input.map_err(|error| (read.get(), error))?;
            for result in self.0.id.run((context, input)) {
                let yielded = match result {
                    Ok(value) => Yield::Value(value),
                    Err(exception) => match exception.get_err() {
                        Ok(error) => return Err((read.get(), brief(&error.to_string()))),
                        Err(halt) => match (message.take(), halt.get_halt()) {
                            (Some(value), _) => return Err((read.get(), brief(&told(value)))),
                            (None, Ok(0)) => Yield::Halt,
                            (None, _) => return Err((read.get(), "the program halted with an error".into())),
                        },
                    },
                };
                if !take(yielded) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Returns a message as jq writes it: a string as it is, and everything else as JSON.
fn told(message: Val) -> String {
    match message {
        Val::TStr(text) | Val::BStr(text) => String::from_utf8_lossy(&text).trim_end().to_owned(),
        value => to_text(&value, false),
    }
}

/// Shortens an error to its beginning and its end.
fn brief(error: &str) -> String {
    if error.len() <= MAX_ERROR {
        return error.to_owned();
    }
    let begin = &error[..error.floor_char_boundary(MAX_ERROR / 2)];
    let end = &error[error.ceil_char_boundary(error.len() - MAX_ERROR / 2)..];
    format!("{begin} [...] {end}")
}

fn load_errors(code: &str, errors: &load::Errors<&str, ()>) -> String {
    let mut texts = Vec::new();
    for (_, error) in errors {
        match error {
            load::Error::Io(errors) => {
                texts.extend(
                    errors
                        .iter()
                        .map(|(path, _)| format!("modules are not supported: {}", show::quoted(path))),
                );
            }
            load::Error::Lex(errors) => texts.extend(
                errors
                    .iter()
                    .map(|(expected, found)| unexpected(code, expected.as_str(), found)),
            ),
            load::Error::Parse(errors) => texts.extend(
                errors
                    .iter()
                    .map(|(expected, found)| unexpected(code, expected.as_str(), found)),
            ),
        }
    }
    distinct(texts)
}

fn compile_errors(code: &str, errors: &compile::Errors<&str, ()>) -> String {
    let mut texts = Vec::new();
    for (name, undefined) in errors.iter().flat_map(|(_, errors)| errors) {
        let arity = match undefined {
            compile::Undefined::Filter(arity) if *arity > 0 => format!("/{arity}"),
            _ => String::new(),
        };
        texts.push(format!(
            "{}undefined {} {}",
            place(code, name),
            undefined.as_str(),
            show::quoted(format!("{name}{arity}"))
        ));
    }
    distinct(texts)
}

/// Joins errors without repetitions: two nested brackets that are not closed are one error at one position.
fn distinct(mut texts: Vec<String>) -> String {
    let mut seen = HashSet::new();
    texts.retain(|text| seen.insert(text.clone()));
    texts.join("; ")
}

fn unexpected(code: &str, expected: &str, part: &str) -> String {
    let found = match part.chars().next() {
        None => "the end".to_owned(),
        Some(_) => format!("`{}`", part.chars().take(20).collect::<String>()),
    };
    let expected = if expected.is_empty() {
        String::new()
    } else {
        format!("expected {expected}, ")
    };
    format!("{}{expected}found {found}", place(code, part))
}

/// Position of a part in the program.
fn place(code: &str, part: &str) -> String {
    let offset = (part.as_ptr() as usize).wrapping_sub(code.as_ptr() as usize);
    match code.get(..offset) {
        Some(before) => format!("at character {}: ", before.chars().count() + 1),
        None => String::new(),
    }
}
