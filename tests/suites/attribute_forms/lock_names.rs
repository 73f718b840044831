//! Lock names that are declared with `#[derive(LockName)]`.

#![deny(warnings)]

use std::cell::Cell;
use std::fmt::Display;
use std::marker::PhantomData;
use std::sync::Mutex;

use mongolock::{IntoLockName, LockContext, LockError, LockName, LockProvider, distributed_lock};

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

#[derive(Debug, Clone, LockName)]
#[lock("<T::KIND>:<number>:<N>:<Self::SUFFIX>")]
struct Shard<T: Kind, const N: usize>
where
    T: Clone,
{
    number: u8,
    of: PhantomData<T>,
}

trait Kind {
    const KIND: &'static str;
}

impl<T: Kind + Clone, const N: usize> Shard<T, N> {
    const SUFFIX: char = 'z';
}

struct Repository<T>(T);

impl Kind for () {
    const KIND: &'static str = "us:er";
}

impl<T: Kind + Clone> Repository<T> {
    #[distributed_lock(name = Shard::<T, 4> { number, of: PhantomData })]
    async fn scan(&self, number: u8, #[lock] lock: LockContext) -> Result<String, LockError> {
        Ok(lock.name().to_owned())
    }
}

#[tokio::test]
async fn a_generic_declaration_has_constants() -> Result<(), LockError> {
    let scan = async { Repository(()).scan(1).await };
    assert_eq!(LockProvider::in_memory().scope(scan).await?, "us%3Aer:1:4:z");
    Ok(())
}

#[test]
fn a_value_knows_its_name_and_its_template() {
    let order = Order {
        number: 7,
        region: "e:u".to_owned(),
    };
    let report = Lock::Report {
        tenant: "a:b%",
        id: 3,
    };
    assert_eq!(report.template(), "report:<tenant>:<id>");
    let raw = Lock::Raw { r#type: "t".into() };
    assert_eq!(raw.template(), "raw <<<type>>>");
    for (lock, name) in [
        (report, "report:a%3Ab%25:3"),
        (Lock::Invoice(4), "invoice:4"),
        (Lock::Order { order: &order }, "order:e%3Au:7"),
        (Lock::Pair((-1, 2), "x/y".to_owned()), "pair:x%2Fy/-1"),
        (raw, "raw <t>"),
        (Lock::Nightly, "nightly"),
    ] {
        assert_eq!(lock.name(), name);
    }
}

#[test]
fn a_value_and_its_references_name_the_same_lock() {
    fn name_of(name: impl IntoLockName) -> String {
        LockProvider::in_memory().lock(name).name().to_owned()
    }
    fn any(name: &(impl Display + ?Sized)) -> String {
        name_of(name)
    }
    let lock = Lock::Invoice(1);
    assert_eq!(name_of(&&lock), "invoice:1");
    assert_eq!(name_of(&lock), "invoice:1");
    assert_eq!(name_of(lock), "invoice:1");
    assert_eq!(name_of(&&&"text"), "text");
    assert_eq!(name_of(format_args!("{}", 1)), "1");
    assert_eq!(any("text"), "text");
}

/// The steps of a call, in their order.
static STEPS: Mutex<Vec<&str>> = Mutex::new(Vec::new());

fn step<T>(name: &'static str, value: T) -> T {
    STEPS.lock().expect("no panic").push(name);
    value
}

async fn later(number: u32) -> Result<u32, LockError> {
    tokio::task::yield_now().await;
    let is_held = LockContext::current().is_some();
    assert!(!is_held, "fields are evaluated before the lock is acquired");
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
    let is_meant = matches!(&error, LockError::InvalidName { .. }) && error.to_string().contains("<tenant>");
    assert!(is_meant, "{}", error);
    assert_eq!(empty.name(), "report::1");
    assert!(provider.lock(empty.name()).acquire().await.is_ok());
}

mod framework {
    pub use mongolock as locks;
}

#[derive(framework::locks::LockName)]
#[lock("elsewhere", crate = framework::locks)]
struct Elsewhere;

/// A declaration that `macro_rules!` makes, whose types are in invisible groups, and a function whose lock name comes from the
/// caller.
macro_rules! declare {
    ($name:ident, $template:literal, $field:ident: $ty:ty, $other:literal, $function:ident, $lock:expr) => {
        #[derive(LockName)]
        enum $name {
            #[lock($template)]
            One { $field: $ty },
            #[lock($other)]
            Other,
        }

        #[distributed_lock(name = $lock)]
        async fn $function($field: u64, #[lock] lock: LockContext) -> Result<[String; 2], LockError> {
            let template = lock.template().expect("the lock has a template");
            Ok([lock.name(), template].map(str::to_owned))
        }
    };
}

declare!(Declared, "declared:<id>", id: u64, "declared:all", by_macro, Declared::One { id });

#[tokio::test]
async fn declarations_by_other_means_compile() -> Result<(), LockError> {
    assert_eq!(Elsewhere.name(), "elsewhere");
    assert_eq!(Declared::Other.template(), "declared:all");
    let found = LockProvider::in_memory().scope(by_macro(2)).await?;
    assert_eq!(found, ["declared:2", "declared:<id>"]);
    Ok(())
}
