//! A test of one kind: what it acquires, its rivals, and what they find.

use std::panic::{AssertUnwindSafe, resume_unwind};

use futures_util::FutureExt;
use futures_util::future::join_all;
use mongolock::{LockContext, LockFilter, LockInfo, LockProvider, blocking};
use mongolock_tests::BEFORE_EXPIRY;
use tokio::task::block_in_place;
use tokio::time::timeout;

use super::kind::Kind;
use super::target::{Target, Threads};
use crate::fixture::Fixture;

/// A kind of holds, with providers that no other test uses.
pub(crate) struct Subject {
    pub(crate) fixture: Fixture,
    pub(crate) kind: Kind,
    /// The provider of the program under test if it has no async code. Its rivals always have.
    pub(crate) threads: Threads,
    rival: LockProvider,
}

impl Subject {
    pub(crate) fn new(fixture: Fixture, kind: Kind, threads: Threads) -> Self {
        let rival = fixture.rival();
        Self {
            fixture,
            kind,
            threads,
            rival,
        }
    }

    /// The provider under test.
    pub(crate) fn provider(&self) -> &LockProvider {
        let of_threads = self.threads.as_ref().map(blocking::LockProvider::provider);
        of_threads.unwrap_or(&self.fixture.provider)
    }

    pub(crate) fn has_threads(&self) -> bool {
        self.threads.is_some()
    }

    /// What the program under test acquires.
    pub(crate) fn ours(&self) -> Target {
        self.kind.of(self.provider(), self.threads.clone())
    }

    /// The same in another process.
    pub(crate) fn theirs(&self) -> Target {
        self.of(&self.rival)
    }

    /// The same for this provider.
    pub(crate) fn of(&self, provider: &LockProvider) -> Target {
        self.kind.of(provider, None)
    }

    pub(crate) fn named(&self, name: &str) -> Target {
        self.kind.named(self.provider(), &[name], self.threads.clone())
    }

    /// What excludes a part of it in the program under test.
    pub(crate) fn our_parts(&self) -> Vec<Target> {
        self.kind.parts(self.provider(), &self.threads)
    }

    /// What excludes a part of it in another process.
    pub(crate) fn their_parts(&self) -> Vec<Target> {
        self.kind.parts(&self.rival, &None)
    }

    /// Whether this is a name of it.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.kind.expects().names.contains(&name)
    }

    /// Asserts that no part of it is free.
    pub(crate) async fn assert_held(&self) {
        for part in self.their_parts() {
            assert!(!part.is_free().await);
        }
    }

    /// Asserts that each part of it was released: it can be acquired long before a lease of 30 s would end.
    pub(crate) async fn assert_released(&self) {
        for part in self.their_parts() {
            let free = timeout(BEFORE_EXPIRY, part.acquire_and_release()).await;
            free.expect("it was released");
        }
    }

    /// Asserts that each part of it is free now.
    pub(crate) async fn assert_free(&self) {
        for part in self.their_parts() {
            assert!(part.is_free().await);
        }
    }

    /// The documents of its locks, or of its permit, which it has.
    pub(crate) async fn infos(&self) -> Vec<LockInfo> {
        let infos = self.documents().await;
        assert_eq!(infos.len(), self.kind.expects().names.len(), "{infos:?}");
        infos
    }

    pub(crate) async fn documents(&self) -> Vec<LockInfo> {
        let mut infos = Vec::new();
        for name in self.kind.expects().names {
            let listed = self.rival.admin().list(LockFilter::new().prefix(*name)).await;
            infos.extend(listed.unwrap().into_iter().filter(|info| info.name == *name));
        }
        infos
    }

    /// Asserts that the tokens of the later hold are greater, and that a hold without tokens has none.
    pub(crate) fn assert_newer(&self, later: &LockContext, earlier: &LockContext) {
        let expected = self.kind.expects();
        for name in expected.names {
            let tokens = [earlier, later].map(|context| context.fencing_token_of(name));
            match tokens {
                [Some(earlier), Some(later)] => {
                    let rises = expected.has_token && earlier < later && later.get() < 1 << 53;
                    assert!(rises, "{tokens:?}");
                }
                [None, None] => assert!(!expected.has_token, "{tokens:?}"),
                _ => panic!("{tokens:?}"),
            }
        }
    }

    /// Has an operator who uses this provider release one of its locks.
    pub(crate) async fn force_release_one(&self, provider: &LockProvider) {
        let name = fastrand::choice(self.kind.expects().names).expect("it has a name");
        let release = provider.admin().force_release(*name);
        let released = match self.kind {
            Kind::Permit => release.permit(0).await,
            _ => release.await,
        };
        assert!(released.unwrap(), "{name} is held");
    }

    pub(crate) async fn shut_down(&self) {
        match &self.threads {
            None => self.fixture.provider.shutdown().await,
            Some(locks) => block_in_place(|| locks.wait(locks.provider().shutdown())),
        }
    }
}

/// Runs a test with each of these kinds at the same time.
pub(crate) async fn of_each<T: Future<Output = ()>>(
    fixture: Fixture,
    kinds: &[Kind],
    test: impl Fn(Subject) -> T,
) {
    let subjects = kinds
        .iter()
        .map(|kind| Subject::new(fixture.another(), *kind, None));
    run_all(subjects.collect(), test).await;
}

/// Runs a test with each of these kinds, in a program without async code. Its calls block, so they run one after the other.
pub(crate) async fn of_each_with_threads<T: Future<Output = ()>>(
    fixture: Fixture,
    kinds: &[Kind],
    test: impl Fn(Subject) -> T,
) {
    let subjects = kinds.iter().map(|kind| {
        let (locks, fixture) = block_in_place(|| fixture.threads());
        Subject::new(fixture, *kind, Some(locks))
    });
    run_all(subjects.collect(), test).await;
}

async fn run_all<T: Future<Output = ()>>(subjects: Vec<Subject>, test: impl Fn(Subject) -> T) {
    let tests = subjects.into_iter().map(async |subject| {
        let kind = subject.kind;
        let ended = AssertUnwindSafe(test(subject)).catch_unwind().await;
        ended.unwrap_or_else(|panic| {
            eprintln!("the kind is {kind:?}");
            resume_unwind(panic)
        });
    });
    join_all(tests).await;
}
