//! `#[derive(Module)]`.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, Member, Path, Result, Type};

use crate::tool::doc_text;

pub(crate) fn expand(input: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(input)?;
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.ident.span(), "a module is a struct: its fields are its children"));
    };
    let rath = crate_path(&input)?;
    let mut children = Vec::new();
    for (nth, field) in data.fields.iter().enumerate() {
        if is_skipped(field)? {
            continue;
        }
        let (member, name) = match &field.ident {
            Some(name) => (Member::Named(name.clone()), name.unraw().to_string()),
            None => (Member::from(nth), nth.to_string()),
        };
        children.push(Child { member, name, ty: &field.ty });
    }
    let list = children.iter().map(|Child { member, name, ty }| {
        // With the span of the type, so that the compiler points there when it is not a module.
        quote_spanned!(ty.span()=> (::std::string::String::from(#name), &self.#member as &dyn #rath::flow::Module))
    });
    let bind = children.iter().map(
        |Child { member, ty, .. }| quote_spanned!(ty.span()=> #rath::flow::Module::bind(&mut self.#member, binding);),
    );
    let assertions = distinct_children(&children);
    // A constant outside functions is checked even if nothing is run, but it cannot name type parameters.
    let is_generic = !input.generics.params.is_empty();
    let (inner, outer) = if is_generic { (assertions, Vec::new()) } else { (Vec::new(), assertions) };
    let (name, kind, description) = (&input.ident, input.ident.to_string(), doc_text(&input.attrs));
    let (generics, arguments, conditions) = input.generics.split_for_impl();
    Ok(quote! {
        #(const _: () = #outer;)*

        impl #generics #rath::flow::Module for #name #arguments #conditions {
            fn kind(&self) -> &str {
                #kind
            }

            fn description(&self) -> &str {
                #description
            }

            fn children(&self) -> ::std::vec::Vec<(::std::string::String, &dyn #rath::flow::Module)> {
                #(const { #inner };)*
                ::std::vec![#(#list),*]
            }

            fn bind(&mut self, binding: &#rath::flow::Binding) {
                let _ = binding;
                #(#bind)*
            }
        }
    })
}

/// A field that is a child of the module.
struct Child<'a> {
    member: Member,
    name: String,
    ty: &'a Type,
}

/// Returns assertions that the type of two children is not zero-sized, for each pair of children of one type.
///
/// A child is found by its address and type, and two values of one zero-sized type share both.
fn distinct_children(children: &[Child<'_>]) -> Vec<TokenStream> {
    let mut assertions = Vec::new();
    for (nth, Child { name, ty, .. }) in children.iter().enumerate() {
        let is_same = |earlier: &&Child<'_>| quote!(#ty).to_string() == earlier.ty.to_token_stream().to_string();
        let Some(earlier) = children[..nth].iter().find(is_same) else { continue };
        let message = format!(
            "`{}` and `{name}` have the same zero-sized type, so steps cannot say which of them appended: give the type a \
             field, such as a name that is marked `#[module(skip)]`",
            earlier.name
        );
        assertions.push(quote_spanned!(ty.span()=> ::std::assert!(::std::mem::size_of::<#ty>() != 0, #message)));
    }
    assertions
}

/// Returns the path of the `rath` crate: that of `#[module(crate = path)]`, or `::rath`.
fn crate_path(input: &DeriveInput) -> Result<Path> {
    let mut path = None;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("module")) {
        attribute.parse_nested_meta(|option| {
            if !option.path.is_ident("crate") {
                return Err(option.error("unknown option; known: crate = PATH"));
            }
            path = Some(option.value()?.call(Path::parse_mod_style)?);
            Ok(())
        })?;
    }
    Ok(path.unwrap_or_else(default_crate_path))
}

/// Returns `::rath`, the name of the library, which does not depend on the name of the package.
///
/// Only a dependency that the user renamed has another name, and an attribute gives that. Finding it would mean to read the
/// user's Cargo.toml, which brings a TOML parser into every build and does not know re-exports.
pub(crate) fn default_crate_path() -> Path {
    syn::parse_quote!(::rath)
}

/// Returns true if a field is marked as no part of the tree.
fn is_skipped(field: &Field) -> Result<bool> {
    let mut skipped = false;
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("module")) {
        attribute.parse_nested_meta(|option| {
            if option.path.is_ident("skip") {
                skipped = true;
                return Ok(());
            }
            Err(option.error("unknown option; known: skip"))
        })?;
    }
    Ok(skipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crate_is_found_under_the_path_that_is_given() {
        let renamed = expand(quote! {
            #[module(crate = agents)]
            struct Pair {
                first: Agent,
                second: Agent,
            }
        });
        let renamed = renamed.expect("a struct").to_string();
        assert!(renamed.contains("impl agents :: flow :: Module for Pair"), "{renamed}");
        assert!(!renamed.contains("rath"), "{renamed}");
        let default = expand(quote!(
            struct Pair;
        ))
        .expect("a struct")
        .to_string();
        assert!(default.contains("impl :: rath :: flow :: Module for Pair"), "{default}");
    }
}
