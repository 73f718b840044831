use std::time::Duration;

use super::*;
use crate::options::Once;
use crate::protocol::Id;

fn handle(ids: &[&str], title: usize) -> LeaseHandle {
    LeaseHandle::new(Detached {
        home: "app.locks".to_owned(),
        ids: ids.iter().map(|id| Arc::from(*id)).collect(),
        title,
        owner: "session#1".to_owned(),
        tokens: vec![FencingToken::from(1_763_764_800_123_000); ids.len()],
        ttl: Duration::from_secs(1800),
        min_hold: Duration::from_secs(2),
        once: Some(Once::PerPeriod(Duration::from_secs(60))),
        secret: secret(),
    })
}

fn all() -> [LeaseHandle; 3] {
    [
        handle(&["document:42"], 0),
        handle(&["account:4", "account:7", "account:Ä"], 2),
        handle(&["export\u{1f}12"], 0),
    ]
}

#[test]
fn a_handle_is_read_as_it_was_written() {
    let [_, set, permit] = all();
    assert_eq!((set.name(), set.permit()), ("account:Ä", None));
    assert_eq!((permit.name(), permit.permit()), ("export", Some(12)));
    assert_eq!(permit.fencing_token(), FencingToken::NONE);
    for handle in all() {
        let read: LeaseHandle = handle.text().parse().unwrap();
        assert_eq!(read, handle);
        let line: LeaseHandle = format!(" {}\r\n", handle.text()).parse().unwrap();
        assert_eq!(line, handle, "white space around it is no part of it");
        assert_eq!(read.lock_id(), handle.lock_id());
        assert_eq!(read.permit(), handle.permit());
        assert_eq!(read.fencing_token(), handle.fencing_token());
        assert_eq!(read.lease().ttl, Duration::from_secs(1800));
        assert_eq!(read.owner(), "session#1");
        let json = serde_json::to_string(&handle).unwrap();
        assert_eq!(json, format!("\"{}\"", handle.text()));
        assert_eq!(serde_json::from_str::<LeaseHandle>(&json).unwrap(), handle);
        let id = Id::parse(handle.lock_id()).unwrap();
        assert!(id.is_detached());
        assert_eq!(id.is_of_detached_set(), handle.lease().ids.len() > 1);
    }
}

/// Whoever changes a character gets no handle, or that of a lease which does not exist.
#[test]
fn every_changed_character_makes_another_lease() {
    let letters = ('a'..='z').chain('A'..='Z').chain('0'..='9');
    let alphabet: Vec<char> = letters.chain("-_. =+/é".chars()).collect();
    for handle in all() {
        let text: Vec<char> = handle.text().chars().collect();
        let mut readable = 0;
        for index in 0..text.len() {
            for changed in alphabet.iter().filter(|other| **other != text[index]) {
                let mut other = text.clone();
                other[index] = *changed;
                let other: String = other.into_iter().collect();
                match other.parse::<LeaseHandle>() {
                    Ok(other) => {
                        readable += 1;
                        assert_ne!(other.lock_id(), handle.lock_id(), "{index} {changed}");
                    }
                    Err(error) => assert!(!error.to_string().contains(&other), "{error}"),
                }
            }
        }
        assert!(readable > 100, "some changes leave a handle that can be read");
    }
}

#[test]
fn no_two_handles_of_a_lease_are_alike() {
    assert_ne!(handle(&["a"], 0), handle(&["a"], 0));
    let secrets: std::collections::HashSet<_> = (0..1000).map(|_| secret()).collect();
    assert_eq!(secrets.len(), 1000);
    let (all, any) = secrets.iter().fold((u128::MAX, 0), |(all, any), [high, low]| {
        let bits = u128::from(*high) << 64 | u128::from(*low);
        (all & bits, any | bits)
    });
    assert_eq!((all, any), (0, u128::MAX), "no bit is the same in all");
}

#[test]
fn the_text_is_in_no_debug_form() {
    for handle in all() {
        let (debug, secret) = (format!("{handle:?}"), &handle.text()[5..]);
        assert!(!debug.contains(secret) && !debug.contains("mlh1"), "{debug}");
        assert!(debug.contains("session#1"), "{debug}");
    }
}

fn refusal(content: &str) -> String {
    let error = encoded(content).parse::<LeaseHandle>().unwrap_err();
    assert!(matches!(error, LockError::InvalidHandle { .. }), "{error}");
    error.to_string()
}

#[test]
fn what_is_no_handle_is_refused_with_its_reason() {
    let good = r#"{"c":"a.b","n":["x"],"i":0,"o":"me","t":[1],"l":60000,"m":0,"s":[1,2]}"#;
    assert!(encoded(good).parse::<LeaseHandle>().is_ok());
    for (from, to, reason) in [
        (r#""n":["x"]"#, r#""n":[]"#, "names"),
        (r#""n":["x"]"#, r#""n":["x","y"]"#, "names"),
        (
            r#""n":["x"],"i":0,"o":"me","t":[1]"#,
            r#""n":["x","y\u001f1"],"i":0,"o":"me","t":[1,1]"#,
            "names",
        ),
        (r#""n":["x"]"#, r#""n":[" x"]"#, "white space"),
        (r#""n":["x"]"#, r#""n":["x\u001f01"]"#, "control"),
        (r#""n":["x"]"#, r#""n":["x\u001f"]"#, "control"),
        (r#""n":["x"]"#, r#""n":["x\u001f\u001f5"]"#, "control"),
        (r#""n":["x"]"#, r#""n":["x\u001f1000"]"#, "names"),
        (r#""i":0"#, r#""i":1"#, "names"),
        (r#""o":"me""#, r#""o":"done:me""#, "owner"),
        (r#""o":"me""#, r#""o":"""#, "owner"),
        (r#""c":"a.b""#, r#""c":"a\nb""#, "collection"),
        (r#""t":[1]"#, r#""t":[]"#, "names"),
        (r#""l":60000"#, r#""l":99"#, "100 ms to 7 days"),
        (r#""l":60000"#, r#""l":604800001"#, "100 ms to 7 days"),
        (r#""m":0"#, r#""m":9999999999999999"#, "too long"),
        (r#""m":0"#, r#""m":0,"d":{"per":9999999999999999}"#, "too long"),
        (r#""m":0"#, r#""m":0,"z":1"#, "does not describe"),
        ("}", "", "does not describe"),
    ] {
        let said = refusal(&good.replace(from, to));
        assert!(said.contains(reason), "{to}: {said}");
    }
    let long = format!("mlh1.{}", "A".repeat(2 * 1024 * 1024));
    for text in [&*long, "", "mlh1", "mlh2.e30", "x", "mlh1.e30 ", "mlh1.e3"] {
        let error = text.parse::<LeaseHandle>().unwrap_err();
        let is_refused = matches!(error, LockError::InvalidHandle { .. });
        assert!(is_refused, "{text:?}: {error}");
    }
    let other_set = good
        .replace(r#""n":["x"]"#, r#""n":["y","x"]"#)
        .replace(r#""t":[1]"#, r#""t":[1,1]"#);
    assert!(refusal(&other_set).contains("names"), "they are not in order");
}
