//! `#[input]` and `#[output]`: the derives of a type, by way of the SDK's own copies of serde and schemars.

use proc_macro2::TokenStream;
use quote::quote;

/// Which way values of the type go.
pub(crate) enum Direction {
    Input,
    Output,
}

pub(crate) fn expand(direction: Direction, options: TokenStream, item: TokenStream) -> TokenStream {
    if !options.is_empty() {
        let error = syn::Error::new_spanned(options, "this attribute has no options").into_compile_error();
        return quote!(#error #item);
    }
    let derives = match direction {
        // Serialize, so that a value can stand in `#[default(...)]`.
        Direction::Input => {
            quote!(
                ::toolcell_sdk::serde::Deserialize,
                ::toolcell_sdk::serde::Serialize
            )
        }
        Direction::Output => quote!(::toolcell_sdk::serde::Serialize),
    };
    quote! {
        #[derive(#derives, ::toolcell_sdk::schemars::JsonSchema)]
        #[serde(crate = "::toolcell_sdk::serde")]
        #[schemars(crate = "::toolcell_sdk::schemars")]
        #item
    }
}
