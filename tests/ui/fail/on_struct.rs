use mongolock::distributed_lock;

#[distributed_lock(name = "job")]
#[derive(Debug)]
pub struct Service;

fn main() {}
