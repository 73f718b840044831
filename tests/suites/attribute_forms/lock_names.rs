//! Lock names that are declared with `#[derive(LockName)]`.

#![deny(warnings)]

use std::cell::Cell;
use std::fmt::Display;
use std::marker::PhantomData;
use std::sync::Mutex;

use mongolock::{Busy, IntoLockName, LockContext, LockError, LockName, LockProvider, distributed_lock};

use super::send;

#[derive(LockName)]
enum Lock<'a> {
    #[lock("report:<tenant>:<id>")]
    Report { tenant: &'a str, id: u64 },
    #[lock("invoice:<0>")]
    Invoice(u32),
    #[lock("order:<order.region()>:<order.number>")]
    Order { order: &'a Order },
    #[lock("pair:<1>/<0.0>")]
    Pair((i8, i8), String),
    #[lock("raw <<<type>>>")]
    Raw { r#type: Box<str> },
    #[lock("nightly")]
    Nightly,
}

struct Order {
    number: u16,
    region: String,
}

impl Order {
    fn region(&self) -> &str {
        &self.region
    }
}

#[derive(LockName)]
#[lock("<T::KIND>:<shard>:<N>:<Self::SUFFIX>")]
struct Shard<T: Kind, const N: usize>
where
    T: Sync,
{
    shard: u8,
    of: PhantomData<T>,
}

trait Kind {
    const KIND: &'static str;
}

struct User;

impl Kind for User {
    const KIND: &'static str = "us:er";
}

impl<T: Kind + Sync, const N: usize> Shard<T, N> {
    const SUFFIX: char = 'z';

    fn new(shard: u8) -> Self {
        Self {
            shard,
            of: PhantomData,
        }
    }
}

/// The name and the template of the lock that the caller runs under.
fn locked() -> Result<(String, &'static str), LockError> {
    let context = LockContext::current().expect("the body runs under the lock");
    let template = context.template().expect("the lock has a template");
    Ok((context.name().to_owned(), template))
}

fn found(name: &str, template: &'static str) -> (String, &'static str) {
    (name.to_owned(), template)
}

#[test]
fn a_value_knows_its_name_and_its_template() {
    let order = Order {
        number: 7,
        region: "e:u".to_owned(),
    };
    let names = [
        (
            Lock::Report {
                tenant: "a:b%",
                id: 3,
            },
            "report:a%3Ab%25:3",
        ),
        (Lock::Invoice(4), "invoice:4"),
        (Lock::Order { order: &order }, "order:e%3Au:7"),
        (Lock::Pair((-1, 2), "x/y".to_owned()), "pair:x%2Fy/-1"),
        (Lock::Raw { r#type: "t".into() }, "raw <t>"),
        (Lock::Nightly, "nightly"),
    ];
    for (lock, name) in &names {
        assert_eq!(lock.name(), *name);
    }
    assert_eq!(names[0].0.template(), "report:<tenant>:<id>");
    assert_eq!(names[4].0.template(), "raw <<<type>>>");
    let shard = Shard::<User, 3>::new(1);
    assert_eq!(shard.name(), "us%3Aer:1:3:z");
}

#[test]
fn a_value_and_its_references_name_the_same_lock() {
    fn name_of(name: impl IntoLockName) -> String {
        LockProvider::in_memory().lock(name).name().to_owned()
    }
    let lock = Lock::Invoice(1);
    assert_eq!(name_of(&&lock), "invoice:1");
    assert_eq!(name_of(&lock), "invoice:1");
    assert_eq!(name_of(lock), "invoice:1");
    assert_eq!(name_of(&&&"text"), "text");
    assert_eq!(name_of(format_args!("{}", 1)), "1");
    fn any(name: &(impl Display + ?Sized)) -> String {
        name_of(name)
    }
    assert_eq!(any("text"), "text");
}

#[distributed_lock(name = Lock::Report { tenant, id: order.number.into() })]
async fn rebuild(tenant: &str, order: Order) -> Result<(String, &'static str), LockError> {
    drop(order);
    locked()
}

#[distributed_lock(name = lock)]
async fn given(lock: &Lock<'_>) -> Result<(String, &'static str), LockError> {
    locked()
}

#[tokio::test]
async fn functions_run_under_declared_names() -> Result<(), LockError> {
    let order = Order {
        number: 7,
        region: String::new(),
    };
    let all = async {
        assert_eq!(
            rebuild("a:b", order).await?,
            found("report:a%3Ab:7", "report:<tenant>:<id>")
        );
        assert_eq!(given(&Lock::Invoice(5)).await?, found("invoice:5", "invoice:<0>"));
        Ok(())
    };
    LockProvider::in_memory().scope(all).await
}

/// The steps of a call, in their order.
static STEPS: Mutex<Vec<&str>> = Mutex::new(Vec::new());

fn step<T>(name: &'static str, value: T) -> T {
    STEPS.lock().expect("no panic").push(name);
    value
}

async fn later(number: u32) -> Result<u32, LockError> {
    tokio::task::yield_now().await;
    assert!(
        LockContext::current().is_none(),
        "fields are evaluated before the lock is acquired"
    );
    if number == 0 {
        return Err(LockError::NoProvider);
    }
    Ok(step("field", number))
}

#[distributed_lock(
    name = Lock::Invoice(later(number).await?),
    provider = step("provider", LockProvider::in_memory())
)]
async fn ordered(number: u32) -> Result<(), LockError> {
    step("body", ());
    Ok(())
}

#[tokio::test]
async fn fields_are_evaluated_once_after_the_provider_and_before_the_body() -> Result<(), LockError> {
    ordered(1).await?;
    assert!(matches!(ordered(0).await, Err(LockError::NoProvider)));
    let steps = STEPS.lock().expect("no panic").clone();
    assert_eq!(steps, ["provider", "field", "body", "provider"]);
    Ok(())
}

/// A value that can be sent but not shared.
struct Unshared(Cell<u8>);

impl Display for Unshared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.get().fmt(f)
    }
}

