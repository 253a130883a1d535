//! The expansion of `#[derive(Message)]`.
//!
//! A derive cannot add derives to the type that it is on, and serde's and schemars' find their crates by a path that is
//! written on the type. So they are put on a copy of it, which names both crates through `abide`, and the type's
//! own implementations hand on to those of the copy. To serde the copy is a definition of the type (`remote`).

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Field, Fields, LitStr, Member, Result, Visibility};

use crate::mistakes::Mistakes;

/// The implementations for one type, or every mistake in it at once.
pub fn expand(input: &DeriveInput) -> Result<TokenStream> {
    check(input)?;
    let name = &input.ident;
    let copied = copy(input);
    let copy = &copied.ident;
    let default = default_of(input, copy);
    let remote = LitStr::new(&name.to_string(), name.span());
    let renamed = SerdeAttributes::read(&input.attrs).names(name);
    Ok(quote! {
        const _: () = {
            #[derive(
                ::abide::__private::serde::Serialize,
                ::abide::__private::serde::Deserialize,
                ::abide::schemars::JsonSchema
            )]
            #[serde(crate = "::abide::__private::serde", remote = #remote)]
            #renamed
            #[schemars(crate = "::abide::schemars")]
            #[allow(dead_code, deprecated, non_camel_case_types, clippy::all)]
            #copied

            #default

            #[automatically_derived]
            impl ::abide::__private::serde::Serialize for #name {
                fn serialize<S>(&self, serializer: S) -> ::core::result::Result<S::Ok, S::Error>
                where
                    S: ::abide::__private::serde::Serializer,
                {
                    #copy::serialize(self, serializer)
                }
            }

            #[automatically_derived]
            impl<'de> ::abide::__private::serde::Deserialize<'de> for #name {
                fn deserialize<D>(deserializer: D) -> ::core::result::Result<Self, D::Error>
                where
                    D: ::abide::__private::serde::Deserializer<'de>,
                {
                    #copy::deserialize(deserializer)
                }
            }

            #[automatically_derived]
            impl ::abide::schemars::JsonSchema for #name {
                fn inline_schema() -> bool {
                    <#copy as ::abide::schemars::JsonSchema>::inline_schema()
                }

                fn schema_name() -> ::std::borrow::Cow<'static, str> {
                    <#copy as ::abide::schemars::JsonSchema>::schema_name()
                }

                fn schema_id() -> ::std::borrow::Cow<'static, str> {
                    <#copy as ::abide::schemars::JsonSchema>::schema_id()
                }

                fn json_schema(generator: &mut ::abide::schemars::SchemaGenerator) -> ::abide::schemars::Schema {
                    <#copy as ::abide::schemars::JsonSchema>::json_schema(generator)
                }
            }
        };
    })
}

fn check(input: &DeriveInput) -> Result<()> {
    let mut mistakes = Mistakes::default();
    if let Data::Union(body) = &input.data {
        mistakes.add(Error::new(
            body.union_token.span(),
            "a message is a struct or an enum: a union cannot be written as JSON",
        ));
    }
    if !input.generics.params.is_empty() || input.generics.where_clause.is_some() {
        mistakes.add(Error::new(
            input.generics.span(),
            "a message cannot be generic: remove the parameters, or derive `Serialize` and `Deserialize` of serde and `JsonSchema` \
             of `abide::schemars` instead",
        ));
    }
    mistakes.none_or_err()
}

/// The type under another name, with what serde, schemars and readers of its schema go by.
fn copy(input: &DeriveInput) -> DeriveInput {
    let mut copy = input.clone();
    copy.ident = format_ident!(
        "__{}AsMessage",
        input.ident.unraw(),
        span = input.ident.span()
    );
    copy.vis = Visibility::Inherited;
    keep_known(&mut copy.attrs);
    let own = |field: &mut Field| {
        keep_known(&mut field.attrs);
        let written = named(field.ty.to_token_stream(), &input.ident);
        field.ty = syn::Type::Verbatim(written);
    };
    match &mut copy.data {
        Data::Struct(body) => each(&mut body.fields, own),
        Data::Enum(body) => {
            for variant in &mut body.variants {
                keep_known(&mut variant.attrs);
                each(&mut variant.fields, own);
            }
        }
        // Refused above.
        Data::Union(_) => {}
    }
    copy
}

