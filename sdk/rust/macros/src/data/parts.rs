//! A type whose traits are derived by a proxy type with a type parameter for each field.
//!
//! The derives of serde and schemars use the type of a field in many places, and an unsuitable one is an error at each. A type
//! parameter is suitable anywhere; the types are put in at one place in each implementation, all with one bound. The compiler
//! writes errors that are equal in all their parts once.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::meta::ParseNestedMeta;
use syn::punctuated::Punctuated;
use syn::{Attribute, Data, DeriveInput, Fields, Ident, Index, Member, Meta, Token, Type, Visibility};

use super::Direction;

/// Keys of `#[serde(...)]` that mean the same for the proxy type: they name no type, no function and no value.
const CONTAINER: [&str; 6] = [
    "rename_all",
    "rename_all_fields",
    "tag",
    "content",
    "untagged",
    "deny_unknown_fields",
];
const INSIDE: [&str; 3] = ["rename", "alias", "rename_all"];

/// Returns `true` if the traits of this type can be those of a proxy type.
pub(super) fn can_split(item: &DeriveInput) -> bool {
    let groups = groups(&item.data);
    let inside = match &item.data {
        Data::Enum(data) => data.variants.iter().map(|variant| &variant.attrs).collect(),
        Data::Struct(_) | Data::Union(_) => Vec::new(),
    };
    let has_numbers = match &item.data {
        Data::Enum(data) => data.variants.iter().any(|variant| variant.discriminant.is_some()),
        Data::Struct(_) | Data::Union(_) => false,
    };
    let is_raw = item.ident.to_string().starts_with("r#");
    let fields = groups.iter().flat_map(|fields| fields.iter());
    !has_numbers
        && !is_raw
        && item.generics.params.is_empty()
        && groups.iter().any(|fields| !fields.is_empty())
        && knows(&item.attrs, &CONTAINER)
        && inside.into_iter().all(|attrs| knows(attrs, &INSIDE))
        && fields.into_iter().all(|field| knows(&field.attrs, &INSIDE))
}

/// The fields of a structure, or of each variant.
fn groups(data: &Data) -> Vec<&Fields> {
    match data {
        Data::Struct(data) => vec![&data.fields],
        Data::Enum(data) => data.variants.iter().map(|variant| &variant.fields).collect(),
        Data::Union(_) => Vec::new(),
    }
}

/// Returns `true` if the attributes have no other keys of serde than these, none of schemars, no condition, and no
/// deprecation, of which the code of the proxy type would warn.
fn knows(attributes: &[Attribute], keys: &[&str]) -> bool {
    attributes.iter().all(|attribute| {
        // Of what a condition leaves out, only the compiler knows.
        if ["schemars", "cfg", "cfg_attr", "deprecated"]
            .iter()
            .any(|path| attribute.path().is_ident(path))
        {
            return false;
        }
        let is_known = |meta: ParseNestedMeta<'_>| -> syn::Result<()> {
            if !keys.iter().any(|key| meta.path.is_ident(key)) {
                return Err(meta.error(""));
            }
            if meta.input.peek(Token![=]) {
                meta.value()?.parse::<syn::LitStr>()?;
            }
            Ok(())
        };
        !attribute.path().is_ident("serde") || attribute.parse_nested_meta(is_known).is_ok()
    })
}

/// Attributes that belong to the derives.
fn is_of_derives(attribute: &Attribute) -> bool {
    attribute.path().is_ident("serde") || attribute.path().is_ident("schemars")
}

