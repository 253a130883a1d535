//! The attributes that `#[derive(Message)]` puts on the copy of a type, and the errors that it reports.

use super::expand;

fn expanded(source: &str) -> String {
    let expanded = expand(&syn::parse_str(source).unwrap()).unwrap();
    expanded.to_string()
}

fn mistakes(source: &str) -> Vec<String> {
    let error = expand(&syn::parse_str(source).unwrap()).unwrap_err();
    error
        .into_iter()
        .map(|mistake| mistake.to_string())
        .collect()
}

#[test]
fn a_copy_keeps_what_serde_and_readers_go_by_and_nothing_else() {
    let source = r#"
        /// A payment.
        #[derive(Debug)]
        #[serde(rename_all = "camelCase")]
        #[non_exhaustive]
        pub struct Paid {
            /// In cents.
            #[serde(default)]
            #[other]
            pub amount: i64,
        }"#;
    let text = expanded(source);
    for kept in [
        r#"remote = "Paid""#,
        r#"rename = "Paid""#,
        r#"rename_all = "camelCase""#,
        "In cents",
        "# [serde (default)]",
        "struct __PaidAsMessage",
    ] {
        assert!(text.contains(kept), "{kept} is not in {text}");
    }
    for dropped in ["non_exhaustive", "other", "Debug", "pub struct"] {
        assert!(!text.contains(dropped), "{dropped} is in {text}");
    }
}

#[test]
fn a_name_that_is_given_is_kept() {
    for given in [
        r#"#[serde(rename = "payment")]"#,
        r#"#[serde(deny_unknown_fields, rename(serialize = "p", deserialize = "p"))]"#,
        r#"#[schemars(title = "x", rename = "payment")]"#,
    ] {
        let text = expanded(&format!("{given} struct Paid;"));
        assert!(!text.contains(r#"serde (rename = "Paid")"#), "{text}");
    }
    let text = expanded(r#"#[serde(rename = "payment")] struct Paid;"#);
    assert!(text.contains(r#"schemars (rename = "payment")"#), "{text}");
}

#[test]
fn a_default_of_the_type_is_that_of_the_copy_and_a_function_is_left_to_serde() {
    let text = expanded("#[serde(default)] struct Paid { amount: i64 }");
    assert!(text.contains("Default for __PaidAsMessage"), "{text}");
    let text = expanded(r#"#[serde(default = "standard")] struct Paid { amount: i64 }"#);
    assert!(!text.contains("Default for"), "{text}");
}

#[test]
fn a_type_that_holds_itself_does_so_by_name() {
    let text = expanded("struct Tree { leaves: Vec<Box<Self>>, other: (u8, [Option<Self>; 2]) }");
    assert!(text.contains("leaves : Vec < Box < Tree > >"), "{text}");
    assert!(text.contains("(u8 , [Option < Tree > ; 2])"), "{text}");
}

#[test]
fn only_owned_structs_and_enums_are_messages() {
    let generic = "a message cannot be generic: remove the parameters, or derive `Serialize` and `Deserialize` of serde and \
                   `JsonSchema` of `abide::schemars` instead";
    assert_eq!(mistakes("struct Paid<T>(T);"), [generic]);
    assert_eq!(mistakes("struct Paid<'a>(&'a str);"), [generic]);
    assert_eq!(
        mistakes("union Paid { a: u8, b: i8 }"),
        ["a message is a struct or an enum: a union cannot be written as JSON"]
    );
}
