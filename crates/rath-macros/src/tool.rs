//! `#[tool]`.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::Parser;
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, Expr, FnArg, Ident, ItemFn, Lit, LitInt, LitStr, Meta, Pat, Path, Result, ReturnType, Type,
};

use crate::module::default_crate_path;

pub(crate) fn expand(options: TokenStream, function: TokenStream) -> Result<TokenStream> {
    let function: ItemFn = syn::parse2(function)
        .map_err(|error| Error::new(error.span(), "a tool is an async function: `#[tool] async fn name(..) -> ..`"))?;
    let mut options = Options::parse(options)?;
    check_signature(&function)?;
    let description = doc_text(&function.attrs);
    if description.is_empty() {
        let why = "a tool needs a doc comment: it is the description for the model";
        return Err(Error::new(function.sig.ident.span(), why));
    }
    let parameters = parse_parameters(&function)?;
    options.check_paths(&parameters)?;
    let rath = options.crate_path.take().unwrap_or_else(default_crate_path);
    let (serde, schemars) = (quote!(#rath::tool::macros::serde), quote!(#rath::tool::macros::schemars));
    let (serde_text, schemars_text) = (serde.to_string(), schemars.to_string());

    let ident = &function.sig.ident;
    let visibility = &function.vis;
    let name = match options.name.take() {
        Some(name) => name,
        None => {
            let name = ident.unraw().to_string();
            check_name(&name, ident.span())?;
            name
        }
    };
    let (docs, other_attributes): (Vec<_>, Vec<_>) =
        function.attrs.iter().partition(|attribute| attribute.path().is_ident("doc"));
    let arguments = format_ident!("__{}Arguments", ident.unraw());
    let fields = parameters.iter().filter_map(Parameter::as_field);
    let passed = parameters.iter().map(Parameter::as_passed);
    let inputs = parameters.iter().map(|parameter| &parameter.declaration);
    let (output, block) = (&function.sig.output, &function.block);
    let returned = match output {
        ReturnType::Default => ident.span(),
        ReturnType::Type(_, ty) => ty.span(),
    };
    // With the span of the return type, so that the compiler points there when it cannot be turned into an output.
    let to_output = quote_spanned!(returned=> (&&&&&&__returned).output());
    let methods = options.methods(&rath);
    Ok(quote! {
        #(#docs)*
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug)]
        #visibility struct #ident;

        const _: () = {
            // A parameter may have the tool's name: a function of that name can be shadowed, a struct cannot.
            #[allow(dead_code, non_snake_case)]
            fn #ident() {}

            #[derive(#serde::Deserialize, #schemars::JsonSchema)]
            #[serde(crate = #serde_text, deny_unknown_fields)]
            #[schemars(crate = #schemars_text)]
            #[allow(non_camel_case_types)]
            struct #arguments {
                #(#fields)*
            }

            impl #ident {
                #(#docs)*
                #(#other_attributes)*
                #visibility async fn invoke(#(#inputs),*) #output #block
            }

            #[allow(deprecated, clippy::all, clippy::pedantic)]
            impl #rath::tool::Tool for #ident {
                fn spec(&self) -> #rath::chunk::ToolSpec {
                    #rath::tool::macros::spec::<#arguments>(#name, #description)
                }

                #methods

                async fn call(
                    &self,
                    __cx: &#rath::tool::ToolCx,
                    __arguments: #rath::tool::macros::serde_json::Value,
                ) -> #rath::Result<#rath::tool::Output> {
                    #[allow(unused_imports)]
                    use #rath::tool::macros::returned::*;
                    let __arguments: #arguments = #rath::tool::macros::arguments(__arguments)?;
                    let _ = &__arguments;
                    let __returned = #rath::tool::macros::returned::ReturnValue::new(<#ident>::invoke(#(#passed),*).await);
                    #to_output
                }
            }
        };
    })
}

const GENERIC: &str = "a tool cannot be generic: the model needs to know its exact arguments";

/// Fails if a function cannot be a tool.
fn check_signature(function: &ItemFn) -> Result<()> {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        return Err(Error::new(signature.fn_token.span, "a tool is an async function: write `async fn`"));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new(signature.generics.span(), GENERIC));
    }
    if let syn::Safety::Unsafe(token) = &signature.safety {
        return Err(Error::new(token.span, "a tool is called by a model: it cannot be unsafe"));
    }
    Ok(())
}

/// Fails if a name is not one that every provider accepts.
fn check_name(name: &str, at: Span) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if (1..=64).contains(&name.len()) && name.chars().all(fits) {
        return Ok(());
    }
    Err(Error::new(
        at,
        "a tool's name is 1 to 64 letters, digits, `_` and `-`: give it one with `#[tool(name = \"..\")]`",
    ))
}

