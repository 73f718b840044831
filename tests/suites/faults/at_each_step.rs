//! Each fault of a command, at each step of a lock, a set and a permit: a message is lost, a connection falls silent, the server
//! refuses the command for a while. The call ends as it does without the fault.

use std::time::Duration;

use futures_util::future::join_all;
use mongodb::Database;
use mongodb::bson::doc;
use mongolock::{Detach, LeaseHandle, LockError, LockProvider, LockState};
use mongolock_tests::{
    AMPLE, BEFORE_EXPIRY, FailPoint, Fault, Meant, Proxy, Purpose, TestDb, locks, must, until,
};
use tokio::time::{Instant, sleep, timeout};

use crate::act::{Act, Held};
use crate::{
    LONG_EXPIRY, ONE_REPEAT, Proxied, STEPPED_DOWN, Standalone, assert_stores_its_tokens, claims, fail,
    until_none_is_held,
};

/// What is acquired, with the number of its claims.
const ACTS: [(Act, u64); 3] = [(Act::Lock, 1), (Act::Set, 3), (Act::Permit(3), 1)];

/// A lease that is renewed every 3 s, so that a renewal can be sent again several times, also on a slow machine.
const SHORT: Duration = Duration::from_secs(9);

const HOUR: Duration = Duration::from_secs(3600);

fn detach(held: Held) -> Detach {
    match held {
        Held::Lock(guard) => guard.detach(HOUR),
        Held::Permit(permit) => permit.detach(HOUR),
    }
}

/// Resumes what the handle stands for.
async fn resume(provider: &LockProvider, handle: &LeaseHandle) -> Result<Held, LockError> {
    Ok(match handle.permit() {
        Some(_) => Held::Permit(provider.resume_permit(handle).await?),
        None => Held::Lock(provider.resume(handle).await?),
    })
}

/// What happens to a command.
#[derive(Clone, Copy)]
enum Trouble {
    /// A fault of the network, which an acquire request meets so many times.
    Message(fn() -> Fault, u32),
    /// A fault of the server.
    Refusal(Refused),
    /// One that concerns writes only.
    Unconfirmed(Refused),
}
use Trouble::{Message, Refusal, Unconfirmed};

/// The labels of a rejection for overload.
const OVERLOADED: [&str; 3] = ["SystemOverloadedError", "RetryableError", "NoWritesPerformed"];

/// A fault of the server: what it is, how many commands it hits, and how.
type Refused = (&'static str, u32, fn(FailPoint) -> FailPoint);

/// Each class of refusals, so many times that the first repetition is not enough: the driver repeats none of these commands.
const REFUSALS: [Refused; 8] = [
    ("a step-down", 2, |point| point.error_code(STEPPED_DOWN)),
    ("a shutdown", 2, |point| point.error_code(91)),
    ("a missing right", 2, |point| point.error_code(13)),
    ("a code unknown to the driver", 2, |point| point.error_code(365)),
    ("a database being dropped", 2, |point| point.error_code(215)),
    ("a full disk", 2, |point| point.error_code(14031)),
    ("overload", 4, |point| {
        point.error_code(462).error_labels(&OVERLOADED)
    }),
    ("a cut connection", 2, FailPoint::close_connection),
];

/// Writes that were executed, and which a failover could take back.
const UNCONFIRMED: [Refused; 2] = [
    ("no majority in time", 3, |point| {
        point.write_concern_error(64, "injected")
    }),
    ("no majority because of a step-down", 3, |point| {
        point.write_concern_error(STEPPED_DOWN, "injected")
    }),
];

/// A provider whose connections go through the proxy, and the same database without the proxy.
struct Scene<'a> {
    trouble: Trouble,
    provider: LockProvider,
    proxy: &'a Proxy,
    direct: &'a Database,
    /// The server has fail points for the clients of a test.
    db: Option<&'a TestDb>,
}

impl<'a> Scene<'a> {
    /// On a replica set.
    fn through(it: &'a Proxied, trouble: Trouble) -> Self {
        Self {
            trouble,
            provider: it.provider.clone(),
            proxy: &it.proxy,
            direct: it.db.database(),
            db: Some(&it.db),
        }
    }

    /// The outcome of a call during which this command meets the trouble.
    async fn under<T>(
        &self,
        command: impl Into<Meant>,
        call: impl IntoFuture<Output = Result<T, LockError>>,
    ) -> T {
        self.repeatedly(1, command, call).await
    }

