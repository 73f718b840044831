//! Every return type that can carry a `LockError`, including type aliases.

#![deny(warnings)]

use std::fmt::Display;

use mongolock::{LockError, LockOutput, LockProvider, Skipped, distributed_lock};

type Res<T> = Result<T, LockError>;

#[derive(Debug)]
enum JobError {
    Lock(LockError),
    Other,
}

impl From<LockError> for JobError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

#[distributed_lock(name = "c")]
async fn own_error(fail: bool) -> Result<(), JobError> {
    if fail { Err(JobError::Other) } else { Ok(()) }
}

#[distributed_lock(name = "g")]
async fn nested_opaque(texts: &[String]) -> Res<(Vec<impl Display + '_>, Option<impl Display + use<>>)> {
    Ok((texts.iter().map(|text| text.as_str()).collect(), Some(3)))
}

#[distributed_lock(name = "i")]
async fn function_pointer(up: bool) -> Res<fn(u8) -> u8> {
    if up {
        return Ok(|x| x + 1);
    }
    Ok(|x| x)
}

/// A return type that has nothing to do with `Result`.
#[derive(Debug, PartialEq)]
pub(crate) struct Response(pub(crate) u16);

impl LockOutput for Response {
    type Success = u16;

    fn from_success(value: u16) -> Self {
        Self(value)
    }

    fn from_lock_error(_: LockError) -> Self {
        Self(503)
    }

    fn is_success(&self) -> bool {
        self.0 < 400
    }
}

#[distributed_lock(name = "k")]
async fn own_type() -> Response {
    Response(200)
}

#[derive(Debug, PartialEq)]
enum Tick {
    Done,
    Skipped,
}

impl Skipped for Tick {
    fn skipped() -> Self {
        Self::Skipped
    }
}

#[distributed_lock(name = "l", on_busy = "skip")]
async fn skips() -> Result<Tick, JobError> {
    Ok(Tick::Done)
}

#[distributed_lock(name = "n", on_busy = "skip")]
async fn skips_opaque() -> anyhow::Result<Option<impl Display>> {
    Ok(Some("x"))
}

#[distributed_lock(name = "o", on_busy = "fail")]
#[must_use]
async fn fails() -> Res<std::rc::Rc<u8>> {
    Ok(std::rc::Rc::new(1))
}

#[tokio::test]
async fn every_return_type_that_can_carry_a_lock_error() -> anyhow::Result<()> {
    let without = own_error(false).await;
    assert!(matches!(without, Err(JobError::Lock(LockError::NoProvider))));
    let provider = LockProvider::in_memory();
    provider
        .scope(async {
            assert!(matches!(own_error(true).await, Err(JobError::Other)));
            assert!(own_error(false).await.is_ok());
            assert_eq!(nested_opaque(&["a".to_owned()]).await?.0[0].to_string(), "a");
            assert_eq!(function_pointer(true).await?(1), 2);
            assert_eq!(own_type().await.0, 200);
            assert_eq!(skips().await.unwrap(), Tick::Done);
            assert!(skips_opaque().await?.is_some());
            assert_eq!(*fails().await?, 1);
            Ok::<_, anyhow::Error>(())
        })
        .await?;
    let _busy = [
        provider.lock("l").acquire().await?,
        provider.lock("n").acquire().await?,
    ];
    let _other = provider.lock("o").acquire().await?;
    provider
        .scope(async {
            assert_eq!(skips().await.unwrap(), Tick::Skipped);
            assert!(skips_opaque().await?.is_none());
            assert!(matches!(fails().await, Err(LockError::Busy { .. })));
            Ok(())
        })
        .await
}
