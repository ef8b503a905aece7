//! `#[tool]`.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::Parser;
use syn::spanned::Spanned;
use syn::{Attribute, Error, Expr, FnArg, Ident, ItemFn, Lit, LitInt, LitStr, Meta, Pat, Result, ReturnType, Type};

pub(crate) fn expand(options: TokenStream, function: TokenStream) -> Result<TokenStream> {
    let function: ItemFn = syn::parse2(function)
        .map_err(|error| Error::new(error.span(), "a tool is an async function: `#[tool] async fn name(..) -> ..`"))?;
    let mut options = Options::parse(options)?;
    check(&function)?;
    let description = doc(&function.attrs);
    if description.is_empty() {
        let why = "a tool needs a doc comment: it is what the model is told about it";
        return Err(Error::new(function.sig.ident.span(), why));
    }
    let parameters = parameters(&function)?;
    options.check_paths(&parameters)?;

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
    let (docs, kept): (Vec<_>, Vec<_>) = function.attrs.iter().partition(|attribute| attribute.path().is_ident("doc"));
    let arguments = format_ident!("__{}Arguments", ident.unraw());
    let fields = parameters.iter().filter_map(Parameter::as_field);
    let passed = parameters.iter().map(Parameter::as_passed);
    let inputs = parameters.iter().map(|parameter| &parameter.plain);
    let (output, block) = (&function.sig.output, &function.block);
    let returned = match output {
        ReturnType::Default => ident.span(),
        ReturnType::Type(_, ty) => ty.span(),
    };
    // Where the value is turned into an output the compiler points at its type.
    let said = quote_spanned!(returned=> (&&&&&&__said).output());
    let declared = options.declared();
    Ok(quote! {
        #(#docs)*
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug)]
        #visibility struct #ident;

        const _: () = {
            // A parameter may have the tool's name: a function of that name can be shadowed, a struct cannot.
            #[allow(dead_code, non_snake_case)]
            fn #ident() {}

            #[derive(::rath::tool::macros::serde::Deserialize, ::rath::tool::macros::schemars::JsonSchema)]
            #[serde(crate = "::rath::tool::macros::serde", deny_unknown_fields)]
            #[schemars(crate = "::rath::tool::macros::schemars")]
            #[allow(non_camel_case_types)]
            struct #arguments {
                #(#fields)*
            }

            impl #ident {
                #(#docs)*
                #(#kept)*
                #visibility async fn invoke(#(#inputs),*) #output #block
            }

            #[allow(deprecated, clippy::all, clippy::pedantic)]
            impl ::rath::tool::Tool for #ident {
                fn spec(&self) -> ::rath::chunk::ToolSpec {
                    ::rath::tool::macros::spec::<#arguments>(#name, #description)
                }

                #declared

                async fn call(
                    &self,
                    __cx: &::rath::tool::ToolCx,
                    __arguments: ::rath::tool::macros::serde_json::Value,
                ) -> ::rath::Result<::rath::tool::Output> {
                    #[allow(unused_imports)]
                    use ::rath::tool::macros::say::*;
                    let __arguments: #arguments = ::rath::tool::macros::arguments(__arguments)?;
                    let _ = &__arguments;
                    let __said = ::rath::tool::macros::say::Said::new(<#ident>::invoke(#(#passed),*).await);
                    #said
                }
            }
        };
    })
}

const GENERIC: &str = "a tool cannot be generic: the model is told its exact arguments";

