//! Values that are lock names.

use std::fmt::Display;

use super::rendered::{Flaw, MAX_BYTES, RenderedName};
use super::rendering::NameBuilder;
use crate::LockError;

/// A value whose type has declared its lock names, each with its template. Derive it; see [the derive macro].
///
/// A lock that is used in several places is declared once: a misspelt variant does not compile, whereas a misspelt
/// string would be another lock.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), mongolock::LockError> {
/// # let provider = mongolock::LockProvider::in_memory();
/// use mongolock::{LockError, LockName, distributed_lock};
///
/// #[derive(LockName)]
/// enum Lock<'a> {
///     #[lock("report:<tenant>:<id>")]
///     Report { tenant: &'a str, id: u64 },
///     #[lock("invoice:<0>")]
///     Invoice(u32),
/// }
///
/// #[distributed_lock(name = Lock::Report { tenant, id })]
/// async fn rebuild(tenant: &str, id: u64) -> Result<(), LockError> {
///     Ok(())
/// }
///
/// provider.scope(rebuild("acme", 1)).await?;
/// let guard = provider.lock(Lock::Invoice(7)).acquire().await?;
/// assert_eq!(guard.name(), "invoice:7");
/// # Ok(())
/// # }
/// ```
///
/// [the derive macro]: derive@crate::LockName
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a declared lock name",
    label = "it does not derive `LockName`",
    note = "write the name as a string literal, such as `name = \"report:<id>\"`",
    note = "or declare it as a variant of a type with `#[derive(mongolock::LockName)]`"
)]
pub trait LockName: IntoLockName {
    /// The name, for display. Pass the value itself to [`lock`](crate::LockProvider::lock): only then an empty field is
    /// reported, because the rendered name does not show it.
    ///
    /// ```
    /// # use mongolock::LockName;
    /// #[derive(LockName)]
    /// #[lock("report:<tenant>:<id>")]
    /// struct Report { tenant: &'static str, id: u64 }
    ///
    /// let report = Report { tenant: "a:b", id: 1 };
    /// assert_eq!(report.name(), "report:a%3Ab:1");
    /// assert_eq!(report.template(), "report:<tenant>:<id>");
    /// ```
    fn name(&self) -> String {
        self.render(NameBuilder::new(usize::MAX)).text
    }

    /// The template as it is declared, such as `report:<tenant>:<id>`. It has few values, so it can label a metric; see
    /// [`LockContext::template`](crate::LockContext::template).
    fn template(&self) -> &'static str;

    /// Appends the name.
    #[doc(hidden)]
    fn render(&self, name: NameBuilder) -> NameBuilder;
}

/// The name that a value declares, for the expansion of the attribute.
pub fn declared_lock_name<L: LockName + ?Sized>(lock: &L) -> NameBuilder {
    lock.render(NameBuilder::new(MAX_BYTES))
}

/// A value that can name a lock: everything that implements `Display`, such as a string, a number or an `ObjectId`, and
/// everything that derives [`LockName`], also behind a reference.
///
/// ```
/// # #[derive(mongolock::LockName)]
/// # #[lock("nightly")]
/// # struct Nightly;
/// # let provider = mongolock::LockProvider::in_memory();
/// assert_eq!(provider.lock(42).name(), "42");
/// assert_eq!(provider.lock(format_args!("report:{}", 42)).name(), "report:42");
/// assert_eq!(provider.lock(&Nightly).name(), "nightly");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be used as a lock name",
    label = "it implements neither `std::fmt::Display` nor `mongolock::LockName`",
    note = "pass a string, or a value of a type with `#[derive(mongolock::LockName)]`"
)]
pub trait IntoLockName {
    /// Appends the name.
    #[doc(hidden)]
    fn into_lock_name(self, name: NameBuilder) -> NameBuilder;
}

// The error names this trait, and not the trait behind it.
#[diagnostic::do_not_recommend]
impl<T: Display> IntoLockName for T {
    fn into_lock_name(self, name: NameBuilder) -> NameBuilder {
        name.add(None, None, &self)
    }
}

impl RenderedName {
    /// Renders a name.
    pub(crate) fn new(value: impl IntoLockName) -> Self {
        value.into_lock_name(NameBuilder::new(MAX_BYTES)).finish()
    }
}

/// Renders a name that is not a lock's own but may be that of any document, so its length has no limit and no rule
/// applies to it.
pub(crate) fn whole(value: impl IntoLockName) -> Result<String, LockError> {
    let name = value.into_lock_name(NameBuilder::new(usize::MAX)).finish();
    match name.flaw.as_deref() {
        Some(flaw @ Flaw::DisplayFailed(_)) => Err(flaw.error(&name.text)),
        _ => Ok(name.text.as_ref().to_owned()),
    }
}