    /// The same for a command that a message is lost of so many times.
    async fn repeatedly<T>(
        &self,
        times: u32,
        command: impl Into<Meant>,
        call: impl IntoFuture<Output = Result<T, LockError>>,
    ) -> T {
        let command = command.into();
        match self.trouble {
            Message(fault, _) => {
                let lost = self.proxy.inject(fault().times(times).command(command));
                let ended = timeout(AMPLE, call.into_future()).await;
                let outcome = ended.expect("the call ends").unwrap();
                must(lost.happened(AMPLE).await);
                outcome
            }
            Refusal((what, times, refused)) | Unconfirmed((what, times, refused)) => {
                let (commands, is_query): (&[&str], _) = match &command {
                    Meant::Name(_) => (&["find"], true),
                    Meant::Purpose(_) => (&["findAndModify", "update"], false),
                };
                let point = refused(FailPoint::on(commands).times(times));
                let point = fail(self.db.expect("it has fail points"), point).await;
                let ended = timeout(AMPLE, call.into_future()).await;
                let outcome = ended.unwrap_or_else(|_| panic!("{what}, {command:?}: the call ends"));
                let outcome = outcome.unwrap_or_else(|error| panic!("{what}, {command:?}: {error}"));
                let hits = must(point.hits().await);
                let is_hit = is_query && hits > 0 || hits >= times.cast_signed();
                assert!(is_hit, "{what}, {command:?}: {hits}");
                outcome
            }
        }
    }

    /// Begins something, and waits until its command in trouble has been sent once more: until it is confirmed.
    async fn until_repeated(&self, purpose: Purpose, begin: impl FnOnce()) {
        let before = self.proxy.seen(purpose);
        begin();
        let hit = match self.trouble {
            Message(..) => 1,
            Refusal((_, times, _)) | Unconfirmed((_, times, _)) => u64::from(times),
        };
        until("a repetition", async || self.proxy.seen(purpose) > before + hit).await;
        // They are counted on their way. No event shows that they have reached the server.
        sleep(Duration::from_millis(500)).await;
    }

    /// Acquires, detaches, resumes and releases in trouble.
    async fn each_step_of(&self, act: Act, count: u64) {
        let (provider, direct) = (&self.provider, self.direct);
        let of_act = doc! { "_id": { "$regex": "^n" } };
        let times = match self.trouble {
            Message(_, times) => times,
            Refusal(_) | Unconfirmed(_) => 1,
        };
        locks(direct).delete_many(of_act.clone()).await.unwrap();
        // A set asks which of its claims have their locks.
        let has_query = act == Act::Set && !matches!(self.trouble, Unconfirmed(_));
        let query = has_query.then(|| Meant::from("find"));
        let commands = [Purpose::Acquire.into()].into_iter().chain(query);
        for (number, command) in commands.enumerate() {
            // A process may leave a lock to others for a moment that it has had for a while, and then asks for each of a set
            // alone.
            let name = format!("n{number}");
            // A query without a reply is given up after 7 s, and a claim after 2 s.
            let is_swift = number == 0 && matches!(self.trouble, Message(..));
            let mut slow = Vec::new();
            let held = loop {
                let begun = Instant::now();
                let acquiring = act.acquire(provider, &name);
                let held = self.repeatedly(times, command.clone(), acquiring).await;
                if !is_swift || begun.elapsed() < ONE_REPEAT {
                    break held;
                }
                // A busy machine may need longer, but not each time.
                slow.push(begun.elapsed());
                assert!(slow.len() < 3, "{act:?}: {slow:?}");
                held.release().await.unwrap();
            };
            assert_eq!(claims(direct).await, count);
            assert_stores_its_tokens(direct, &held.context()).await;
            self.under(Purpose::Release, held.release()).await;
            until_none_is_held(direct, BEFORE_EXPIRY).await;
            if act != Act::Set {
                // A claim that was repeated for another permit, and then given back, would leave a second document.
                let made = locks(direct).count_documents(of_act.clone()).await.unwrap();
                assert_eq!(made, count);
            }
        }
        let held = act.acquire(provider, "n").await.unwrap();
        let handle = self.under(Purpose::Detach, detach(held)).await;
        let extending = provider.extend(&handle, 2 * HOUR);
        self.under(Purpose::Renew, extending).await;
        let held = self.under(Purpose::Resume, resume(provider, &handle)).await;
        let handle = detach(held).await.unwrap();
        let released = self.under(Purpose::Release, provider.release(&handle)).await;
        assert!(released && claims(direct).await == 0);
        let dropped = act.acquire(provider, "n").await.unwrap();
        let dropping = async {
            self.until_repeated(Purpose::Release, || drop(dropped)).await;
            until_none_is_held(direct, BEFORE_EXPIRY).await;
            Ok(())
        };
        self.under(Purpose::Release, dropping).await;
    }

    /// Work that succeeds while its mark is in trouble is done.
    async fn mark(&self) {
        let guard = self.provider.lock("job").once().acquire().await.unwrap();
        self.under(Purpose::Mark, guard.done()).await;
        let info = self.provider.admin().get("job").await.unwrap().unwrap();
        assert_eq!(info.state, LockState::Done);
        let again = self.provider.lock("job").once().acquire().await;
        assert!(matches!(again, Err(LockError::Done { .. })), "{again:?}");
    }

    /// B9: a renewal in trouble is sent again, and no lease ends.
    async fn renewal(&self) {
        let provider = self.provider.to_builder().expiry(SHORT).build().unwrap();
        let names = ["lock", "set", "permit"];
        let acts = ACTS.into_iter().zip(names);
        let held = join_all(acts.map(|((act, _), name)| act.acquire(&provider, name))).await;
        let renewing = async {
            self.until_repeated(Purpose::Renew, || {}).await;
            Ok(())
        };
        self.under(Purpose::Renew, renewing).await;
        // The leases of before are over then.
        sleep(SHORT).await;
        for held in held {
            let held = held.unwrap();
            let is_held = held.context().ensure_held();
            is_held.expect("a later renewal has extended the lease");
            held.release().await.unwrap();
        }
    }

