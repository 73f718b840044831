//! One instance of the web service: the code to copy. A header stands for the session that a login would find. It is the owner
//! of the leases, which others see, so it must not be the secret of the session.

use std::net::Ipv4Addr;
use std::time::Duration;

use axum::extract::{Json, Path, State};
use axum::http::header::{COOKIE, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::post};
use mongodb::Collection;
use mongodb::bson::{Document, doc};
use mongolock::{FencedExt, LeaseHandle, LockError, LockProvider};
use mongolock_examples::worker::{self, Worker};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

/// How long a document stays locked after an instance was killed during a save.
pub(crate) const EXPIRY: Duration = Duration::from_secs(4);

/// The text to save, how long the save works before it writes, and how long the document stays locked without a request.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Body {
    pub(crate) text: String,
    pub(crate) work: Duration,
    pub(crate) ttl: Duration,
}

#[derive(Clone)]
struct Service {
    locks: LockProvider,
    documents: Collection<Document>,
}

/// The text for the page, and the new handle for its cookie.
type Done = Result<(String, Option<LeaseHandle>), LockError>;

impl Service {
    /// Returns the text as it is under the lock. If it is cancelled, it releases the lock: nobody has the handle.
    async fn open(&self, id: u32, session: &str, ttl: Duration) -> Done {
        let guard = self.locks.lock(lock_name(id)).await?;
        let found = self.documents.find_one(doc! { "_id": id }).await?;
        let text = found.as_ref().and_then(|found| found.get_str("text").ok());
        let handle = guard.detach(ttl).owner(session).await?;
        Ok((text.unwrap_or_default().to_owned(), Some(handle)))
    }

    /// Returns the fencing token of the write. If it fails after the resume, the lock is released: the page opens the document
    /// again, and compares.
    async fn save(self, id: u32, handle: LeaseHandle, body: Body) -> Done {
        let guard = self.locks.resume(&handle).await?;
        tokio::time::sleep(body.work).await;
        let token = guard.fencing_token();
        let (document, change) = (doc! { "_id": id }, doc! { "$set": { "text": body.text } });
        let write = self.documents.fenced(token).update_one(document, change);
        write.upsert(true).await?;
        Ok((token.to_string(), Some(guard.detach(body.ttl).await?)))
    }
}

async fn answer(
    State(service): State<Service>,
    Path((id, action)): Path<(u32, String)>,
    headers: HeaderMap,
    Json(body): Json<Body>,
) -> Response {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(session) = header("x-session") else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    let cookies = header(COOKIE.as_str()).unwrap_or_default();
    let done = match (action.as_str(), handle(cookies, id, session)) {
        ("open", _) => service.open(id, session, body.ttl).await,
        // No cookie: if the page saves at this moment, its handle is used up, and the cookie of the save must stay.
        ("heartbeat", Some(handle)) => {
            let kept = service.locks.extend(&handle, body.ttl).await;
            kept.map(|_| ("kept".to_owned(), None))
        }
        // In a task of its own: a client that closes its connection cancels this function, but not the save.
        ("save", Some(handle)) => {
            let saving = tokio::spawn(service.save(id, handle, body));
            saving.await.expect("a save does not panic")
        }
        ("close", Some(handle)) => {
            let was_locked = service.locks.release(&handle).await;
            was_locked.map(|was_locked| (was_locked.to_string(), None))
        }
        // All documents of the session, also one that is being saved.
        ("end", _) => {
            let released = service.locks.admin().release_owner(session).await;
            released.map(|released| (released.to_string(), None))
        }
        _ => return (StatusCode::CONFLICT, "not open").into_response(),
    };
    match done {
        Ok((text, None)) => text.into_response(),
        Ok((text, Some(handle))) => {
            let place = format!("Path=/{id}; HttpOnly; Secure; SameSite=Strict");
            let cookie = format!("lock={}; {place}", handle.text());
            ([(SET_COOKIE, cookie)], text).into_response()
        }
        Err(LockError::Timeout { holder, .. }) => {
            let holder = holder.unwrap_or_default();
            (StatusCode::LOCKED, format!("locked by {holder}")).into_response()
        }
        Err(LockError::Lost { .. } | LockError::Stale { .. }) => {
            (StatusCode::CONFLICT, "lost").into_response()
        }
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "try again").into_response(),
    }
}

/// The handle in the cookie of a document. That of another session or of another document counts as none.
fn handle(cookies: &str, id: u32, session: &str) -> Option<LeaseHandle> {
    let text = cookies
        .split("; ")
        .find_map(|cookie| cookie.strip_prefix("lock="));
    let handle: LeaseHandle = text?.parse().ok()?;
    (handle.owner() == session && handle.names().eq([lock_name(id)])).then_some(handle)
}

pub(crate) fn lock_name(id: u32) -> String {
    format!("document:{id}")
}

pub(crate) async fn run(worker: &Worker) -> anyhow::Result<()> {
    worker::exit_with_parent();
    let database = worker.database().await?;
    // Opening does not wait: the page shows who has the document.
    let locks = LockProvider::builder(&database)
        .expiry(EXPIRY)
        .acquire_timeout(Duration::ZERO);
    let (locks, documents) = (locks.build()?, database.collection("documents"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    worker::send(&(worker.number, listener.local_addr()?))?;
    let routes = Router::new().route("/{id}/{action}", post(answer));
    Ok(axum::serve(listener, routes.with_state(Service { locks, documents })).await?)
}
