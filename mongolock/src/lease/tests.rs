use super::*;
use crate::lease::renewer::Renewer;
use crate::line::Lines;
use crate::store::{MemoryStore, ProviderMark, Store};

pub(super) const EXPIRY: Duration = Duration::from_secs(30);

/// A lease of [`EXPIRY`] that has just begun, with two tokens for hand-overs.
pub(super) fn lease(name: &str, options: &Options) -> Lease {
    let options = Options {
        expiry: EXPIRY,
        ..options.clone()
    };
    lease_of(name, options)
}

/// The same with the expiry of these options.
pub(super) fn lease_of(name: &str, options: Options) -> Lease {
    let options = Arc::new(options);
    let grant = Grant {
        keys: Few::one(LeaseId {
            name: Arc::from(name),
            lock_id: Arc::from("owner#1"),
        }),
        parts: Few::one(Part {
            token: FencingToken::new(1),
            last_token: FencingToken::new(3),
            copies: None,
        }),
        title: 0,
        acquired: Instant::now(),
        deadline: Instant::now() + without_margin(options.expiry),
        once: None,
        back: None,
        slots: Few::one(QueueSlot::Entry {
            entry: Queues::new().join(&Arc::from(name)),
        }),
    };
    Lease::new(grant, options)
}

/// A renewer whose task is not started, with a store that has no locks.
pub(super) fn renewer() -> Arc<Renewer> {
    let store = Arc::new(Store::Memory(Arc::new(MemoryStore::new())));
    let (mark, owner) = (ProviderMark::random(), Arc::from("owner"));
    let lines = Lines::new(Arc::clone(&store), mark, owner);
    Arc::new(Renewer::new(store, Arc::new(lines)))
}

#[tokio::test(start_paused = true)]
async fn a_claim_may_outlive_its_deadline_by_a_renewal_without_a_reply_or_by_a_margin() {
    let own = lease("n", &Options::default());
    assert!(!own.may_outlive_deadline());
    own.renewal_sent();
    assert!(own.may_outlive_deadline());
    own.extend(Instant::now());
    assert!(!own.may_outlive_deadline(), "the renewal is confirmed");
    let takeover_margin = Duration::from_secs(1);
    let with_margin = Options {
        takeover_margin,
        ..Options::default()
    };
    assert!(lease("n", &with_margin).may_outlive_deadline());
}

#[tokio::test(start_paused = true)]
async fn the_holds_of_a_claim_share_its_tokens_its_deadline_and_its_renewals() {
    let first = lease("n", &Options::default());
    first.renewal_sent();
    let deadline = first.deadline().unwrap();
    let second = first.successor(deadline).unwrap();
    let third = second.successor(deadline).unwrap();
    assert_eq!([second.token().get(), third.token().get()], [2, 3]);
    assert!(third.successor(deadline).is_none(), "no reserved token is left");
    assert_eq!(third.deadline(), Some(deadline));
    assert!(third.may_outlive_deadline(), "the renewal is not confirmed");
}

#[test]
fn a_holder_relies_on_a_percent_and_two_milliseconds_less_than_was_granted() {
    for (granted, relied_on) in [(30_000, 29_698), (1000, 988), (2, 0)] {
        let lasts = without_margin(Duration::from_millis(granted));
        assert_eq!(lasts, Duration::from_millis(relied_on));
    }
}
