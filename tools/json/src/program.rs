//! Programs of jq.

use jaq_core::load::{self, Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Filter, Vars, compile, data};
use jaq_json::Val;
use toolcell_sdk::{Result, ToolError};

/// A compiled program.
pub(crate) struct Program(Filter<data::JustLut<Val>>);

/// Output of a program.
pub(crate) enum Yield {
    Value(Val),
    /// The program stopped with `halt`.
    Halt,
}

impl Program {
    /// # Errors
    /// Description and position of the error.
    pub(crate) fn compile(code: &str) -> Result<Self> {
        let definitions = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
        let functions = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
        let arena = Arena::default();
        let modules = Loader::new(definitions)
            .load(&arena, File { code, path: () })
            .map_err(|errors| {
                ToolError::invalid(format_args!("`program`: {}", load_errors(code, &errors)))
            })?;
        let filter = Compiler::default()
            .with_funs(functions)
            .compile(modules)
            .map_err(|errors| {
                ToolError::invalid(format_args!("`program`: {}", compile_errors(code, &errors)))
            })?;
        Ok(Self(filter))
    }

    /// Runs the program on a value and passes each output to `take`, until it returns `false`.
    ///
    /// # Errors
    /// The error of the program.
    pub(crate) fn run(&self, input: Val, take: &mut dyn FnMut(Yield) -> bool) -> Result<(), String> {
        let context = Ctx::<data::JustLut<Val>>::new(&self.0.lut, Vars::new([]));
        for result in self.0.id.run((context, input)) {
            let yielded = match result {
                Ok(value) => Yield::Value(value),
                Err(exception) => match exception.get_err() {
                    Ok(error) => return Err(error.to_string()),
                    Err(_) => Yield::Halt,
                },
            };
            if !take(yielded) {
                break;
            }
        }
        Ok(())
    }
}

fn load_errors(code: &str, errors: &load::Errors<&str, ()>) -> String {
    let mut texts = Vec::new();
    for (_, error) in errors {
        match error {
            load::Error::Io(errors) => {
                texts.extend(
                    errors
                        .iter()
                        .map(|(path, _)| format!("modules are not supported: `{path}`")),
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
    texts.join("; ")
}

fn compile_errors(code: &str, errors: &compile::Errors<&str, ()>) -> String {
    let mut texts = Vec::new();
    for (name, undefined) in errors.iter().flat_map(|(_, errors)| errors) {
        let arity = match undefined {
            compile::Undefined::Filter(arity) if *arity > 0 => format!("/{arity}"),
            _ => String::new(),
        };
        texts.push(format!(
            "{}undefined {} `{name}{arity}`",
            place(code, name),
            undefined.as_str()
        ));
    }
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
