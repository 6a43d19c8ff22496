//! `#[input]` and `#[output]`: derive the traits of a type with the SDK's copies of serde and schemars.

mod parts;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::quote;
use syn::{Data, DeriveInput, Field, LitStr};

/// Direction of the values of a type.
pub(crate) enum Direction {
    Input,
    Output,
}

pub(crate) fn expand(direction: Direction, options: TokenStream, item: TokenStream) -> TokenStream {
    if !options.is_empty() {
        let error = syn::Error::new_spanned(options, "this attribute has no options").into_compile_error();
        return quote!(#error #item);
    }
    let item = match syn::parse2::<DeriveInput>(item.clone()) {
        Ok(mut parsed) => match (parts::can_split(&parsed), mark_formats(&mut parsed)) {
            (true, Ok(())) if !borrows(&item) => return parts::expand(&direction, parsed),
            (_, Ok(())) => quote!(#parsed),
            (_, Err(error)) => {
                let error = error.into_compile_error();
                quote!(#error #parsed)
            }
        },
        // The derives say what is wrong with it.
        Err(_) => item,
    };
    let derives = match direction {
        // Serialize, for values in `#[default(...)]`.
        Direction::Input => {
            quote!(
                ::toolcell_sdk::serde::Deserialize,
                ::toolcell_sdk::serde::Serialize
            )
        }
        // Deserialize, for tests and values in buckets; a type that borrows cannot be read.
        Direction::Output if !borrows(&item) => quote!(
            ::toolcell_sdk::serde::Serialize,
            ::toolcell_sdk::serde::Deserialize
        ),
        Direction::Output => quote!(::toolcell_sdk::serde::Serialize),
    };
    quote! {
        #[derive(#derives, ::toolcell_sdk::schemars::JsonSchema)]
        #[serde(crate = "::toolcell_sdk::serde")]
        #[schemars(crate = "::toolcell_sdk::schemars")]
        #item
    }
}

/// Returns `true` if a lifetime or a reference is in the item.
fn borrows(item: &TokenStream) -> bool {
    item.clone().into_iter().any(|token| match token {
        TokenTree::Group(group) => group.delimiter() != Delimiter::Bracket && borrows(&group.stream()),
        TokenTree::Punct(punct) => matches!(punct.as_char(), '&' | '\''),
        _ => false,
    })
}

/// Replaces `#[format("...")]` over fields by what schemars reads.
fn mark_formats(item: &mut DeriveInput) -> syn::Result<()> {
    let fields: Vec<&mut Field> = match &mut item.data {
        Data::Struct(data) => data.fields.iter_mut().collect(),
        Data::Enum(data) => (data.variants.iter_mut())
            .flat_map(|variant| variant.fields.iter_mut())
            .collect(),
        Data::Union(_) => Vec::new(),
    };
    let mut wrong: Option<syn::Error> = None;
    for field in fields {
        let attributes = std::mem::take(&mut field.attrs);
        for attribute in attributes {
            if !attribute.path().is_ident("format") {
                field.attrs.push(attribute);
                continue;
            }
            match attribute.parse_args::<LitStr>() {
                Ok(format) => field.attrs.push(syn::parse_quote! {
                    #[schemars(transform = ::toolcell_sdk::__private::with_format(#format))]
                }),
                Err(error) => match &mut wrong {
                    Some(first) => first.combine(error),
                    None => wrong = Some(error),
                },
            }
        }
    }
    wrong.map_or(Ok(()), Err)
}