/// Expands a type for which [`can_split`] is true.
pub(super) fn expand(direction: &Direction, item: DeriveInput) -> TokenStream {
    let name = item.ident.clone();
    let kept = without_attributes(item.clone());
    let (module, proxy, types) = proxy(direction, item);
    let parameters: Vec<Ident> = (0..types.len())
        .map(|index| format_ident!("__F{index}"))
        .collect();
    let bound = match direction {
        Direction::Input => quote!(::toolcell_sdk::__private::InputField),
        Direction::Output => quote!(::toolcell_sdk::__private::OutputField),
    };
    // One place for the compiler, in each of the three.
    let at = name.span().resolved_at(Span::mixed_site());
    let with = quote_spanned!(at=> <#module::#name<#(#types),*> as #module::__Data<#(#types),*>>);
    let (from_twin, to_twin) = conversions(&name, &module, &kept.data);
    let text = name.to_string();
    quote! {
        #kept

        #[doc(hidden)]
        #[allow(non_camel_case_types, non_snake_case, dead_code, missing_docs, unreachable_pub, private_interfaces, clippy::all, clippy::pedantic)]
        mod #module {
            #[derive(
                ::toolcell_sdk::serde::Deserialize,
                ::toolcell_sdk::serde::Serialize,
                ::toolcell_sdk::schemars::JsonSchema
            )]
            #[serde(crate = "::toolcell_sdk::serde")]
            #[schemars(crate = "::toolcell_sdk::schemars")]
            #proxy

            pub trait __Data<#(#parameters),*>: ::core::marker::Sized {
                fn read<'de, __D: ::toolcell_sdk::serde::Deserializer<'de>>(
                    deserializer: __D,
                ) -> ::core::result::Result<Self, __D::Error>;
                fn write<__S: ::toolcell_sdk::serde::Serializer>(
                    value: #name<#(&#parameters),*>,
                    serializer: __S,
                ) -> ::core::result::Result<__S::Ok, __S::Error>;
                fn schema(
                    generator: &mut ::toolcell_sdk::schemars::SchemaGenerator,
                ) -> ::toolcell_sdk::schemars::Schema;
            }

            impl<#(#parameters: #bound),*> __Data<#(#parameters),*> for #name<#(#parameters),*> {
                fn read<'de, __D: ::toolcell_sdk::serde::Deserializer<'de>>(
                    deserializer: __D,
                ) -> ::core::result::Result<Self, __D::Error> {
                    ::toolcell_sdk::serde::Deserialize::deserialize(deserializer)
                }

                fn write<__S: ::toolcell_sdk::serde::Serializer>(
                    value: #name<#(&#parameters),*>,
                    serializer: __S,
                ) -> ::core::result::Result<__S::Ok, __S::Error> {
                    ::toolcell_sdk::serde::Serialize::serialize(&value, serializer)
                }

                fn schema(
                    generator: &mut ::toolcell_sdk::schemars::SchemaGenerator,
                ) -> ::toolcell_sdk::schemars::Schema {
                    <Self as ::toolcell_sdk::schemars::JsonSchema>::json_schema(generator)
                }
            }
        }

        #[automatically_derived]
        impl<'de> ::toolcell_sdk::serde::Deserialize<'de> for #name {
            fn deserialize<__D: ::toolcell_sdk::serde::Deserializer<'de>>(
                deserializer: __D,
            ) -> ::core::result::Result<Self, __D::Error> {
                let value = #with::read(deserializer)?;
                ::core::result::Result::Ok(#from_twin)
            }
        }

        #[automatically_derived]
        impl ::toolcell_sdk::serde::Serialize for #name {
            fn serialize<__S: ::toolcell_sdk::serde::Serializer>(
                &self,
                serializer: __S,
            ) -> ::core::result::Result<__S::Ok, __S::Error> {
                #with::write(#to_twin, serializer)
            }
        }

        #[automatically_derived]
        impl ::toolcell_sdk::schemars::JsonSchema for #name {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                ::std::borrow::Cow::Borrowed(#text)
            }

            fn schema_id() -> ::std::borrow::Cow<'static, str> {
                ::std::borrow::Cow::Borrowed(::core::concat!(::core::module_path!(), "::", #text))
            }

            fn json_schema(
                generator: &mut ::toolcell_sdk::schemars::SchemaGenerator,
            ) -> ::toolcell_sdk::schemars::Schema {
                #with::schema(generator)
            }
        }
    }
}

