//! The expansion of `#[derive(Step)]`, and the errors that it reports.

use quote::quote;

use super::expand;

fn expanded(source: &str) -> String {
    expand(&syn::parse_str(source).unwrap())
        .unwrap()
        .to_string()
}

fn mistakes(source: &str) -> Vec<String> {
    let error = expand(&syn::parse_str(source).unwrap()).unwrap_err();
    error
        .into_iter()
        .map(|mistake| mistake.to_string())
        .collect()
}

#[test]
fn an_enum_becomes_its_steps_in_the_order_written() {
    let expected = quote! {
        #[automatically_derived]
        impl ::abide::Step for At {
            const ALL: &'static [Self] = &[Self::Start, Self::AskAgain, Self::Ship];
            fn name(&self) -> &'static str {
                match self {
                    Self::Start => "start",
                    Self::AskAgain => "ask_again",
                    Self::Ship => "old-name",
                }
            }
            fn parse(name: &str) -> ::core::option::Option<Self> {
                match name {
                    "start" => ::core::option::Option::Some(Self::Start),
                    "ask_again" => ::core::option::Option::Some(Self::AskAgain),
                    "old-name" => ::core::option::Option::Some(Self::Ship),
                    _ => ::core::option::Option::None,
                }
            }
        }
    };
    let source = r#"enum At { Start, AskAgain, #[step(name = "old-name")] Ship }"#;
    assert_eq!(expanded(source), expected.to_string());
}

#[test]
fn a_raw_identifier_is_stored_without_its_mark() {
    assert!(expanded("enum At { r#try }").contains(r#"Self :: r#try => "try""#));
}

#[test]
fn a_discriminant_does_not_matter() {
    assert!(expanded("enum At { Start = 7 }").contains(r#"Self :: Start => "start""#));
}

#[test]
fn only_an_enum_has_steps() {
    for source in ["struct At;", "union At { a: u8, b: u8 }"] {
        assert_eq!(
            mistakes(source),
            [
                "steps are the variants of an enum: write `enum At { Start, Ship }`, one variant for each step"
            ]
        );
    }
}

#[test]
fn an_enum_without_variants_is_refused() {
    assert_eq!(
        mistakes("enum At {}"),
        [
            "an instance must begin somewhere: add at least one variant, the first is where it begins"
        ]
    );
}

#[test]
fn a_variant_with_fields_is_refused() {
    for source in [
        "enum At { Ship(u8) }",
        "enum At { Ship { to: u8 } }",
        "enum At { Ship() }",
    ] {
        assert_eq!(
            mistakes(source),
            [
                "a step carries no fields: write `Ship` alone and keep what it needs in the workflow's state"
            ]
        );
    }
}

#[test]
fn two_steps_with_one_name_are_refused() {
    for source in [
        "enum At { HTTPCall, HttpCall }",
        r#"enum At { HttpCall, #[step(name = "http_call")] Fetch }"#,
    ] {
        assert_eq!(
            mistakes(source),
            [
                "two steps are named \"http_call\": give this one a name of its own with #[step(name = \"...\")]"
            ]
        );
    }
}

#[test]
fn an_empty_name_is_refused() {
    assert_eq!(
        mistakes(r#"enum At { #[step(name = "")] AskAgain }"#),
        [
            "a step's name cannot be empty: write one, or remove the attribute to store \"ask_again\""
        ]
    );
}

#[test]
fn a_generic_enum_is_refused() {
    for source in [
        "enum At<T> { Start }",
        "enum At<'a> { Start }",
        "enum At<const N: usize> { Start }",
    ] {
        assert_eq!(
            mistakes(source),
            [
                "steps cannot be generic: remove the parameters and keep what varies in the workflow's state"
            ]
        );
    }
}

#[test]
fn only_a_name_can_be_set_and_only_once() {
    assert_eq!(
        mistakes(r#"enum At { #[step(rename = "a")] Start }"#),
        ["a step has only a name to set: write #[step(name = \"...\")]"]
    );
    for source in [
        r#"enum At { #[step(name = "a", name = "b")] Start }"#,
        r#"enum At { #[step(name = "a")] #[step(name = "b")] Start }"#,
    ] {
        assert_eq!(mistakes(source), ["a step has one name: remove the others"]);
    }
}

#[test]
fn a_name_belongs_to_a_variant() {
    assert_eq!(
        mistakes(r#"#[step(name = "a")] enum At { Start }"#),
        ["#[step(...)] names one step: move it onto a variant"]
    );
}

#[test]
fn every_mistake_is_reported_at_once() {
    assert_eq!(
        mistakes(r#"enum At<T> { Start(T), #[step(name = "")] Ship }"#).len(),
        3
    );
}
