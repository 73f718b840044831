use std::time::Duration;

/// The holder of a lock that a call could not acquire, for the function of `on_busy = path`.
///
/// The function gets a reference to each argument of the call, and then this value. The call returns what the function returns.
///
/// ```
/// use mongolock::{Busy, LockError, LockProvider, distributed_lock};
///
/// #[distributed_lock(name = "report:<id>", on_busy = in_progress)]
/// async fn rebuild_report(id: u64) -> Result<String, LockError> {
///     Ok(format!("report {id} is rebuilt"))
/// }
///
/// fn in_progress(id: &u64, busy: &Busy) -> Result<String, LockError> {
///     let holder = busy.holder.as_deref().unwrap_or("another instance");
///     Ok(format!("{holder} rebuilds report {id}"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LockError> {
/// let provider = LockProvider::in_memory().to_builder().owner("billing-1").build()?;
/// let guard = provider.lock("report:7").await?;
/// assert_eq!(provider.scope(rebuild_report(7)).await?, "billing-1 rebuilds report 7");
/// # guard.release().await
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Busy {
    /// The lock's name.
    pub name: String,
    /// The owner of the lease that the last attempt found; `None` if no reply named one: the lock has no owner during a
    /// minimum hold or if another program holds it, and a call may end before its first reply. It is the provider's own
    /// owner if this process holds the lock.
    pub holder: Option<String>,
    /// Whether a caller of the same provider holds the lock, in this process.
    pub in_this_process: bool,
    /// How long the present holder has had the lock by the server's clock: the value of the last reply that named it,
    /// and the time since. A lock that has been held for minutes will probably not be free in a second. `None` if no
    /// reply named a holder.
    ///
    /// If only an event of the change stream named the holder, the time counts from that event, which arrives a few
    /// milliseconds after the acquisition. For a hold of this process the time counts from its acquisition.
    pub held_for: Option<Duration>,
    /// The rest of the holder's lease and of the takeover margin after it: the server's value minus the time since its
    /// reply, and zero if both have passed. `None` if no reply had it, or if a caller in this process holds the lock (calls
    /// that have joined one hold get the rest of their own lease).
    ///
    /// **The lock is not free after this time.** Do not use it as a `Retry-After`: the holder renews its lease until the work
    /// ends. It only says when the lock becomes free if the holder has crashed. For a service choose a pause by the length of
    /// the work, or by [`held_for`](Self::held_for).
    pub remaining: Option<Duration>,
}

impl Busy {
    /// The value for a lock about which nothing is known except that it is held, for tests of a program's own
    /// functions. The other fields can be set afterwards.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use mongolock::Busy;
    ///
    /// fn in_progress(busy: &Busy) -> String {
    ///     let holder = busy.holder.as_deref().unwrap_or("another instance");
    ///     format!("{holder} has held it for {:?}", busy.held_for.unwrap_or_default())
    /// }
    ///
    /// let mut busy = Busy::new("report:7");
    /// busy.holder = Some("billing-1".to_owned());
    /// busy.held_for = Some(Duration::from_secs(12));
    /// assert_eq!(in_progress(&busy), "billing-1 has held it for 12s");
    /// ```
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            holder: None,
            in_this_process: false,
            held_for: None,
            remaining: None,
        }
    }
}
