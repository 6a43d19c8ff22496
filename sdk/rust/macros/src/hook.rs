//! `#[hook]`: derives the manifest of an `impl Hook for Type`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{ImplItem, ItemImpl, LitInt, LitStr, Token, Type, parenthesized};

use crate::options::check_name;
use crate::tool::docs_of;

const KNOWN: &str = "`name`, `guard`, `priority`, `before`, `after`";

/// Functions of the trait, and the flags of their hook points in the WIT contract.
const MOMENTS: [(&str, &str); 5] = [
    ("before_prompt", "BEFORE_PROMPT"),
    ("before_call", "BEFORE_CALL"),
    ("after_call", "AFTER_CALL"),
    ("after_turn", "AFTER_TURN"),
    ("on_error", "ON_ERROR"),
];

/// The same for the points around a summary, which another interface of the contract has.
const SUMMARY_MOMENTS: [(&str, &str); 2] = [
    ("before_summary", "BEFORE_SUMMARY"),
    ("after_summary", "AFTER_SUMMARY"),
];

/// Options of `#[hook(...)]`.
#[derive(Default)]
struct Options {
    name: Option<LitStr>,
    guard: bool,
    priority: i32,
    before: Vec<LitStr>,
    after: Vec<LitStr>,
}

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> TokenStream {
    expand_hook(options, item.clone()).unwrap_or_else(|error| {
        let error = error.into_compile_error();
        quote!(#error #item)
    })
}

fn expand_hook(options: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let mut block = syn::parse2::<ItemImpl>(item)
        .map_err(|error| syn::Error::new(error.span(), "`#[hook]` must be placed on an `impl Hook for …`"))?;
    let options = Options::parse(options)?;
    let name = match options.name {
        Some(name) => name,
        None => name_of(&block.self_ty)?,
    };
    let description = docs_of(&block.attrs);
    if description.is_empty() {
        return Err(syn::Error::new(
            block.self_ty.span(),
            "a hook needs a description: write a doc comment (`///`) on the `impl`",
        ));
    }
    let written = |moment: &str| {
        block
            .items
            .iter()
            .any(|item| matches!(item, ImplItem::Fn(function) if function.sig.ident == moment))
    };
    let flags = |moments: &[(&str, &str)]| -> Vec<syn::Ident> {
        moments
            .iter()
            .filter(|(function, _)| written(function))
            .map(|(_, flag)| syn::Ident::new(flag, proc_macro2::Span::call_site()))
            .collect()
    };
    let (moments, summary_moments) = (flags(&MOMENTS), flags(&SUMMARY_MOMENTS));
    if moments.is_empty() && summary_moments.is_empty() {
        return Err(syn::Error::new(
            block.self_ty.span(),
            "a hook needs at least one hook point: implement `before_prompt`, `before_call`, `after_call`, `before_summary`, `after_summary`, `after_turn` or `on_error`",
        ));
    }
    let Options {
        guard,
        priority,
        before,
        after,
        ..
    } = options;
    block.items.push(syn::parse_quote! {
        const CLAIMS: ::toolcell_sdk::hook::Claims = ::toolcell_sdk::hook::Claims {
            name: #name,
            description: #description,
            moments: ::toolcell_sdk::hook::Moments::empty()
                #(.union(::toolcell_sdk::hook::Moments::#moments))*,
            summary_moments: ::toolcell_sdk::hook::SummaryMoments::empty()
                #(.union(::toolcell_sdk::hook::SummaryMoments::#summary_moments))*,
            guard: #guard,
            priority: #priority,
            before: &[#(#before),*],
            after: &[#(#after),*],
        };
    });
    // One hook of several types has no type that could be exported.
    let exported = block.generics.params.is_empty().then(|| {
        let ty = &block.self_ty;
        quote_spanned!(ty.span()=> const _: () = ::toolcell_sdk::hook::assert_exported::<#ty>();)
    });
    Ok(quote!(#block #exported))
}

impl Options {
    fn parse(tokens: TokenStream) -> syn::Result<Self> {
        let mut options = Self::default();
        let parser = syn::meta::parser(|meta| {
            let names = || {
                let content;
                parenthesized!(content in meta.input);
                let names = Punctuated::<LitStr, Token![,]>::parse_terminated(&content)?;
                names.into_iter().map(check_name).collect::<syn::Result<Vec<_>>>()
            };
            match meta.path.get_ident().map(ToString::to_string).as_deref() {
                Some("name") => options.name = Some(check_name(meta.value()?.parse()?)?),
                Some("guard") => options.guard = true,
                Some("priority") => options.priority = priority(&meta.value()?.parse()?)?,
                Some("before") => options.before = names()?,
                Some("after") => options.after = names()?,
                _ => return Err(meta.error(format!("unknown option of a hook; valid options are {KNOWN}"))),
            }
            Ok(())
        });
        parser.parse2(tokens)?;
        Ok(options)
    }
}

fn priority(expression: &syn::Expr) -> syn::Result<i32> {
    let number = |literal: &syn::Expr| match literal {
        syn::Expr::Lit(syn::ExprLit {
            lit: syn::Lit::Int(number),
            ..
        }) => LitInt::base10_parse::<i64>(number),
        other => Err(syn::Error::new(other.span(), "expected an integer")),
    };
    let value = match expression {
        syn::Expr::Unary(unary) if matches!(unary.op, syn::UnOp::Neg(_)) => -number(&unary.expr)?,
        other => number(other)?,
    };
    i32::try_from(value).map_err(|_| syn::Error::new(expression.span(), "the number is too large"))
}

/// Name of a type in snake case.
fn name_of(of: &Type) -> syn::Result<LitStr> {
    let Type::Path(path) = of else {
        return Err(syn::Error::new(
            of.span(),
            "the type of the hook has no name: set one with `name = \"...\"`",
        ));
    };
    let ident = &path.path.segments.last().expect("a path has a segment").ident;
    let mut name = String::new();
    for (i, letter) in ident.to_string().chars().enumerate() {
        if letter.is_uppercase() && i > 0 {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    check_name(LitStr::new(&name, ident.span()))
}
