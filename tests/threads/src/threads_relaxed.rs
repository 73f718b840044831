//! The same code with weaker atomics: every ordering is `Relaxed`, and fences do nothing. Loom must find what goes wrong,
//! or the suite `threads` would prove nothing.
#![forbid(unsafe_code)]

mod scenarios;
mod turn;

/// What the library's module `sync` is here.
mod sync {
    pub(crate) use loom::sync::Mutex;
    use loom::sync::MutexGuard;

    /// Atomics that ignore the ordering that they are given.
    pub(crate) mod atomic {
        use loom::sync::atomic as exact;
        pub(crate) use loom::sync::atomic::Ordering;

        pub(crate) fn fence(_: Ordering) {}

        macro_rules! relaxed_number {
            ($name:ident, $number:ty) => {
                #[derive(Default)]
                pub(crate) struct $name(exact::$name);

                #[allow(dead_code)]
                impl $name {
                    pub(crate) fn new(value: $number) -> Self {
                        Self(exact::$name::new(value))
                    }

                    pub(crate) fn load(&self, _: Ordering) -> $number {
                        self.0.load(Ordering::Relaxed)
                    }

                    pub(crate) fn fetch_add(&self, value: $number, _: Ordering) -> $number {
                        self.0.fetch_add(value, Ordering::Relaxed)
                    }

                    pub(crate) fn fetch_sub(&self, value: $number, _: Ordering) -> $number {
                        self.0.fetch_sub(value, Ordering::Relaxed)
                    }
                }
            };
        }

        relaxed_number!(AtomicUsize, usize);
        relaxed_number!(AtomicU32, u32);

        #[derive(Default)]
        pub(crate) struct AtomicBool(exact::AtomicBool);

        impl AtomicBool {
            pub(crate) fn load(&self, _: Ordering) -> bool {
                self.0.load(Ordering::Relaxed)
            }

            pub(crate) fn store(&self, value: bool, _: Ordering) {
                self.0.store(value, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("no thread panics with the mutex locked")
    }
}

#[path = "../../../mongolock/src/queue/handed_over.rs"]
mod handed_over;
mod lease;

#[test]
#[should_panic(expected = "nobody takes or releases the hold")]
fn a_hold_is_forgotten() {
    scenarios::hand_over_to_a_cancelled_waiter();
}

#[test]
#[should_panic(expected = "the claim of a commit that was cut off is handed over")]
fn a_commit_that_was_cut_off_is_missed() {
    scenarios::commit_cut_off_beside_a_release();
}
