//! The fixed part of the generated program.

#![allow(unused)]

use std::future::Future;
use std::pin::Pin;

use mongolock::{LockError, LockProvider, distributed_lock};

#[derive(Debug)]
struct AppError(String);

impl From<LockError> for AppError {
    fn from(error: LockError) -> Self {
        Self(error.to_string())
    }
}

#[inline(never)]
async fn step(id: u64) -> Result<u64, AppError> {
    tokio::task::yield_now().await;
    if id == u64::MAX { Err(AppError("the last".to_owned())) } else { Ok(id) }
}

async fn plain(provider: &LockProvider, id: u64) -> Result<u64, AppError> {
    step(id).await
}

#[distributed_lock(name = "call:<id>", provider = provider)]
async fn annotated(provider: &LockProvider, id: u64) -> Result<u64, AppError> {
    step(id).await
}

async fn closure(provider: &LockProvider, id: u64) -> Result<u64, AppError> {
    let lock = provider.lock(format_args!("call:{id}"));
    lock.run(|_| async move { step(id).await }).await
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let calls = arguments.get(2).map_or(0, |calls| calls.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let provider = LockProvider::in_memory();
        match arguments.get(1).map(String::as_str) {
            Some("size") => {
                println!("{}", size_of_val(&annotated(&provider, 1)) - size_of_val(&plain(&provider, 1)));
            }
            Some("attribute") => {
                for id in 0..calls {
                    annotated(&provider, id % 7).await.unwrap();
                }
            }
            Some("run") => {
                for id in 0..calls {
                    closure(&provider, id % 7).await.unwrap();
                }
            }
            _ => {
                for job in JOBS {
                    job(1).await.unwrap();
                }
            }
        }
    });
}
