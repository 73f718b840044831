//! Mistakes in a body and around a call: the compiler reports them where it would without the attribute.

use std::rc::Rc;

use mongolock::{LockError, LockProvider, distributed_lock};

// Types.
#[distributed_lock(name = "job:<id>")]
async fn type_mismatch(id: u64) -> Result<u64, LockError> {
    if id == 0 {
        return Ok("none");
    }
    Ok(id.to_string())
}

#[distributed_lock(name = "job:<id>")]
async fn without_tail(id: u64) -> Result<u64, LockError> {
    let doubled = id * 2;
    println!("{doubled}");
}

#[distributed_lock(name = "job:<path>")]
async fn question_mark(path: &str) -> Result<String, LockError> {
    Ok(std::fs::read_to_string(path)?)
}

// Borrows.
#[distributed_lock(name = "job")]
async fn borrow_escapes() -> Result<&'static str, LockError> {
    let text = String::new();
    Ok(&text)
}

#[distributed_lock(name = "job:<id>")]
async fn use_after_move(id: String) -> Result<(), LockError> {
    drop(id);
    println!("{id}");
    Ok(())
}

// The provider takes the value away from the body.
#[distributed_lock(name = "job", provider = provider_of(id))]
async fn use_after_move_into_the_provider(id: String) -> Result<(), LockError> {
    println!("{id}");
    Ok(())
}

fn provider_of(_: String) -> LockProvider {
    LockProvider::in_memory()
}

// Futures that are not `Send`.
#[distributed_lock(name = "job")]
async fn not_send() -> Result<(), LockError> {
    let shared = Rc::new(1);
    tokio::task::yield_now().await;
    println!("{shared}");
    Ok(())
}

#[distributed_lock(name = "output")]
async fn output_not_send() -> Result<Rc<u64>, LockError> {
    Ok(Rc::new(1))
}

fn spawn() {
    tokio::spawn(not_send());
    tokio::spawn(output_not_send());
}

fn main() {}