/// What a function has to be to be a tool.
fn check(function: &ItemFn) -> Result<()> {
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

/// Every provider takes these names.
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
    /// Its doc comment, and whatever else stands on it for serde and schemars.
    attributes: Vec<Attribute>,
    /// The context, and not an argument.
    context: Option<Span>,
    /// As the function takes it.
    plain: TokenStream,
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

fn parameters(function: &ItemFn) -> Result<Vec<Parameter>> {
    let parameters = function.sig.inputs.iter().map(parameter).collect::<Result<Vec<_>>>()?;
    if let Some(second) = parameters.iter().filter_map(|parameter| parameter.context).nth(1) {
        return Err(Error::new(second, "a tool has one `&ToolCx`"));
    }
    Ok(parameters)
}

fn parameter(input: &FnArg) -> Result<Parameter> {
    let FnArg::Typed(typed) = input else {
        let why = "a tool has no `self`: write a function, or implement `Tool` for the type";
        return Err(Error::new(input.span(), why));
    };
    let Pat::Ident(pattern) = &*typed.pat else {
        return Err(Error::new(typed.pat.span(), "a tool's parameter needs a name: the model is told it"));
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
    let is_for_the_field =
        |attribute: &&Attribute| ["doc", "serde", "schemars"].iter().any(|name| attribute.path().is_ident(name));
    let (attributes, others): (Vec<_>, Vec<_>) = typed.attrs.iter().partition(is_for_the_field);
    let attributes: Vec<Attribute> = attributes.into_iter().cloned().collect();
    if let Some(flatten) = attributes.iter().find(|attribute| has_word(attribute, "flatten")) {
        let why = "a parameter cannot be flattened: the model is told the name of each";
        return Err(Error::new(flatten.span(), why));
    }
    let (mutability, ident, ty) = (&pattern.mutability, &pattern.ident, &typed.ty);
    Ok(Parameter {
        ident: ident.clone(),
        ty: (**ty).clone(),
        attributes,
        context,
        plain: quote!(#(#others)* #mutability #ident: #ty),
    })
}

fn is_context(ty: &Type) -> bool {
    let Type::Path(path) = ty else { return false };
    path.path.segments.last().is_some_and(|segment| segment.ident == "ToolCx")
}

/// Whether a word stands in an attribute.
fn has_word(attribute: &Attribute, word: &str) -> bool {
    let Meta::List(list) = &attribute.meta else { return false };
    list.tokens.clone().into_iter().any(|token| matches!(&token, TokenTree::Ident(ident) if ident == word))
}

/// The text of a doc comment.
pub(crate) fn doc(attributes: &[Attribute]) -> String {
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

/// What stands in the attribute's parentheses.
#[derive(Default)]
struct Options {
    name: Option<String>,
    nature: Option<TokenStream>,
    reads: Vec<Ident>,
    writes: Vec<Ident>,
    everything: bool,
    approval: bool,
    time_limit: Option<LitInt>,
    output_limit: Option<LitInt>,
}

const KNOWN: &str = "unknown option; known: read_only, idempotent, reads(..), writes(..), everything, approval, \
                     time_limit = SECONDS, output_limit = BYTES, name = \"..\"";

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
                options.nature = Some(if is("read_only") {
                    quote!(::rath::tool::Nature::ReadOnly)
                } else {
                    quote!(::rath::tool::Nature::Idempotent { key: ::std::option::Option::None })
                });
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
            } else if is("name") {
                let name: LitStr = option.value()?.parse()?;
                check_name(&name.value(), name.span())?;
                options.name = Some(name.value());
            } else {
                return Err(option.error(KNOWN));
            }
            Ok(())
        });
        parser.parse2(tokens)?;
        Ok(options)
    }

    /// Whether every path is a parameter.
    fn check_paths(&self, parameters: &[Parameter]) -> Result<()> {
        for path in self.reads.iter().chain(&self.writes) {
            let is_it = |parameter: &&Parameter| parameter.context.is_none() && parameter.ident.unraw() == path.unraw();
            let Some(parameter) = parameters.iter().find(is_it) else {
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

    /// The methods of the trait that differ from what they are by default.
    fn declared(&self) -> TokenStream {
        let value = quote!(::rath::tool::macros::serde_json::Value);
        let mut declared = TokenStream::new();
        if let Some(nature) = &self.nature {
            declared.extend(quote!(fn nature(&self, _: &#value) -> ::rath::tool::Nature { #nature }));
        }
        let touch = |access: TokenStream, path: &Ident| {
            let name = path.unraw().to_string();
            quote!(touches.extend(::rath::tool::Touch::paths(::rath::tool::Access::#access, &arguments[#name]));)
        };
        let touches: Vec<_> = (self.reads.iter().map(|path| touch(quote!(Read), path)))
            .chain(self.writes.iter().map(|path| touch(quote!(Write), path)))
            .chain(self.everything.then(|| quote!(touches.push(::rath::tool::Touch::everything());)))
            .collect();
        if !touches.is_empty() {
            declared.extend(quote! {
                fn touches(&self, arguments: &#value) -> ::std::vec::Vec<::rath::tool::Touch> {
                    let mut touches = ::std::vec::Vec::new();
                    let _ = arguments;
                    #(#touches)*
                    touches
                }
            });
        }
        if self.approval {
            declared.extend(quote!(fn needs_approval(&self, _: &#value) -> bool { true }));
        }
        if let Some(seconds) = &self.time_limit {
            declared.extend(quote! {
                fn time_limit(&self) -> ::std::time::Duration { ::std::time::Duration::from_secs(#seconds) }
            });
        }
        if let Some(bytes) = &self.output_limit {
            declared.extend(quote!(fn output_limit(&self) -> usize { #bytes }));
        }
        declared
    }
}