    async fn each_step(&self) {
        for (act, count) in ACTS {
            self.each_step_of(act, count).await;
        }
        self.mark().await;
    }
}

/// A query whose reply is lost is sent again, and the call goes on: whether the only permit is held, a claim can tell.
#[tokio::test]
async fn a_lost_query_does_not_end_a_try() {
    let it = Proxied::start(LONG_EXPIRY).await;
    let (semaphore, rival) = (it.provider.semaphore("s", 2), it.rival().semaphore("s", 2));
    let (held, _other) = (rival.acquire().await.unwrap(), rival.acquire().await.unwrap());
    let lost = it.proxy.inject(Fault::drop_reply().command("find"));
    let none = timeout(AMPLE, semaphore.try_acquire()).await.unwrap();
    must(lost.happened(AMPLE).await);
    assert!(none.unwrap().is_none());
    held.release().await.unwrap();
    assert!(semaphore.try_acquire().await.unwrap().is_some());
}

/// B3, B12, S0.9: on a standalone server only this library repeats commands.
#[tokio::test]
async fn a_lost_message_changes_no_outcome() {
    join_all([Fault::drop_reply, Fault::drop_request].map(async |fault| {
        let (server, provider) = Standalone::with_provider(LONG_EXPIRY).await;
        let scene = Scene {
            trouble: Message(fault, 2),
            provider,
            proxy: &server.proxy,
            direct: &server.direct,
            db: None,
        };
        scene.each_step().await;
    }))
    .await;
}

/// Plays all steps on a replica set, where the driver repeats commands and gets the server's stored replies.
async fn on_a_replica_set(trouble: Trouble) {
    let of_acts = join_all(ACTS.map(async |(act, count)| {
        let it = Proxied::start(LONG_EXPIRY).await;
        Scene::through(&it, trouble).each_step_of(act, count).await;
    }));
    let others = async {
        let it = Proxied::start(LONG_EXPIRY).await;
        Scene::through(&it, trouble).mark().await;
        Scene::through(&it, trouble).renewal().await;
    };
    tokio::join!(of_acts, others);
}

/// B3, S0.9.
#[tokio::test]
async fn a_lost_message_changes_no_outcome_on_a_replica_set() {
    let faults = [Fault::drop_reply, Fault::drop_request];
    join_all(faults.map(|fault| on_a_replica_set(Message(fault, 1)))).await;
}

/// B3: the connection stays open and carries nothing any more. One message costs one repetition.
#[tokio::test]
async fn a_swallowed_message_changes_no_outcome() {
    let faults = [Fault::swallow_reply, Fault::swallow_request];
    join_all(faults.map(|fault| on_a_replica_set(Message(fault, 1)))).await;
}

/// B3: three requests are the most that one name may have without a reply. The first of them is given up after 7 s, and a
/// fourth one is sent. If it were kept for 20 s, this wait would end with an error.
#[tokio::test]
async fn three_swallowed_requests_do_not_fail_a_wait() {
    let it = Proxied::start(LONG_EXPIRY).await;
    let scene = Scene::through(&it, Message(Fault::swallow_request, 3));
    let lock = it.provider.lock("n").acquire_timeout(Duration::from_secs(15));
    let held = scene.repeatedly(3, Purpose::Acquire, lock.acquire()).await;
    held.release().await.unwrap();
    until_none_is_held(it.db.database(), BEFORE_EXPIRY).await;
}

/// A resumption asks only for its own lease: without a reply nothing is busy.
#[tokio::test]
async fn a_resumption_without_a_reply_says_so() {
    let it = Proxied::start(LONG_EXPIRY).await;
    let provider = it.provider.to_builder().acquire_timeout(Duration::from_secs(3));
    let provider = provider.build().unwrap();
    for (act, _) in ACTS {
        let held = act.acquire(&it.provider, &format!("{act:?}")).await.unwrap();
        let handle = detach(held).await.unwrap();
        let fault = Fault::swallow_request().command(Purpose::Resume);
        let _swallowed = it.proxy.inject(fault.times(u32::MAX));
        let error = resume(&provider, &handle).await.err().unwrap().to_string();
        assert!(error.starts_with("MongoDB did not answer"), "{act:?}: {error}");
        it.proxy.clear_faults();
    }
}

/// B5, S4.4: what may pass is repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_passes_changes_no_outcome() {
    join_all(REFUSALS.map(|refused| on_a_replica_set(Refusal(refused)))).await;
}

/// B12: an unconfirmed write does not count. It is repeated until it is confirmed.
#[tokio::test]
async fn an_unconfirmed_write_changes_no_outcome() {
    join_all(UNCONFIRMED.map(|refused| on_a_replica_set(Unconfirmed(refused)))).await;
}
