use mongolock::distributed_lock;

#[distributed_lock(name = "job")]
async fn job() {
    println!("done");
}

#[distributed_lock(name = "job")]
async fn unit() -> () {

}

fn main() {}
