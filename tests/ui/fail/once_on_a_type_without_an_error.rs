use std::collections::BTreeMap;

use mongolock::distributed_lock;

#[distributed_lock(name = "job", once = true)]
async fn once() -> Option<u64> {
    Some(1)
}

#[distributed_lock(name = "job", once_per = "1d")]
async fn plain() -> u64 {
    1
}

#[distributed_lock(name = "job", once_per = "1d", on_busy = "fail")]
async fn other_error() -> Result<BTreeMap<u64, String>, std::io::Error> {
    Ok(BTreeMap::new())
}

fn main() {}
