mod proof;

use proc_macro2::TokenStream;
use quote::quote;

use super::*;

/// The messages for an item, without the generated code.
fn messages(item: TokenStream) -> Vec<String> {
    let file: syn::File = syn::parse2(derive(item)).unwrap();
    let messages = file.items.into_iter().filter_map(|item| match item {
        syn::Item::Macro(call) => Some(call.mac.parse_body::<syn::LitStr>().unwrap().value()),
        _ => None,
    });
    messages.collect()
}

fn one(item: TokenStream) -> String {
    let mut messages = messages(item);
    assert_eq!(messages.len(), 1, "{messages:?}");
    messages.remove(0)
}

/// The message about two variants with these templates and fields.
fn overlap(one: (&str, TokenStream), other: (&str, TokenStream)) -> Option<String> {
    let [(first, first_fields), (second, second_fields)] = [one, other];
    let mut messages = messages(quote! {
        enum Lock {
            #[lock(#first)] First { #first_fields },
            #[lock(#second)] Second { #second_fields },
        }
    });
    assert!(messages.len() < 2, "{messages:?}");
    messages.pop()
}

#[test]
fn the_expansion_is_five_implementations() {
    for item in [
        quote!(
            enum Lock<'a, T: Display, const N: usize>
            where
                T: Copy,
            {
                #[lock("report:<tenant>:<id.get()>:<N>:<T::KIND>")]
                Report { tenant: &'a str, id: T, other: u8 },
                #[lock("invoice:<0>")]
                Invoice(&'a u32, u8),
                #[lock("nightly")]
                Nightly,
            }
        ),
        quote!(
            #[lock("nightly", crate = a::b)]
            pub(crate) struct Nightly;
        ),
        quote!(
            #[lock(crate = a::b)]
            #[lock("<0>")]
            struct Order(Id);
        ),
        quote!(
            #[lock("<r>")]
            struct Raw {
                r#r: i8,
            }
        ),
    ] {
        let expanded = derive(item);
        let file: syn::File = syn::parse2(expanded.clone()).expect("it has no mistake");
        assert_eq!(file.items.len(), 5, "{expanded}");
        assert!(file.items.iter().all(|item| matches!(item, syn::Item::Impl(_))));
        assert!(!expanded.to_string().contains("allow"));
    }
}

#[test]
fn an_item_with_a_mistake_is_still_implemented() {
    let expanded = derive(quote!(
        enum Lock<'a> {
            #[lock("")]
            A(&'a str),
        }
    ))
    .to_string();
    assert!(expanded.contains("compile_error") && expanded.contains("LockName for & Lock < 'a >"));
}

#[test]
fn mistakes_of_the_declaration_are_reported() {
    let example = "write `#[lock(\"report:<id>\")]` above it";
    assert_eq!(
        one(quote!(
            enum L {
                A,
            }
        )),
        format!("`A` has no lock name: {example}")
    );
    assert_eq!(
        one(quote!(
            struct L;
        )),
        format!("the struct has no lock name: {example}")
    );
    assert!(
        one(quote!(
            enum L {}
        ))
        .starts_with("`L` has no variants")
    );
    assert!(one(quote!(union L { a: u8 })).contains("enums and structs only"));
    assert!(
        one(quote!(
            #[lock("x")]
            enum L {
                #[lock("a")]
                A,
            }
        ))
        .starts_with("each variant has")
    );
    assert!(
        one(quote!(
            enum L {
                #[lock("a")]
                #[lock("b")]
                A,
            }
        ))
        .contains("twice")
    );
    assert!(
        one(quote!(
            enum L {
                #[lock("a", crate = b)]
                A,
            }
        ))
        .contains("whole type")
    );
    assert!(
        one(quote!(
            enum L {
                #[lock("a")]
                A(#[lock("b")] u8),
            }
        ))
        .contains("a field has no")
    );
    for attribute in [
        quote!(#[lock]),
        quote!(#[lock(a)]),
        quote!(#[lock = "a"]),
        quote!(#[lock("a"x)]),
    ] {
        let message = one(quote!(enum L { #attribute A }));
        assert!(message.starts_with("`#[lock]` takes the template"), "{message}");
    }
}

#[test]
fn mistakes_of_placeholders_are_reported() {
    let report = |template: &str| {
        one(quote!(
            enum L {
                #[lock(#template)]
                Report { tenant: u8, id: u8 },
            }
        ))
    };
    assert_eq!(
        report("<idd>"),
        "`Report` has no field `idd`: did you mean `<id>`?"
    );
    assert_eq!(
        report("<number>"),
        "`Report` has no field `number`: it has `tenant` and `id`"
    );
    assert_eq!(
        report("<0>"),
        "`Report` has no field `0`: it has `tenant` and `id`"
    );
    assert_eq!(
        report("<self.id>"),
        "`<self.id>` must begin with a field of `Report`: write `<id>`"
    );
    assert!(report("<N>").starts_with("`Report` has no field `N`"));
    assert!(report("<tenant><id>").contains("no text between"));
    assert!(report("<tenant>%<id>").contains("begin the text with another separator"));
    assert_eq!(
        report("{id}"),
        "`{id}` is not a placeholder, so all values would share one lock: write `<id>`"
    );
    assert!(report("<id + 1>").ends_with("store the value in a field"));
    assert_eq!(
        one(quote!(
            #[lock("a:{0}")]
            struct L(u8);
        )),
        "`{0}` is not a placeholder, so all values would share one lock: write `<0>`"
    );
    assert_eq!(
        one(quote!(
            #[lock("<1>")]
            struct L(u8);
        )),
        "the struct has no field `1`: it has `0`"
    );
    assert!(
        one(quote!(
            #[lock("<id>")]
            struct L;
        ))
        .contains("add the field, or remove `<id>`")
    );
}

#[test]
fn templates_that_overlap_are_reported_with_a_name() {
    let text = || quote!(id: String, kind: String);
    let shows = |one: &str, other: &str, name: &str| {
        let message = overlap((one, text()), (other, text())).expect("the two overlap");
        let expected = format!("`{one}` and `{other}` can both give `{name}`: ");
        assert!(message.starts_with(&expected), "{message}");
    };
    shows("report:<id>", "report:<kind>:<id>", "report:a:b");
    shows("user:<id>:lock", "user:<id>:<kind>:lock", "user:a:b:lock");
    shows("<id>", "nightly", "nightly");
    shows("<id>a", "<id>b<kind>", "aba");
    let number = overlap(("a:<id>", quote!(id: u8)), ("<id>", text())).unwrap();
    assert!(number.contains("can both give `a:1`"), "{number}");
    assert!(overlap(("report:<id>", text()), ("invoice:<id>", text())).is_none());
    assert!(overlap(("r:<id>:<kind>:a", text()), ("r:<id>:<kind>:b", text())).is_none());
    assert!(overlap(("<id>/<kind>", text()), ("<id>", quote!(id: u64))).is_none());
    assert!(
        overlap(("same:<id>", text()), ("same:<id>", text()))
            .unwrap()
            .starts_with("two variants have the template `same:<id>`")
    );
}

#[test]
fn integers_are_told_apart_from_text() {
    let number = || quote!(id: u32);
    let text = || quote!(id: &'a String);
    assert!(overlap(("job:<id>", number()), ("job:all", quote!())).is_none());
    assert!(overlap(("job:<id>", text()), ("job:all", quote!())).is_some());
    assert!(overlap(("job:<id>", number()), ("job:07", quote!())).is_none());
    assert!(overlap(("job:<id>", number()), ("job:-7", quote!())).is_none());
    assert!(overlap(("job:<id>", quote!(id: &&'a i32)), ("job:-7", quote!())).is_some());
    assert!(overlap(("job:<id>", quote!(id: i32)), ("job:-0", quote!())).is_none());
    // A part of a field can be anything.
    assert!(overlap(("job:<id.0>", number()), ("job:all", quote!())).is_some());
    assert!(overlap(("job:<id>", quote!(id: std::u32)), ("job:all", quote!())).is_some());
    // The sign is escaped where it is the separator, and so are digits.
    let pair = || quote!(id: i8, second: String);
    assert!(overlap(("<id>-<second>", pair()), ("%2D5-x", quote!())).is_some());
    assert!(overlap(("<id>-<second>", pair()), ("-5-x", quote!())).is_none());
    assert!(overlap(("<id>5<second>", pair()), ("1%355x", quote!())).is_some());
}

#[test]
fn a_witness_is_a_name_that_both_types_have() {
    let message = overlap(("a:<id>", quote!(id: u8)), ("a:300", quote!())).unwrap();
    assert!(message.contains("cannot prove"), "{message}");
    let message = overlap(("a:<id>", quote!(id: u16)), ("a:300", quote!())).unwrap();
    assert!(message.contains("can both give `a:300`"), "{message}");
    let message = overlap(("<id>:<id>", quote!(id: String)), ("x:y", quote!())).unwrap();
    assert!(message.contains("cannot prove"), "{message}");
    let message = overlap(("<id>:<id>", quote!(id: String)), ("x:x", quote!())).unwrap();
    assert!(message.contains("can both give `x:x`"), "{message}");
}

#[test]
fn near_misses_are_named_beside_another_mistake() {
    let enumeration = |last: TokenStream| {
        messages(quote! {
            enum Lock {
                #[lock("report:<0>")] Report(String),
                #[lock("reports:<0>")] Reports(String),
                #last
            }
        })
    };
    assert_eq!(enumeration(quote!()), [""; 0]);
    let messages = enumeration(quote!(
        #[lock("report:all")]
        All,
        #[lock("report:none")]
        None,
    ));
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(!messages[1].contains("note:"), "{messages:?}");
    assert!(
        messages[0].ends_with(
            "\nnote: `report:` and `reports:` differ in one character: if they mean the same, one is misspelt"
        ),
        "{messages:?}"
    );
}