fn each(fields: &mut Fields, change: impl FnMut(&mut Field)) {
    fields.iter_mut().for_each(change);
}

fn keep_known(attributes: &mut Vec<Attribute>) {
    let known = ["serde", "schemars", "doc"];
    attributes.retain(|attribute| known.iter().any(|name| attribute.path().is_ident(name)));
}

/// Replaces `Self` in the tokens of a type by the name of the type that contains it: in the copy, `Self` is another
/// type.
fn named(tokens: TokenStream, name: &Ident) -> TokenStream {
    let named_one = |token| match token {
        TokenTree::Ident(ident) if ident == "Self" => {
            TokenTree::Ident(Ident::new(&name.to_string(), ident.span()))
        }
        TokenTree::Group(group) => {
            let mut inside = Group::new(group.delimiter(), named(group.stream(), name));
            inside.set_span(group.span());
            TokenTree::Group(inside)
        }
        other => other,
    };
    tokens.into_iter().map(named_one).collect()
}

/// The default of the copy, which the schema shows, where fields that are missing are taken from the default of the type.
fn default_of(input: &DeriveInput, copy: &Ident) -> Option<TokenStream> {
    let Data::Struct(body) = &input.data else {
        return None;
    };
    if !SerdeAttributes::read(&input.attrs).has_default {
        return None;
    }
    let name = &input.ident;
    let members: Vec<Member> = body.fields.members().collect();
    let values: Vec<Ident> = (0..members.len())
        .map(|at| format_ident!("value{at}"))
        .collect();
    Some(quote! {
        #[automatically_derived]
        impl ::core::default::Default for #copy {
            fn default() -> Self {
                let #name { #(#members: #values),* } = ::core::default::Default::default();
                Self { #(#members: #values),* }
            }
        }
    })
}

/// The attributes of a type for serde and schemars.
#[derive(Default)]
struct SerdeAttributes {
    /// The name that its author gives it for serde, if it is one name.
    renamed: Option<Option<LitStr>>,
    /// `true` if missing fields are taken from the default of the type.
    has_default: bool,
    /// `true` if its author gives its schema a name.
    has_schema_name: bool,
}

impl SerdeAttributes {
    fn read(attributes: &[Attribute]) -> Self {
        let mut found = Self::default();
        for attribute in attributes {
            let is_schemas = attribute.path().is_ident("schemars");
            if !is_schemas && !attribute.path().is_ident("serde") {
                continue;
            }
            // serde reports attributes that cannot be read, at their position.
            let _ = attribute.parse_nested_meta(|meta| {
                let mut value = None;
                let is_bare =
                    !meta.input.peek(syn::Token![=]) && !meta.input.peek(syn::token::Paren);
                if meta.input.peek(syn::token::Paren) {
                    meta.parse_nested_meta(|inner| inner.value()?.parse::<LitStr>().map(drop))?;
                } else if !is_bare {
                    value = literal(meta.value()?.parse()?);
                }
                found.has_default |= meta.path.is_ident("default") && is_bare;
                if meta.path.is_ident("rename") {
                    found.has_schema_name |= is_schemas;
                    found.renamed = Some(value);
                }
                Ok(())
            });
        }
        found
    }

    /// The attributes that name the copy: with the name that its author gives, or that of the type. For a definition of
    /// another type, schemars uses the name of that type, unless an attribute gives it a name.
    fn names(&self, name: &Ident) -> TokenStream {
        let own = LitStr::new(&name.unraw().to_string(), name.span());
        match &self.renamed {
            _ if self.has_schema_name => TokenStream::new(),
            None => quote! { #[serde(rename = #own)] },
            Some(given) => {
                let given = given.as_ref().unwrap_or(&own);
                quote! { #[schemars(rename = #given)] }
            }
        }
    }
}

fn literal(value: syn::Expr) -> Option<LitStr> {
    match value {
        syn::Expr::Lit(syn::ExprLit {
            lit: syn::Lit::Str(text),
            ..
        }) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
