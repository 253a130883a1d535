//! The expansion of `#[derive(Step)]`.

use std::collections::HashSet;

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Fields, Ident, LitStr, Result, Variant};

use crate::mistakes::Mistakes;
use crate::snake_case::snake_case;

/// The implementations for one enum, or every mistake in it at once.
pub fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let steps = steps(input)?;
    let enum_name = &input.ident;
    let variants: Vec<&Ident> = steps.iter().map(|step| step.variant).collect();
    let names: Vec<&LitStr> = steps.iter().map(|step| &step.name).collect();
    Ok(quote! {
        #[automatically_derived]
        impl ::abide::Step for #enum_name {
            const ALL: &'static [Self] = &[#(Self::#variants),*];

            fn name(&self) -> &'static str {
                match self {
                    #(Self::#variants => #names,)*
                }
            }

            fn parse(name: &str) -> ::core::option::Option<Self> {
                match name {
                    #(#names => ::core::option::Option::Some(Self::#variants),)*
                    _ => ::core::option::Option::None,
                }
            }
        }
    })
}

/// One variant and the name it is stored under.
struct Step<'a> {
    variant: &'a Ident,
    name: LitStr,
}

fn steps(input: &DeriveInput) -> Result<Vec<Step<'_>>> {
    let Data::Enum(body) = &input.data else {
        return Err(Error::new(
            input.ident.span(),
            "steps are the variants of an enum: write `enum At { Start, Ship }`, one variant for each step",
        ));
    };
    let mut mistakes = Mistakes::default();
    if let Some(attribute) = input.attrs.iter().find(|it| it.path().is_ident("step")) {
        mistakes.add(Error::new(
            attribute.span(),
            "#[step(...)] names one step: move it onto a variant",
        ));
    }
    if !input.generics.params.is_empty() || input.generics.where_clause.is_some() {
        mistakes.add(Error::new(
            input.generics.span(),
            "steps cannot be generic: remove the parameters and keep what varies in the workflow's state",
        ));
    }
    if body.variants.is_empty() {
        mistakes.add(Error::new(
            input.ident.span(),
            "an instance must begin somewhere: add at least one variant, the first is where it begins",
        ));
    }
    let mut taken = HashSet::new();
    let mut steps = Vec::with_capacity(body.variants.len());
    for variant in &body.variants {
        match step(variant) {
            Ok(step) if taken.insert(step.name.value()) => steps.push(step),
            Ok(step) => mistakes.add(Error::new(
                variant.span(),
                format!(
                    "two steps are named \"{}\": give this one a name of its own with #[step(name = \"...\")]",
                    step.name.value()
                ),
            )),
            Err(mistake) => mistakes.add(mistake),
        }
    }
    mistakes.none_or_err()?;
    Ok(steps)
}

fn step(variant: &Variant) -> Result<Step<'_>> {
    let ident = &variant.ident;
    if !matches!(variant.fields, Fields::Unit) {
        return Err(Error::new(
            variant.fields.span(),
            format!(
                "a step carries no fields: write `{ident}` alone and keep what it needs in the workflow's state"
            ),
        ));
    }
    let name = match given_name(&variant.attrs)? {
        Some(name) => name,
        None => LitStr::new(&snake_case(&ident.unraw().to_string()), ident.span()),
    };
    if name.value().is_empty() {
        return Err(Error::new(
            name.span(),
            format!(
                "a step's name cannot be empty: write one, or remove the attribute to store \"{}\"",
                snake_case(&ident.unraw().to_string())
            ),
        ));
    }
    Ok(Step {
        variant: ident,
        name,
    })
}

/// The name in `#[step(name = "...")]`, where there is one.
pub fn given_name(attributes: &[Attribute]) -> Result<Option<LitStr>> {
    let mut given = None;
    for attribute in attributes.iter().filter(|it| it.path().is_ident("step")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("name") {
                return Err(
                    meta.error("a step has only a name to set: write #[step(name = \"...\")]")
                );
            }
            if given.is_some() {
                return Err(meta.error("a step has one name: remove the others"));
            }
            given = Some(meta.value()?.parse()?);
            Ok(())
        })?;
    }
    Ok(given)
}

#[cfg(test)]
#[path = "step_tests.rs"]
mod tests;
