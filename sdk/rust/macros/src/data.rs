//! `#[input]` and `#[output]`: derive the traits of a type with the SDK's copies of serde and schemars.

use proc_macro2::TokenStream;
use quote::quote;

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
    let derives = match direction {
        // Serialize, for values in `#[default(...)]`.
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
