//! One instance of the web service: the code to copy. A header stands for the session that a login would find. It is the owner
//! of the leases, which others see, so it must not be the secret of the session. (Several tabs: see "editing sessions".)

use std::{net::Ipv4Addr, time::Duration};

use axum::extract::{Json, Path, State};
use axum::http::{HeaderMap, StatusCode, header::SET_COOKIE};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::post};
use mongodb::{Collection, bson::Document, bson::doc};
use mongolock::{FencedExt, LeaseHandle, LockError, LockProvider};
use mongolock_examples::worker::{self, Worker};
use serde::Deserialize;
use tokio::{net::TcpListener, time::sleep};

/// How long a document stays locked after an instance was killed during a save.
pub(crate) const EXPIRY: Duration = Duration::from_secs(4);

/// How long a document stays locked without another request of its page.
const TTL: Duration = Duration::from_secs(300);

/// What a page sends: the text to save. The two times in seconds are for the demonstration alone: how long a save works before it
/// writes, and a shorter time than [`TTL`].
#[derive(Default, Deserialize)]
#[serde(default)]
struct Body {
    text: String,
    work: u64,
    ttl: Option<u64>,
}

#[derive(Clone)]
struct Service {
    locks: LockProvider,
    documents: Collection<Document>,
}

/// The text for the page, and the handle for its cookie.
type Done = (String, Option<LeaseHandle>);

impl Service {
    /// Returns the text as it is under the lock. If this is cancelled, it releases the lock: nobody has the handle.
    async fn open(&self, id: u32, session: &str, ttl: Duration) -> Result<Done, LockError> {
        let (name, admin) = (lock_name(id), self.locks.admin());
        // The session opens its document anew: the page was reloaded, or an answer was lost. A save under way is not detached.
        let earlier = admin.get(&name).await?.filter(|lock| lock.detached);
        if let Some(earlier) = earlier.filter(|lock| lock.owner.as_deref() == Some(session)) {
            admin.force_release(&name).only_if(earlier.fencing_token).await?;
        }
        let guard = self.locks.lock(name).await?;
        let found = self.documents.find_one(doc! { "_id": id }).await?;
        let text = found.as_ref().and_then(|found| found.get_str("text").ok());
        let handle = guard.detach(ttl).owner(session).await?;
        Ok((text.unwrap_or_default().to_owned(), Some(handle)))
    }

    /// Returns the fencing token. If the write fails, the lock is released: the page opens the document again, and compares.
    async fn save(self, id: u32, handle: LeaseHandle, body: Body, ttl: Duration) -> Result<Done, LockError> {
        let guard = self.locks.resume(&handle).await?;
        sleep(Duration::from_secs(body.work)).await;
        let (token, change) = (guard.fencing_token(), doc! { "$set": { "text": body.text } });
        let documents = self.documents.fenced(token);
        let write = documents.update_one(doc! { "_id": id }, change);
        write.upsert(true).await?;
        let handle = guard.detach(ttl).await?;
        Ok((token.to_string(), Some(handle)))
    }
}

async fn answer(
    State(service): State<Service>,
    Path((id, action)): Path<(u32, String)>,
    headers: HeaderMap,
    Json(body): Json<Body>,
) -> Result<Response, (StatusCode, String)> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let session = header("x-session").ok_or((StatusCode::UNAUTHORIZED, "log in".to_owned()))?;
    let ttl = body.ttl.map_or(TTL, Duration::from_secs).min(TTL);
    let done = match (action.as_str(), handle(header("cookie"), id, session)) {
        ("open", _) => service.open(id, session, ttl).await,
        // In a task of its own: a client that closes its connection cancels this function, but not the save.
        ("save", Some(handle)) => {
            let saving = tokio::spawn(service.save(id, handle, body, ttl));
            saving.await.expect("a save does not panic")
        }
        // No cookie: if the page saves at this moment, its handle is used up, and the cookie of the save must stay.
        ("heartbeat", Some(handle)) => text(service.locks.extend(&handle, ttl).await),
        ("close", Some(handle)) => text(service.locks.release(&handle).await),
        // All documents of the session, also one that is being saved.
        ("end", _) => text(service.locks.admin().release_owner(session).await),
        _ => return Err((StatusCode::CONFLICT, "not open".to_owned())),
    };
    let (text, handle) = done.map_err(|error| match error {
        LockError::Timeout { holder: Some(by), .. } => (StatusCode::LOCKED, format!("locked by {by}")),
        LockError::Timeout { .. } => (StatusCode::LOCKED, "locked".to_owned()),
        LockError::Lost { .. } | LockError::Stale { .. } => (StatusCode::CONFLICT, "lost".to_owned()),
        LockError::InvalidOption { .. } => (StatusCode::BAD_REQUEST, "wrong ttl".to_owned()),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "try again".to_owned()),
    })?;
    let cookie = handle.map(|handle| {
        let place = format!("Path=/{id}; HttpOnly; Secure; SameSite=Strict");
        [(SET_COOKIE, format!("lock={}; {place}", handle.text()))]
    });
    Ok((cookie, text).into_response())
}

/// What was done without a new handle.
fn text(done: Result<impl ToString, LockError>) -> Result<Done, LockError> {
    done.map(|done| (done.to_string(), None))
}

/// The handle in the cookie of a document. That of another session or of another document counts as none.
fn handle(cookies: Option<&str>, id: u32, session: &str) -> Option<LeaseHandle> {
    let mut cookies = cookies?.split("; ");
    let text = cookies.find_map(|cookie| cookie.strip_prefix("lock="))?;
    let handle: LeaseHandle = text.parse().ok()?;
    (handle.owner() == session && handle.names().eq([lock_name(id)])).then_some(handle)
}

fn lock_name(id: u32) -> String {
    format!("document:{id}")
}

pub(crate) async fn run(worker: &Worker) -> anyhow::Result<()> {
    worker::exit_with_parent();
    let database = worker.database().await?;
    let documents = database.collection("documents");
    // Opening does not wait: the page shows who has the document.
    let locks = LockProvider::builder(&database).acquire_timeout(Duration::ZERO);
    let locks = locks.expiry(EXPIRY).build()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    worker::send(&(worker.number, listener.local_addr()?))?;
    let routes = Router::new().route("/{id}/{action}", post(answer));
    Ok(axum::serve(listener, routes.with_state(Service { locks, documents })).await?)
}
