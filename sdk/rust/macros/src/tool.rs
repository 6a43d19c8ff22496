//! `#[tool]`: generates a type with the name of the function that implements `Tool`.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{
    Attribute, Expr, ExprLit, FnArg, GenericArgument, Ident, ItemFn, Lit, LitStr, Meta, Pat, PatType,
    PathArguments, ReturnType, Token, Type,
};

use crate::options::{Options, check_name};

/// Parameter of the function.
struct Parameter {
    name: LitStr,
    variable: Ident,
    kind: Kind,
    docs: String,
    /// The `format` of its texts.
    format: Option<LitStr>,
    /// Other names that a call may use for it.
    aliases: Vec<LitStr>,
}

enum Kind {
    /// Argument of this type.
    Value(Type),
    /// Borrowed string argument.
    Str(Span),
    /// Argument of this type with a default.
    Default(Type, Expr),
    /// All arguments in one value.
    All(Type),
    /// `&Context`.
    Context,
}

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> TokenStream {
    let mut function = match syn::parse2::<ItemFn>(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            let error =
                syn::Error::new(error.span(), "`#[tool]` must be placed on a function").into_compile_error();
            return quote!(#error #item);
        }
    };
    // The function is kept even if it is invalid as a tool, and the tool exists, so that one mistake gives one error.
    let tool = expand_tool(options, &mut function).unwrap_or_else(|error| {
        let (error, stub) = (error.into_compile_error(), stub(&function));
        quote!(#error #stub)
    });
    // The arguments of a tool are the fields of its schema; their number is not limited.
    quote!(#[allow(clippy::too_many_arguments)] #function #tool)
}

/// A type in the place of an invalid tool, for `export!`.
fn stub(function: &ItemFn) -> TokenStream {
    let (ident, visibility) = (&function.sig.ident, &function.vis);
    let name = ident.to_string();
    quote! {
        #[allow(non_camel_case_types, unreachable_pub, dead_code)]
        #visibility struct #ident {}

        impl ::toolcell_sdk::Tool for #ident {
            const NAME: &'static str = #name;

            fn definition() -> ::toolcell_sdk::Definition {
                ::core::unreachable!()
            }

            fn call(
                _: ::toolcell_sdk::Arguments,
                _: &::toolcell_sdk::Context,
            ) -> ::core::result::Result<::toolcell_sdk::Output, ::toolcell_sdk::ToolError> {
                ::core::unreachable!()
            }
        }
    }
}

/// Mistakes in one tool, of which each gives an error.
#[derive(Default)]
struct Mistakes(Option<syn::Error>);

impl Mistakes {
    /// Returns the value, or keeps the mistake.
    fn keep<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        match (result, &mut self.0) {
            (Ok(value), _) => return Some(value),
            (Err(error), Some(first)) => first.combine(error),
            (Err(error), none) => *none = Some(error),
        }
        None
    }

    fn none(self) -> syn::Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

fn expand_tool(options: TokenStream, function: &mut ItemFn) -> syn::Result<TokenStream> {
    let mut mistakes = Mistakes::default();
    let parameters = take_parameters(function, &mut mistakes);
    let options = mistakes.keep(Options::parse(options)).unwrap_or_default();
    check_signature(function, &parameters, &mut mistakes);

    let ident = &function.sig.ident;
    let visibility = &function.vis;
    let name = options.name.unwrap_or_else(|| {
        // The name of a function has only letters, digits and `_`, or is not ASCII.
        let name = LitStr::new(ident.to_string().trim_start_matches("r#"), ident.span());
        mistakes.keep(check_name(name.clone())).unwrap_or(name)
    });
    let description = docs_of(&function.attrs);
    if description.is_empty() {
        let _: Option<()> = mistakes.keep(Err(syn::Error::new(
            ident.span(),
            "a tool needs a description for the model: write a doc comment (`///`) on the function",
        )));
    }
    let aliases = mistakes.keep(aliases(&parameters)).unwrap_or_default();
    mistakes.none()?;
    let title = match options.title {
        Some(title) => quote!(::core::option::Option::Some(#title)),
        None => quote!(::core::option::Option::None),
    };
    let Options {
        read_only,
        destructive,
        idempotent,
        open_world,
        ..
    } = options;
    let aliases = aliases.into_iter().map(|(alias, name)| quote!((#alias, #name)));
    let input_schema = input_schema(&parameters);
    let decode = parameters.iter().map(decode);
    let pass = parameters.iter().map(pass);
    let mut call = quote!(#ident(#(#pass),*));
    if let Some(token) = &function.sig.asyncness {
        call = quote_spanned!(token.span=> ::toolcell_sdk::__private::block_on(#call)?);
    }
    let (answer_type, answer) = answer(&function.sig.output, call);
    let output_type = options.output.unwrap_or(answer_type);
    let output_schema =
        quote_spanned!(output_type.span()=> ::toolcell_sdk::__private::answer::<#output_type>().schema());
    let doc = format!("The tool `{}`.", name.value());

    Ok(quote! {
        #[doc = #doc]
        #[allow(non_camel_case_types, unreachable_pub)]
        #[derive(Debug, Clone, Copy)]
        #visibility struct #ident {}

        impl ::toolcell_sdk::Tool for #ident {
            const NAME: &'static str = #name;

            fn definition() -> ::toolcell_sdk::Definition {
                ::toolcell_sdk::__private::define(
                    #name,
                    #title,
                    #description,
                    ::toolcell_sdk::Hints {
                        read_only: #read_only,
                        destructive: #destructive,
                        idempotent: #idempotent,
                        open_world: #open_world,
                    },
                    #input_schema,
                    #output_schema,
                    &[#(#aliases),*],
                )
            }

            #[allow(unused_variables, unused_mut, clippy::unit_arg, clippy::let_unit_value, clippy::redundant_closure)]
            fn call(
                mut __arguments: ::toolcell_sdk::Arguments,
                __context: &::toolcell_sdk::Context,
            ) -> ::core::result::Result<::toolcell_sdk::Output, ::toolcell_sdk::ToolError> {
                #(#decode)*
                __arguments.finish()?;
                #answer
            }
        }
    })
}

/// Removes the attributes of the parameters from the function and returns them: the compiler accepts these attributes
/// nowhere else.
fn take_parameters(function: &mut ItemFn, mistakes: &mut Mistakes) -> Vec<Parameter> {
    let mut parameters = Vec::new();
    for input in &mut function.sig.inputs {
        let parameter = match input {
            FnArg::Receiver(receiver) => Err(syn::Error::new(
                receiver.span(),
                "a tool must be a free function without `self`",
            )),
            FnArg::Typed(parameter) => take_parameter(parameter),
        };
        parameters.extend(mistakes.keep(parameter));
    }
    parameters
}

fn take_parameter(parameter: &mut PatType) -> syn::Result<Parameter> {
    let attributes = std::mem::take(&mut parameter.attrs);
    let Pat::Ident(pattern) = parameter.pat.as_ref() else {
        return Err(syn::Error::new(
            parameter.pat.span(),
            "a parameter of a tool must be a plain name",
        ));
    };
    let ident = &pattern.ident;
    let mut name = LitStr::new(ident.to_string().trim_start_matches("r#"), ident.span());
    let mut kind = kind_of_type(&parameter.ty)?;
    let (mut format, mut aliases) = (None, Vec::new());
    for attribute in &attributes {
        let path = attribute.path();
        if path.is_ident("doc") {
            continue;
        } else if path.is_ident("default") {
            kind = Kind::Default((*parameter.ty).clone(), attribute.parse_args()?);
        } else if path.is_ident("rename") {
            name = attribute.parse_args()?;
        } else if path.is_ident("format") {
            format = Some(attribute.parse_args()?);
        } else if path.is_ident("alias") {
            let names = attribute.parse_args_with(Punctuated::<LitStr, Token![,]>::parse_terminated)?;
            aliases.extend(names);
        } else if path.is_ident("arguments") {
            kind = Kind::All((*parameter.ty).clone());
        } else {
            parameter.attrs.push(attribute.clone());
        }
    }
    Ok(Parameter {
        name,
        variable: format_ident!("__argument_{}", ident.to_string().trim_start_matches("r#")),
        kind,
        docs: docs_of(&attributes),
        format,
        aliases,
    })
}

fn kind_of_type(ty: &Type) -> syn::Result<Kind> {
    let Type::Reference(reference) = ty else {
        return Ok(Kind::Value(ty.clone()));
    };
    let last = match reference.elem.as_ref() {
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    };
    match last.as_deref() {
        _ if reference.mutability.is_some() => {}
        Some("Context") => return Ok(Kind::Context),
        Some("str") => return Ok(Kind::Str(ty.span())),
        _ => {}
    }
    Err(syn::Error::new(
        ty.span(),
        "a parameter of a tool must own its value; only `&str` and `&toolcell_sdk::Context` can be borrowed",
    ))
}

fn check_signature(function: &ItemFn, parameters: &[Parameter], mistakes: &mut Mistakes) {
    let signature = &function.sig;
    let mut refuse = |span: Span, why: &str| {
        let _: Option<()> = mistakes.keep(Err(syn::Error::new(span, why)));
    };
    if let Some(token) = &signature.unsafety {
        refuse(token.span, "a tool cannot be an `unsafe` function");
    }
    if !signature.generics.params.is_empty() {
        refuse(signature.generics.span(), "a tool cannot have generic parameters");
    }
    let all = parameters.iter().find(|p| matches!(p.kind, Kind::All(_)));
    let others = parameters
        .iter()
        .filter(|p| !matches!(p.kind, Kind::All(_) | Kind::Context))
        .count();
    if let Some(all) = all
        && others > 0
    {
        refuse(
            all.name.span(),
            "`#[arguments]` takes all arguments, so no other parameter is allowed",
        );
    }
}

/// Returns the aliases with the names that they stand for. An alias must not be a second name of two parameters.
fn aliases(parameters: &[Parameter]) -> syn::Result<Vec<(&LitStr, &LitStr)>> {
    let is_named = |parameter: &&Parameter| !matches!(parameter.kind, Kind::All(_) | Kind::Context);
    let mut known: Vec<String> = parameters
        .iter()
        .filter(is_named)
        .map(|p| p.name.value())
        .collect();
    let mut aliases = Vec::new();
    for parameter in parameters {
        for alias in &parameter.aliases {
            if !is_named(&parameter) {
                let why = "only a parameter with a name of its own can have aliases";
                return Err(syn::Error::new(alias.span(), why));
            }
            if known.contains(&alias.value()) {
                let why = format!("`{}` already names a parameter of this tool", alias.value());
                return Err(syn::Error::new(alias.span(), why));
            }
            known.push(alias.value());
            aliases.push((alias, &parameter.name));
        }
    }
    Ok(aliases)
}

fn input_schema(parameters: &[Parameter]) -> TokenStream {
    let mut add = Vec::new();
    for parameter in parameters {
        let Parameter { name, docs, .. } = parameter;
        match &parameter.kind {
            Kind::Value(_) | Kind::Str(_) | Kind::Default(..) => {
                let (ty, default) = type_and_default(&parameter.kind);
                add.push(quote!(#ty.add(&mut __parameters, #name, #docs #default);));
            }
            Kind::All(ty) => {
                let ty = all_arguments(ty);
                return quote!(#ty.schema());
            }
            Kind::Context => {}
        }
        if let Some(format) = &parameter.format {
            add.push(quote!(__parameters.mark_format(#name, #format);));
        }
    }
    quote! {{
        #[allow(unused_mut)]
        let mut __parameters = ::toolcell_sdk::__private::Parameters::new();
        #(#add)*
        __parameters.finish()
    }}
}

/// The checked type of a parameter, and its default as the last argument of `add` and `take`.
fn type_and_default(kind: &Kind) -> (TokenStream, Option<TokenStream>) {
    match kind {
        Kind::Default(ty, value) => (
            quote_spanned!(ty.span()=> ::toolcell_sdk::__private::parameter_with_default::<#ty>()),
            Some(quote!(, || #value)),
        ),
        Kind::Value(ty) => (
            quote_spanned!(ty.span()=> ::toolcell_sdk::__private::parameter::<#ty>()),
            None,
        ),
        _ => (
            quote!(::toolcell_sdk::__private::parameter::<::std::string::String>()),
            None,
        ),
    }
}

/// The checked type of all arguments.
fn all_arguments(ty: &Type) -> TokenStream {
    quote_spanned!(ty.span()=> ::toolcell_sdk::__private::all_arguments::<#ty>())
}

fn decode(parameter: &Parameter) -> TokenStream {
    let Parameter { name, variable, .. } = parameter;
    match &parameter.kind {
        Kind::Value(_) | Kind::Str(_) | Kind::Default(..) => {
            let (ty, default) = type_and_default(&parameter.kind);
            quote!(let #variable = #ty.take(&mut __arguments, #name #default)?;)
        }
        Kind::All(ty) => {
            let ty = all_arguments(ty);
            quote!(let #variable = #ty.take(&mut __arguments)?;)
        }
        Kind::Context => TokenStream::new(),
    }
}

fn pass(parameter: &Parameter) -> TokenStream {
    let variable = &parameter.variable;
    match parameter.kind {
        Kind::Str(span) => quote_spanned!(span=> &#variable),
        Kind::Context => quote!(__context),
        _ => quote!(#variable),
    }
}

/// Result type without `Result`, and the code that converts the call's value to an `Output`.
fn answer(output: &ReturnType, call: TokenStream) -> (Type, TokenStream) {
    let unit: Type = syn::parse_quote!(());
    let ty = match output {
        ReturnType::Default => {
            return (
                unit,
                quote!({ #call; ::toolcell_sdk::__private::answer::<()>().output(()) }),
            );
        }
        ReturnType::Type(_, ty) => ty,
    };
    let answer = |ty: &Type| quote_spanned!(ty.span()=> ::toolcell_sdk::__private::answer::<#ty>());
    let Some(types) = result_of(ty) else {
        let answer = answer(ty);
        return ((**ty).clone(), quote!(#answer.output(#call)));
    };
    let span = types
        .error
        .as_ref()
        .map_or_else(|| ty.span(), syn::spanned::Spanned::span);
    let conversion = quote_spanned!(span=> (&&&::toolcell_sdk::__private::error_type(&__error)).conversion());
    let value_type = types.value.unwrap_or(unit);
    let answer = answer(&value_type);
    let code = quote! {
        match #call {
            ::core::result::Result::Ok(__value) => #answer.output(__value),
            ::core::result::Result::Err(__error) => {
                #[allow(unused_imports)]
                use ::toolcell_sdk::__private::{ConvertibleError as _, OtherError as _, SendableError as _};
                let __conversion = #conversion;
                ::core::result::Result::Err(__conversion(__error))
            }
        }
    };
    (value_type, code)
}

/// Type arguments of a `Result`.
struct ResultTypes {
    value: Option<Type>,
    error: Option<Type>,
}

/// `Some` if the type is named `Result`.
fn result_of(ty: &Type) -> Option<ResultTypes> {
    let Type::Path(path) = ty else { return None };
    let last = path
        .path
        .segments
        .last()
        .filter(|segment| segment.ident == "Result")?;
    let mut types = match &last.arguments {
        PathArguments::AngleBracketed(arguments) => Some(&arguments.args),
        _ => None,
    }
    .into_iter()
    .flatten()
    .filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty.clone()),
        _ => None,
    });
    Some(ResultTypes {
        value: types.next(),
        error: types.next(),
    })
}

/// Text of the doc comments, without the space after `///`.
pub(crate) fn docs_of(attributes: &[Attribute]) -> String {
    let mut lines = Vec::new();
    for attribute in attributes {
        if attribute.path().is_ident("doc")
            && let Meta::NameValue(meta) = &attribute.meta
            && let Expr::Lit(ExprLit {
                lit: Lit::Str(text), ..
            }) = &meta.value
        {
            lines.extend(
                text.value()
                    .lines()
                    .map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end().to_owned()),
            );
            if text.value().is_empty() {
                lines.push(String::new());
            }
        }
    }
    lines.join("\n").trim().to_owned()
}