/// One parameter of the function.
struct Parameter {
    ident: Ident,
    ty: Type,
    /// The doc comment, and attributes for serde and schemars.
    attributes: Vec<Attribute>,
    /// The span of the type, if the parameter is the context and not an argument.
    context: Option<Span>,
    /// The parameter as the function declares it.
    declaration: TokenStream,
}

impl Parameter {
    fn as_field(&self) -> Option<TokenStream> {
        let (ident, ty, attributes) = (&self.ident, &self.ty, &self.attributes);
        self.context.is_none().then(|| quote!(#(#attributes)* #ident: #ty,))
    }

    fn as_passed(&self) -> TokenStream {
        let ident = &self.ident;
        if self.context.is_some() { quote!(__cx) } else { quote!(__arguments.#ident) }
    }
}

fn parse_parameters(function: &ItemFn) -> Result<Vec<Parameter>> {
    let parameters = function.sig.inputs.iter().map(parse_parameter).collect::<Result<Vec<_>>>()?;
    if let Some(second) = parameters.iter().filter_map(|parameter| parameter.context).nth(1) {
        return Err(Error::new(second, "a tool has one `&ToolCx`"));
    }
    Ok(parameters)
}

fn parse_parameter(input: &FnArg) -> Result<Parameter> {
    let FnArg::Typed(typed) = input else {
        let why = "a tool has no `self`: write a function, or implement `Tool` for the type";
        return Err(Error::new(input.span(), why));
    };
    let Pat::Ident(pattern) = &*typed.pat else {
        return Err(Error::new(typed.pat.span(), "a tool's parameter needs a name: the model fills it in by name"));
    };
    let at = typed.ty.span();
    let context = match &*typed.ty {
        Type::Reference(reference) if is_context(&reference.elem) => {
            if reference.mutability.is_some() {
                return Err(Error::new(at, "write `&ToolCx`"));
            }
            Some(at)
        }
        Type::Reference(_) => {
            let why = "a tool's parameter is a value of its own, such as `String`; only `&ToolCx` is a reference";
            return Err(Error::new(at, why));
        }
        Type::ImplTrait(_) => return Err(Error::new(at, GENERIC)),
        ty if is_context(ty) => return Err(Error::new(at, "write `&ToolCx`")),
        _ => None,
    };
    let is_field_attribute =
        |attribute: &&Attribute| ["doc", "serde", "schemars"].iter().any(|name| attribute.path().is_ident(name));
    let (attributes, others): (Vec<_>, Vec<_>) = typed.attrs.iter().partition(is_field_attribute);
    let attributes: Vec<Attribute> = attributes.into_iter().cloned().collect();
    if let Some(flatten) = attributes.iter().find(|attribute| has_word(attribute, "flatten")) {
        let why = "a parameter cannot be flattened: the model fills it in by name";
        return Err(Error::new(flatten.span(), why));
    }
    let (mutability, ident, ty) = (&pattern.mutability, &pattern.ident, &typed.ty);
    Ok(Parameter {
        ident: ident.clone(),
        ty: (**ty).clone(),
        attributes,
        context,
        declaration: quote!(#(#others)* #mutability #ident: #ty),
    })
}

fn is_context(ty: &Type) -> bool {
    let Type::Path(path) = ty else { return false };
    path.path.segments.last().is_some_and(|segment| segment.ident == "ToolCx")
}

/// Returns true if an attribute contains a word.
fn has_word(attribute: &Attribute, word: &str) -> bool {
    let Meta::List(list) = &attribute.meta else { return false };
    list.tokens.clone().into_iter().any(|token| matches!(&token, TokenTree::Ident(ident) if ident == word))
}

/// Returns the text of a doc comment.
pub(crate) fn doc_text(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(line) => Some(line.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    let lines: Vec<String> = lines.map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned()).collect();
    lines.join("\n").trim().to_owned()
}

/// The options in the parentheses of the attribute.
#[derive(Default)]
struct Options {
    name: Option<String>,
    crate_path: Option<Path>,
    nature: Option<DeclaredNature>,
    reads: Vec<Ident>,
    writes: Vec<Ident>,
    everything: bool,
    approval: bool,
    time_limit: Option<LitInt>,
    output_limit: Option<LitInt>,
}

/// A nature other than the default.
#[derive(Clone, Copy)]
enum DeclaredNature {
    ReadOnly,
    Idempotent,
}

const UNKNOWN_OPTION: &str = "unknown option; known: read_only, idempotent, reads(..), writes(..), everything, approval, \
                     time_limit = SECONDS, output_limit = BYTES, name = \"..\", crate = PATH";

impl Options {
    fn parse(tokens: TokenStream) -> Result<Self> {
        let mut options = Options::default();
        let parser = syn::meta::parser(|option| {
            let path = option.path.clone();
            let is = |name: &str| path.is_ident(name);
            if is("read_only") || is("idempotent") {
                if options.nature.is_some() {
                    return Err(option.error("a tool is either `read_only` or `idempotent`"));
                }
                let is_read_only = is("read_only");
                options.nature = Some(if is_read_only { DeclaredNature::ReadOnly } else { DeclaredNature::Idempotent });
            } else if is("reads") || is("writes") {
                let into = if is("reads") { &mut options.reads } else { &mut options.writes };
                let names;
                syn::parenthesized!(names in option.input);
                into.extend(names.parse_terminated(Ident::parse_any, syn::Token![,])?);
            } else if is("everything") {
                options.everything = true;
            } else if is("approval") {
                options.approval = true;
            } else if is("time_limit") {
                options.time_limit = Some(option.value()?.parse()?);
            } else if is("output_limit") {
                options.output_limit = Some(option.value()?.parse()?);
            } else if is("crate") {
                options.crate_path = Some(option.value()?.call(Path::parse_mod_style)?);
            } else if is("name") {
                let name: LitStr = option.value()?.parse()?;
                check_name(&name.value(), name.span())?;
                options.name = Some(name.value());
            } else {
                return Err(option.error(UNKNOWN_OPTION));
            }
            Ok(())
        });
        parser.parse2(tokens)?;
        Ok(options)
    }

    /// Fails if a declared path is not a parameter.
    fn check_paths(&self, parameters: &[Parameter]) -> Result<()> {
        for path in self.reads.iter().chain(&self.writes) {
            let has_name =
                |parameter: &&Parameter| parameter.context.is_none() && parameter.ident.unraw() == path.unraw();
            let Some(parameter) = parameters.iter().find(has_name) else {
                return Err(Error::new(path.span(), format!("there is no parameter `{path}`")));
            };
            if let Some(rename) = parameter.attributes.iter().find(|it| has_word(it, "rename") || has_word(it, "alias"))
            {
                let why = "a path that is declared cannot have another name: rename the parameter itself";
                return Err(Error::new(rename.span(), why));
            }
        }
        Ok(())
    }

    /// Returns the methods of the trait that differ from their default.
    fn methods(&self, rath: &Path) -> TokenStream {
        let value = quote!(#rath::tool::macros::serde_json::Value);
        let mut methods = TokenStream::new();
        if let Some(nature) = &self.nature {
            let nature = match nature {
                DeclaredNature::ReadOnly => quote!(#rath::tool::Nature::ReadOnly),
                DeclaredNature::Idempotent => {
                    quote!(#rath::tool::Nature::Idempotent { key: ::std::option::Option::None })
                }
            };
            methods.extend(quote!(fn nature(&self, _: &#value) -> #rath::tool::Nature { #nature }));
        }
        let touch = |access: TokenStream, path: &Ident| {
            let name = path.unraw().to_string();
            quote!(touches.extend(#rath::tool::Touch::paths(#rath::tool::Access::#access, &arguments[#name]));)
        };
        let touches: Vec<_> = (self.reads.iter().map(|path| touch(quote!(Read), path)))
            .chain(self.writes.iter().map(|path| touch(quote!(Write), path)))
            .chain(self.everything.then(|| quote!(touches.push(#rath::tool::Touch::everything());)))
            .collect();
        if !touches.is_empty() {
            methods.extend(quote! {
                fn touches(&self, arguments: &#value) -> ::std::vec::Vec<#rath::tool::Touch> {
                    let mut touches = ::std::vec::Vec::new();
                    let _ = arguments;
                    #(#touches)*
                    touches
                }
            });
        }
        if self.approval {
            methods.extend(quote!(fn needs_approval(&self, _: &#value) -> bool { true }));
        }
        if let Some(seconds) = &self.time_limit {
            methods.extend(quote! {
                fn time_limit(&self) -> ::std::time::Duration { ::std::time::Duration::from_secs(#seconds) }
            });
        }
        if let Some(bytes) = &self.output_limit {
            methods.extend(quote!(fn output_limit(&self) -> usize { #bytes }));
        }
        methods
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crate_is_found_under_the_path_that_is_given() {
        let function = quote! {
            /// Counts.
            async fn count(path: String, cx: &ToolCx) -> usize {
                path.len()
            }
        };
        let options = quote!(crate = facade::agents, idempotent, reads(path), everything, approval, time_limit = 1);
        let renamed = expand(options, function.clone()).expect("a tool").to_string();
        assert!(renamed.contains("impl facade :: agents :: tool :: Tool for count"), "{renamed}");
        assert!(!renamed.contains("rath"), "{renamed}");
        let default = expand(quote!(read_only), function).expect("a tool").to_string();
        assert!(default.contains("impl :: rath :: tool :: Tool for count"), "{default}");
    }
}
