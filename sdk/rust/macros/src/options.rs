//! Options of `#[tool(...)]`.

use proc_macro2::TokenStream;
use syn::parse::Parser as _;
use syn::spanned::Spanned as _;
use syn::{LitStr, Type};

/// Maximum length of a name, in characters; accepted by every provider.
const MAX_NAME: usize = 64;

const KNOWN: &str = "`name`, `title`, `read_only`, `destructive`, `idempotent`, `open_world`, `output`";

/// Options of `#[tool(...)]`.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) name: Option<LitStr>,
    pub(crate) title: Option<LitStr>,
    pub(crate) output: Option<Type>,
    pub(crate) read_only: bool,
    pub(crate) destructive: bool,
    pub(crate) idempotent: bool,
    pub(crate) open_world: bool,
}

impl Options {
    pub(crate) fn parse(tokens: TokenStream) -> syn::Result<Self> {
        let mut options = Self::default();
        let parser = syn::meta::parser(|meta| {
            let flag = |flag: &mut bool| {
                *flag = true;
                Ok(())
            };
            match meta.path.get_ident().map(ToString::to_string).as_deref() {
                Some("name") => options.name = Some(check_name(meta.value()?.parse()?)?),
                Some("title") => options.title = Some(meta.value()?.parse()?),
                Some("output") => options.output = Some(meta.value()?.parse()?),
                Some("read_only") => return flag(&mut options.read_only),
                Some("destructive") => return flag(&mut options.destructive),
                Some("idempotent") => return flag(&mut options.idempotent),
                Some("open_world") => return flag(&mut options.open_world),
                _ => return Err(meta.error(format!("unknown option of a tool; valid options are {KNOWN}"))),
            }
            Ok(())
        });
        let span = tokens.span();
        parser.parse2(tokens)?;
        if options.read_only && options.destructive {
            return Err(syn::Error::new(
                span,
                "a tool that is `read_only` cannot be `destructive`",
            ));
        }
        Ok(options)
    }
}

/// Checks a name by the rule of the WIT contract.
pub(crate) fn check_name(name: LitStr) -> syn::Result<LitStr> {
    let text = name.value();
    let letters = text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if letters && text.len() <= MAX_NAME && text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Ok(name);
    }
    Err(syn::Error::new(
        name.span(),
        format!(
            "invalid name `{text}`: expected 1 to {MAX_NAME} of a-z, A-Z, 0-9, `_` and `-`, starting with a letter"
        ),
    ))
}
