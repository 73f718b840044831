use mongolock::{LockError, distributed_lock};

trait Kind {
    const KIND: &'static str;
}

#[distributed_lock(name = "report:<T>")]
async fn rebuild<T: Kind>(kind: T) -> Result<(), LockError> {
    let _ = (kind, T::KIND);
    Ok(())
}

#[distributed_lock(name = "report:<Report.id>")]
async fn in_words<Report: Kind>(report: Report) -> Result<(), LockError> {
    let _ = (report, Report::KIND);
    Ok(())
}

fn main() {}
