//! The suite `attribute_forms` in another edition, and a function that is unsafe, which the workspace forbids.

#[path = "../suites/attribute_forms/main.rs"]
mod attribute_forms;

use mongolock::{LockError, LockProvider, distributed_lock};

/// # Safety
///
/// None needed.
unsafe fn one() -> u8 {
    1
}

#[allow(unsafe_op_in_unsafe_fn)]
#[distributed_lock(name = "unsafe:<id>", provider = LockProvider::in_memory())]
async unsafe fn is_unsafe(id: u8) -> Result<u8, LockError> {
    Ok(id + one())
}

#[tokio::test]
async fn the_body_of_an_unsafe_function_is_unsafe() {
    assert_eq!(unsafe { is_unsafe(1) }.await.unwrap(), 2);
}