/// The item as its author wrote it, without what the derives read.
fn without_attributes(mut item: DeriveInput) -> DeriveInput {
    let clean = |attributes: &mut Vec<Attribute>| attributes.retain(|attribute| !is_of_derives(attribute));
    clean(&mut item.attrs);
    match &mut item.data {
        Data::Struct(data) => data.fields.iter_mut().for_each(|field| clean(&mut field.attrs)),
        Data::Enum(data) => {
            for variant in &mut data.variants {
                clean(&mut variant.attrs);
                variant
                    .fields
                    .iter_mut()
                    .for_each(|field| clean(&mut field.attrs));
            }
        }
        Data::Union(_) => {}
    }
    item
}

/// Returns the name of the module of the proxy type, the proxy type, and the types of the fields in their order.
fn proxy(direction: &Direction, mut item: DeriveInput) -> (Ident, DeriveInput, Vec<Type>) {
    let direction = match direction {
        Direction::Input => "input",
        Direction::Output => "output",
    };
    let module = format_ident!("__toolcell_{direction}_{}", item.ident);
    let mut types = Vec::new();
    let mut replace = |fields: &mut Fields, is_of_struct: bool| {
        for field in fields.iter_mut() {
            let parameter = format_ident!("__F{}", types.len());
            types.push(std::mem::replace(&mut field.ty, syn::parse_quote!(#parameter)));
            keep_docs(&mut field.attrs);
            if is_of_struct {
                field.vis = Visibility::Public(Token![pub](Span::mixed_site()));
            }
        }
    };
    match &mut item.data {
        Data::Struct(data) => replace(&mut data.fields, true),
        Data::Enum(data) => {
            for variant in &mut data.variants {
                keep_docs(&mut variant.attrs);
                replace(&mut variant.fields, false);
            }
        }
        Data::Union(_) => {}
    }
    keep_docs(&mut item.attrs);
    item.vis = Visibility::Public(Token![pub](Span::mixed_site()));
    let parameters = (0..types.len()).map(|index| format_ident!("__F{index}"));
    item.generics.params = parameters
        .map(|parameter| -> syn::GenericParam { syn::parse_quote!(#parameter) })
        .collect::<Punctuated<_, Token![,]>>();
    (module, item, types)
}

/// Keeps what the derives read: their attributes, and the documentation.
fn keep_docs(attributes: &mut Vec<Attribute>) {
    attributes.retain(|attribute| {
        is_of_derives(attribute)
            || attribute.path().is_ident("doc") && matches!(attribute.meta, Meta::NameValue(_))
    });
}

/// Expressions that make the type of its proxy type `value`, and a proxy type with references of `self`.
fn conversions(name: &Ident, module: &Ident, data: &Data) -> (TokenStream, TokenStream) {
    let arms: Vec<(TokenStream, TokenStream)> = match data {
        Data::Struct(data) => vec![arm(name, module, None, &data.fields)],
        Data::Enum(data) => (data.variants.iter())
            .map(|variant| arm(name, module, Some(&variant.ident), &variant.fields))
            .collect(),
        Data::Union(_) => Vec::new(),
    };
    let (from, to): (Vec<_>, Vec<_>) = arms.into_iter().unzip();
    (
        quote!(match value { #(#from,)* }),
        quote!(match self { #(#to,)* }),
    )
}

fn arm(name: &Ident, module: &Ident, variant: Option<&Ident>, fields: &Fields) -> (TokenStream, TokenStream) {
    let members: Vec<Member> = (fields.iter().enumerate())
        .map(|(index, field)| match &field.ident {
            Some(ident) => Member::Named(ident.clone()),
            None => Member::Unnamed(Index::from(index)),
        })
        .collect();
    let bindings: Vec<Ident> = (0..members.len())
        .map(|index| format_ident!("__f{index}", span = Span::mixed_site()))
        .collect();
    let variant = variant.map(|variant| quote!(::#variant));
    let own = quote!(#name #variant { #(#members: #bindings),* });
    let proxy = quote!(#module::#name #variant { #(#members: #bindings),* });
    (quote!(#proxy => #own), quote!(#own => #proxy))
}
