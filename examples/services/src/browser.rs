//! Instances of the web services, and what their clients send them: requests, and the browsers of `edit_document`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mongolock_examples::print;
use mongolock_examples::workers::Processes;
use mongolock_tests::eventually;
use reqwest::header::{COOKIE, RETRY_AFTER, SET_COOKIE};
use reqwest::{Client, RequestBuilder};
use serde_json::Value;

/// An instance of the service: its number, and where it listens.
pub type Instance = (u32, SocketAddr);

/// Waits until as many processes, which have been started, say where they listen, and returns that in the order of their numbers.
pub async fn instances<const N: usize>(processes: &mut Processes) -> Result<[Instance; N]> {
    let mut instances = [(0, SocketAddr::from(([0; 4], 0))); N];
    for instance in &mut instances {
        *instance = processes.next().await?.context("an instance has ended")?;
    }
    instances.sort_unstable();
    Ok(instances)
}

/// The answer to a request.
#[derive(Debug, Default)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The seconds of `Retry-After`.
    pub retry_after: Option<u64>,
    /// The `Set-Cookie`.
    pub cookie: Option<String>,
    /// The body.
    pub text: String,
    /// The time from the request to the answer.
    pub took: Duration,
}

/// A request to an instance. A proxy of the environment does not apply.
pub fn request((_, address): Instance, path: &str) -> Result<RequestBuilder> {
    let client = Client::builder().no_proxy().build()?;
    Ok(client.post(format!("http://{address}/{path}")))
}

/// Sends a request.
pub async fn answer(request: RequestBuilder) -> Result<Answer> {
    let sent = Instant::now();
    let response = request.send().await?;
    let header = |name| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
    Ok(Answer {
        status: response.status().as_u16(),
        retry_after: header(RETRY_AFTER).and_then(|seconds| seconds.parse().ok()),
        cookie: header(SET_COOKIE),
        text: response.text().await?,
        took: sent.elapsed(),
    })
}

/// The limit for a request that is repeated, such as opening a document that others edit.
pub const LIMIT: Duration = Duration::from_secs(120);

/// The browser of one session, whose user is logged in, with a cookie for each document.
#[derive(Debug)]
pub struct Browser {
    session: String,
    prints: bool,
    /// The last `Set-Cookie` for each document.
    cookies: Mutex<HashMap<String, String>>,
}

/// The status of an answer, and its text unless that is empty.
type Wanted = (u16, &'static str);

impl Browser {
    /// The browser of this session. It `prints` the answers that are checked.
    pub fn new(session: impl Into<String>, prints: bool) -> Self {
        let (session, cookies) = (session.into(), Mutex::default());
        Self {
            session,
            prints,
            cookies,
        }
    }

    /// Sends a request of the page of a document, such as `7/save`. After the answer 503 (try again) it is repeated.
    pub async fn post(&self, to: Instance, path: &str, body: &Value) -> Result<Answer> {
        let document = path.split('/').next().unwrap_or_default();
        let post = || async {
            let cookie = self.cookie(document).unwrap_or_default();
            let sent = cookie.split(';').next().unwrap_or_default();
            let request = request(to, path)?.json(body).header(COOKIE, sent);
            let answer = answer(request.header("x-session", &self.session)).await?;
            if let Some(cookie) = &answer.cookie {
                self.set_cookie(document, cookie);
            }
            anyhow::Ok(answer)
        };
        let is_last = |answer: &Answer| answer.status != 503;
        let answer = || async { Some(post().await).filter(|it| it.as_ref().map_or(true, is_last)) };
        eventually(LIMIT, "an answer that is not 503", answer).await?
    }

    /// Sends a request, and checks its answer. Returns the text.
    pub async fn expect(&self, to: Instance, path: &str, body: &Value, wanted: Wanted) -> Result<String> {
        let answer = self.post(to, path, body).await?;
        self.check(to, path, wanted, answer)
    }

    /// Repeats a request until the answer has this status, and checks it as [`expect`](Self::expect) does. Only the answers 423
    /// (locked by another session), and any other answer to a heartbeat, are followed by a repetition.
    pub async fn until(&self, to: Instance, path: &str, body: &Value, wanted: Wanted) -> Result<String> {
        let is_last = |found: u16| found == wanted.0 || (found != 423 && !path.ends_with("/heartbeat"));
        let answer = || async {
            let answer = self.post(to, path, body).await;
            Some(answer).filter(|it| it.as_ref().map_or(true, |it| is_last(it.status)))
        };
        let answer = eventually(LIMIT, &format!("{} for {path}", wanted.0), answer).await??;
        self.check(to, path, wanted, answer)
    }

    fn check(&self, to: Instance, path: &str, wanted: Wanted, answer: Answer) -> Result<String> {
        let (status, text) = (answer.status, answer.text);
        let line = format!("{:>8}  {path:<12} on {}: {status} {text:?}", self.session, to.0);
        let is_it = status == wanted.0 && (wanted.1.is_empty() || text == wanted.1);
        ensure!(is_it, "{line} instead of {wanted:?}");
        if self.prints {
            print(line)?;
        }
        Ok(text)
    }

    /// The last `Set-Cookie` for a document.
    #[must_use]
    pub fn cookie(&self, document: &str) -> Option<String> {
        let cookies = self.cookies.lock().unwrap_or_else(PoisonError::into_inner);
        cookies.get(document).cloned()
    }

    /// Sets the cookie for a document.
    pub fn set_cookie(&self, document: &str, cookie: &str) {
        let mut cookies = self.cookies.lock().unwrap_or_else(PoisonError::into_inner);
        cookies.insert(document.to_owned(), cookie.to_owned());
    }
}
