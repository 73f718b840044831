use mongolock::LockName;

struct Opaque;

#[derive(LockName)]
enum Lock {
    #[lock("report:<tenent>:<id>")]
    Report { tenant: String, id: u64 },
    #[lock("invoice:<1>")]
    Invoice(u32),
    #[lock("order:{0}")]
    Order(u32),
    #[lock("user:<self.id>")]
    User { id: u32 },
    #[lock("page:<0><1>")]
    Page(u32, u32),
    #[lock("discount:<0>%<1>")]
    Discount(u32, u32),
}

#[derive(LockName)]
#[lock("opaque:<inner>:<option>")]
struct NotDisplay {
    inner: Opaque,
    option: Option<u8>,
}

fn main() {}
