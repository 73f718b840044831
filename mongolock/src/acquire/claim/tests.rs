use std::time::Duration;

use super::*;
use crate::name::RenderedName;
use crate::once::Once;
use crate::options::{OnBusy, Options};
use crate::simulation::errors::{OUT_OF_TIME, STEPPED_DOWN, not_confirmed};
use crate::store::driver_error;
use crate::timing::{ACQUIRE_LIMIT_MIN, DEAD_CONNECTION, SLOW_REPLY};

fn blocked() -> LockError {
    driver_error::blocked("n", mongodb::error::Error::custom("blocked"))
}

/// Near the deadline of its call a request has too little time at the server to show that a document is blocked for long, or
/// that no majority confirms its write.
#[tokio::test]
async fn a_request_with_a_short_limit_is_out_of_time_and_not_failed() {
    let provider = crate::LockProvider::in_memory();
    let (engine, name, options) = (provider.engine(), RenderedName::new("n"), Arc::default());
    let call = Call::new(engine, &name, &options, false, OnBusy::Wait);
    let mut claim = Claim::new(
        &call,
        call.first_class(),
        Target::Lock,
        Few::one(engine.queues.join(name.text())),
    );
    let mut outcome = |error, limit| {
        claim.outcome(Reply {
            sent: Instant::now(),
            limit,
            result: Err(error),
        })
    };
    for error in [blocked(), not_confirmed(OUT_OF_TIME).into()] {
        let ended = outcome(error.clone(), ACQUIRE_LIMIT_MIN);
        assert!(matches!(ended, Outcome::OutOfTime(_)), "{error}");
        assert!(matches!(outcome(error, SLOW_REPLY), Outcome::Failed(_)));
    }
    // A step-down is no lack of time.
    let ended = outcome(not_confirmed(STEPPED_DOWN).into(), ACQUIRE_LIMIT_MIN);
    assert!(matches!(ended, Outcome::Failed(_)));
}

#[tokio::test]
async fn a_set_has_three_requests_at_most() {
    let provider = crate::LockProvider::in_memory();
    let engine = provider.engine();
    let entries = ["a", "b"].map(|name| engine.queues.join(&Arc::from(name)));
    let target = Target::Set {
        first: 0,
        awaited: None,
    };
    let (name, options) = (RenderedName::new("a"), Arc::default());
    let call = Call::new(engine, &name, &options, false, OnBusy::Wait);
    let mut claim = Claim::new(&call, call.first_class(), target, Few::from(entries.to_vec()));
    for _ in 0..crate::acquire::asking::MOST_REQUESTS {
        assert!(claim.asking.may_repeat());
        let permit = entries[0].request_permit().await;
        let admission = engine.store.admissions().admit(AdmissionClass::Copy, None).await;
        claim.send(permit, admission);
    }
    assert!(!claim.asking.may_repeat());
}

/// A reply to another copy may still come, and another request may be sent for a lock at any time.
#[tokio::test(start_paused = true)]
async fn a_claim_without_replies_ends_only_if_it_may_send_no_other_request() {
    let provider = crate::simulation::silent_provider();
    let engine = provider.engine();
    let (name, options) = (RenderedName::new("a"), Arc::default());
    let call = || Call::new(engine, &name, &options, false, OnBusy::Wait);
    let entries = ["a", "b"].map(|name| engine.queues.join(&Arc::from(name)));
    let send = async |claim: &mut Claim, class| {
        let permit = entries[0].request_permit().await;
        claim.send(permit, engine.store.admissions().admit(class, None).await);
    };
    let first = call().first_class();
    let mut of_lock = Claim::new(&call(), first, Target::Lock, Few::one(Arc::clone(&entries[0])));
    send(&mut of_lock, first).await;
    let ended = timeout(DEAD_CONNECTION * 2, of_lock.next_outcome()).await;
    assert!(ended.is_err() && of_lock.requests.is_empty());

    let target = Target::Set {
        first: 0,
        awaited: None,
    };
    let mut of_set = Claim::new(&call(), first, target, Few::from(entries.to_vec()));
    let later = Duration::from_secs(1);
    send(&mut of_set, first).await;
    send(&mut of_set, AdmissionClass::Copy).await;
    tokio::time::advance(later).await;
    send(&mut of_set, AdmissionClass::Copy).await;
    let begun = Instant::now();
    match of_set.next_outcome().await {
        Outcome::Failed(error) => assert!(driver_error::is_no_reply(&error), "{error}"),
        _ => panic!("nothing has replied"),
    }
    assert!(of_set.requests.is_empty() && begun.elapsed() >= ACQUIRE_NO_REPLY);
}

#[tokio::test]
async fn only_the_first_and_woken_requests_for_one_lock_go_with_others() {
    let provider = crate::simulation::silent_provider();
    let engine = provider.engine();
    let name = RenderedName::new("a");
    let entry = |name| engine.queues.join(&Arc::from(name));
    let claim = |target, entries, once| {
        let options = Arc::new(Options {
            once,
            ..Options::default()
        });
        let call = Call::new(engine, &name, &options, false, OnBusy::Wait);
        Claim::new(&call, call.first_class(), target, entries)
    };
    let set = Target::Set {
        first: 0,
        awaited: None,
    };
    let lock = claim(Target::Lock, Few::one(entry("a")), None);
    let set = claim(set, Few::from(vec![entry("a"), entry("b")]), None);
    let of_work = claim(
        Target::Lock,
        Few::one(entry("a")),
        Some(Once::Kept(Duration::from_secs(60))),
    );
    for (class, is_fresh) in [
        (AdmissionClass::First, true),
        (AdmissionClass::Woken, true),
        (AdmissionClass::Repeated, false),
        (AdmissionClass::Copy, false),
    ] {
        assert_eq!(lock.shared.lane(class).is_some(), is_fresh, "{class:?}");
        assert!(set.shared.lane(class).is_none() && of_work.shared.lane(class).is_none());
    }
}

/// A reply may be read long after it was sent, and after the provider was shut down.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_over_or_too_late_for_its_provider_is_not_delivered() {
    let provider = crate::LockProvider::in_memory();
    let (engine, name, options) = (provider.engine(), RenderedName::new("n"), Arc::default());
    let acquired = |sent| {
        let call = Call::new(engine, &name, &options, false, OnBusy::Wait);
        let entries = Few::one(engine.queues.join(name.text()));
        let mut claim = Claim::new(&call, call.first_class(), Target::Lock, entries);
        let reply = AcquireReply::Acquired {
            last_token: 1.into(),
            remaining: None,
            dates: None,
        };
        claim.acquired(sent, &[reply])
    };
    let sent = Instant::now();
    assert!(matches!(acquired(sent), Outcome::Acquired(_)));
    tokio::time::advance(without_margin(options.expiry)).await;
    assert!(matches!(acquired(sent), Outcome::AlreadyOver));
    engine.shut_down(None).await;
    assert!(matches!(acquired(Instant::now()), Outcome::AlreadyOver));
}
