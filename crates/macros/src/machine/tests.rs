//! The expansion of `#[machine]`. The errors that it reports are tested in `tests/mistakes.rs`.

use quote::quote;

use super::expand;

const STEP: &str = "async fn start() -> Outcome<Self> { done(()) }";

fn expanded(options: &str, source: &str) -> String {
    expand(options.parse().unwrap(), source.parse().unwrap())
        .unwrap()
        .to_string()
}

#[test]
fn functions_stay_and_the_enum_and_the_trait_are_added() {
    let source = r#"
        impl Checkout {
            /// Asks for the money.
            async fn start(&self, ctx: &mut Context<Self>) -> Outcome<Self> { ctx.wait_for(PAID).then(At::AskAgain) }
            #[step(name = "ask-again")]
            async fn ask_again() -> Outcome<Self> { done(1) }
            async fn on_error(fault: &Fault, ctx: &mut Context<Self>) -> Outcome<Self> { stop(fault) }
            fn retry(&self) -> Retry { Retry::never() }
        }
    "#;
    let expected = quote! {
        #[doc = "The steps of `Checkout`."]
        #[derive(
            ::abide::Step,
            ::core::clone::Clone,
            ::core::marker::Copy,
            ::core::fmt::Debug,
            ::core::cmp::PartialEq,
            ::core::cmp::Eq
        )]
        #[allow(unreachable_pub)]
        pub enum At {
            #[doc = " Asks for the money."]
            #[step(name = "start")]
            Start,
            #[doc = "The step `ask-again`."]
            #[step(name = "ask-again")]
            AskAgain,
        }

        #[allow(clippy::unused_async, clippy::unused_self, clippy::needless_pass_by_ref_mut)]
        impl Checkout {
            #[doc = " Asks for the money."]
            async fn start(&self, ctx: &mut Context<Self>) -> Outcome<Self> { ctx.wait_for(PAID).then(At::AskAgain) }
            async fn ask_again() -> Outcome<Self> { done(1) }
            async fn on_error(fault: &Fault, ctx: &mut Context<Self>) -> Outcome<Self> { stop(fault) }
            fn retry(&self) -> Retry { Retry::never() }
        }

        impl ::abide::Machine for Checkout {
            const NAME: &'static str = "checkout";
            type Step = At;
            type State = ();
            type Output = u32;

            async fn step(&self, at: At, ctx: &mut ::abide::Context<Self>) -> ::abide::Outcome<Self> {
                match at {
                    At::Start => { Self::start(self, ctx).await }
                    At::AskAgain => { let _ = ctx; Self::ask_again().await }
                }
            }

            fn messages() -> ::abide::machine::Messages {
                ::abide::machine::Messages::new().signal(PAID).signal(LATE).update(MOVE)
            }

            async fn on_error(
                &self,
                fault: &::abide::machine::Fault,
                ctx: &mut ::abide::Context<Self>
            ) -> ::abide::Outcome<Self> {
                Self::on_error(fault, ctx).await
            }

            fn retry(&self) -> ::abide::machine::Retry { Self::retry(self,) }
        }
    };
    let options = "steps = At, output = u32, signals(PAID, LATE), updates(MOVE)";
    assert_eq!(expanded(options, source), expected.to_string());
}

#[test]
fn what_is_set_becomes_the_constants_and_types() {
    let options = r#"steps = At, state = Vec<Order>, name = "orders", version = 2, queue = "slow", history = false, max_deaths = 3"#;
    let text = expanded(options, &format!("impl OrderLine {{ {STEP} }}"));
    let expected = quote! {
        const NAME: &'static str = "orders";
        const VERSION: u32 = 2;
        const QUEUE: &'static str = "slow";
        const HISTORY: bool = false;
        const MAX_DEATHS: u32 = 3;
        type Step = At;
        type State = Vec<Order>;
        type Output = ();
    };
    assert!(text.contains(&expected.to_string()), "{text}");
}

#[test]
fn a_machine_is_named_after_its_type() {
    for (machine, name) in [
        ("TrialPeriod", "trial-period"),
        ("orders::Checkout", "checkout"),
        ("Count<B>", "count"),
    ] {
        let text = expanded(
            "steps = At",
            &format!("impl<B: Bank> {machine} {{ {STEP} }}"),
        );
        let constant = format!(r#"const NAME : & 'static str = "{name}" ;"#);
        assert!(text.contains(&constant), "{text}");
    }
}

#[test]
fn generics_of_the_type_are_kept() {
    let text = expanded(
        "steps = At",
        &format!("impl<B> Checkout<B> where B: Bank {{ {STEP} }}"),
    );
    let head = quote!(impl<B> ::abide::Machine for Checkout<B> where B: Bank);
    assert!(text.contains(&head.to_string()), "{text}");
    assert!(
        text.contains(r#"# [doc = "The steps of `Checkout<B>`."]"#),
        "{text}"
    );
}

#[test]
fn a_function_that_is_left_out_takes_its_step_with_it() {
    let source = "impl Checkout {
        #[cfg(unix)] async fn start() -> Outcome<Self> { done(()) }
        #[cfg(not(unix))] async fn start() -> Outcome<Self> { done(()) }
        #[cfg(unix)] fn retry() -> Retry { Retry::never() }
    }";
    let text = expanded("steps = At", source);
    for left_out in [
        quote!(
            #[cfg(unix)]
            #[doc = "The step `start`."]
            #[step(name = "start")]
            Start
        ),
        quote!(#[cfg(not(unix))] #[doc = "The step `start`."]),
        quote!(#[cfg(unix)] At::Start => { let _ = ctx; Self::start().await }),
        quote!(
            #[cfg(unix)]
            fn retry(&self) -> ::abide::machine::Retry {
                Self::retry()
            }
        ),
    ] {
        assert!(text.contains(&left_out.to_string()), "{left_out} in {text}");
    }
}

#[test]
fn a_raw_identifier_is_stored_without_its_mark() {
    let text = expanded(
        "steps = At",
        "impl Checkout { async fn r#try() -> Outcome<Self> { done(()) } }",
    );
    let (variant, arm) = (r#"# [step (name = "try")] Try"#, "Self :: r#try () . await");
    assert!(text.contains(variant) && text.contains(arm), "{text}");
}

#[test]
fn a_step_may_name_lifetimes() {
    let text = expanded(
        "steps = At",
        "impl Checkout { async fn ship<'c>(ctx: &'c mut Context<Self>) -> Outcome<Self> { done(()) } }",
    );
    assert!(text.contains("Self :: ship (ctx) . await"), "{text}");
}

#[test]
fn messages_may_be_a_function() {
    let messages = "fn messages() -> Messages { Messages::any() }";
    let text = expanded(
        "steps = At",
        &format!("impl Checkout {{ {STEP} {messages} }}"),
    );
    let expected = quote!(
        fn messages() -> ::abide::machine::Messages {
            Self::messages()
        }
    );
    assert!(text.contains(&expected.to_string()), "{text}");
}