#[derive(LockName)]
#[lock("unshared:<0>")]
struct OfUnshared<'a>(&'a Unshared);

#[distributed_lock(name = OfUnshared(&value))]
async fn unshared(value: Unshared) -> Result<u8, LockError> {
    tokio::task::yield_now().await;
    Ok(value.0.into_inner())
}

#[tokio::test]
async fn a_borrow_in_a_name_is_not_part_of_the_future() -> Result<(), LockError> {
    let value = Unshared(Cell::new(3));
    let provider = LockProvider::in_memory();
    assert_eq!(provider.scope(send(unshared(value))).await?, 3);
    Ok(())
}

/// The checks of a value see that a field is empty, which the rendered name hides.
#[tokio::test]
async fn an_empty_field_is_refused() {
    let provider = LockProvider::in_memory();
    let empty = Lock::Report { tenant: "", id: 1 };
    let error = provider.lock(&empty).acquire().await.unwrap_err();
    assert!(
        matches!(&error, LockError::InvalidName { .. }) && error.to_string().contains("<tenant>"),
        "{error}"
    );
    assert_eq!(empty.name(), "report::1");
    assert!(provider.lock(empty.name()).acquire().await.is_ok());
}

#[tokio::test]
async fn operators_use_declared_names() -> Result<(), LockError> {
    let provider = LockProvider::in_memory();
    let report = Lock::Report { tenant: "a:b", id: 1 };
    let _guard = provider.lock(&report).acquire().await?;
    let info = provider.admin().get(&report).await?;
    assert_eq!(info.expect("it is held").name, "report:a%3Ab:1");
    Ok(())
}

mod framework {
    pub use mongolock as locks;
}

#[derive(framework::locks::LockName)]
#[lock("elsewhere", crate = framework::locks)]
struct Elsewhere;

/// A declaration that `macro_rules!` makes, whose types are in invisible groups.
macro_rules! declare {
    ($name:ident, $template:literal, $field:ident: $ty:ty, $other:literal) => {
        #[derive(LockName)]
        enum $name {
            #[lock($template)]
            One { $field: $ty },
            #[lock($other)]
            Other,
        }
    };
}

declare!(Declared, "declared:<id>", id: u64, "declared:all");

/// A function whose lock name comes from the caller.
macro_rules! locked_as {
    ($function:ident, $argument:ident, $lock:expr) => {
        #[distributed_lock(name = $lock)]
        async fn $function($argument: u64) -> Result<(String, &'static str), LockError> {
            locked()
        }
    };
}

locked_as!(by_macro, id, Declared::One { id });

#[tokio::test]
async fn declarations_by_other_means_compile() -> Result<(), LockError> {
    assert_eq!(Elsewhere.name(), "elsewhere");
    assert_eq!(Declared::One { id: 1 }.name(), "declared:1");
    assert_eq!(Declared::Other.template(), "declared:all");
    let name = LockProvider::in_memory().scope(by_macro(2)).await?;
    assert_eq!(name, found("declared:2", "declared:<id>"));
    Ok(())
}

/// A name whose field is called like the `#[lock]` argument below.
#[derive(LockName)]
#[lock("hold:<lock>")]
struct Hold {
    lock: u64,
}

#[distributed_lock(name = Hold { lock: id })]
async fn with_its_context(id: u64, #[lock] lock: LockContext) -> Result<(String, &'static str), LockError> {
    Ok((lock.name().to_owned(), lock.template().unwrap_or("none")))
}

#[tokio::test]
async fn a_function_with_a_declared_name_gets_its_lock_as_an_argument() {
    let provider = LockProvider::in_memory();
    let seen = provider.scope(with_its_context(7)).await.unwrap();
    assert_eq!(seen, ("hold:7".to_owned(), "hold:<lock>"));
}

#[distributed_lock(name = Lock::Report { tenant, id: order.into() }, on_busy = already_running)]
async fn reports_once(tenant: &str, order: u32, #[lock] lock: LockContext) -> Result<String, LockError> {
    Ok(format!("{} {order}", lock.name()))
}

fn already_running(tenant: &str, order: &u32, busy: &Busy) -> Result<String, LockError> {
    Ok(format!("{} is busy for {tenant} {order}", busy.name))
}

#[tokio::test]
async fn a_busy_function_answers_for_a_declared_name() {
    let provider = LockProvider::in_memory();
    let run = || provider.scope(reports_once("a:b", 7));
    assert_eq!(run().await.unwrap(), "report:a%3Ab:7 7");
    let guard = provider
        .lock(Lock::Report { tenant: "a:b", id: 7 })
        .acquire()
        .await
        .unwrap();
    assert_eq!(run().await.unwrap(), "report:a%3Ab:7 is busy for a:b 7");
    guard.release().await.unwrap();
    assert_eq!(run().await.unwrap(), "report:a%3Ab:7 7");
}
