//! `#[derive(Module)]`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, Member, Result};

use crate::tool::doc;

pub(crate) fn expand(input: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(input)?;
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.ident.span(), "a module is a struct: its fields are its children"));
    };
    let mut listed = Vec::new();
    for (nth, field) in data.fields.iter().enumerate() {
        if is_skipped(field)? {
            continue;
        }
        let (member, name) = match &field.ident {
            Some(name) => (Member::Named(name.clone()), name.unraw().to_string()),
            None => (Member::from(nth), nth.to_string()),
        };
        // At the field's type, so that the compiler points there when it is not a module.
        listed.push((member, name, field.ty.span()));
    }
    let list = listed.iter().map(|(member, name, at)| {
        quote_spanned!(*at=> (::std::string::String::from(#name), &self.#member as &dyn ::rath::flow::Module))
    });
    let bind = listed
        .iter()
        .map(|(member, _, at)| quote_spanned!(*at=> ::rath::flow::Module::bind(&mut self.#member, binding);));
    let (name, kind, description) = (&input.ident, input.ident.to_string(), doc(&input.attrs));
    let (generics, arguments, conditions) = input.generics.split_for_impl();
    Ok(quote! {
        impl #generics ::rath::flow::Module for #name #arguments #conditions {
            fn kind(&self) -> &str {
                #kind
            }

            fn description(&self) -> &str {
                #description
            }

            fn children(&self) -> ::std::vec::Vec<(::std::string::String, &dyn ::rath::flow::Module)> {
                ::std::vec![#(#list),*]
            }

            fn bind(&mut self, binding: &::rath::flow::Binding) {
                let _ = binding;
                #(#bind)*
            }
        }

        impl #generics ::std::fmt::Display for #name #arguments #conditions {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(&::rath::flow::tree(self))
            }
        }
    })
}

/// Whether a field is marked as no part of the tree.
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
