//! Browsers of the program `edit_document`, and of its tests.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use mongolock_tests::eventually;
use reqwest::header::{COOKIE, SET_COOKIE};
use serde::Serialize;

use crate::print;
use crate::workers::Processes;

/// An instance of the service: its number, and where it listens.
pub type Instance = (u32, SocketAddr);

/// Waits until as many processes, which have been started, say where they listen, and returns that in the order of their numbers.
///
/// # Errors
/// When a process ends before.
pub async fn instances<const N: usize>(processes: &mut Processes) -> anyhow::Result<[Instance; N]> {
    let mut instances = [(0, SocketAddr::from(([0; 4], 0))); N];
    for instance in &mut instances {
        *instance = processes.next().await?.context("an instance has ended")?;
    }
    instances.sort_unstable();
    Ok(instances)
}

/// The limit for a request that is repeated, such as opening a document that others edit.
pub const LIMIT: Duration = Duration::from_secs(120);

/// The browser of one session, with a cookie for each document.
#[derive(Debug)]
pub struct Browser {
    session: String,
    prints: bool,
    http: reqwest::Client,
    /// The last `Set-Cookie` for each document.
    cookies: Mutex<HashMap<String, String>>,
}

impl Browser {
    /// A browser whose user is logged in. It `prints` the answers that are checked.
    ///
    /// # Errors
    /// When the HTTP client cannot be created.
    pub fn new(session: impl Into<String>, prints: bool) -> anyhow::Result<Self> {
        Ok(Self {
            session: session.into(),
            prints,
            // A proxy of the environment does not apply.
            http: reqwest::Client::builder().no_proxy().build()?,
            cookies: Mutex::default(),
        })
    }

    /// Sends a request of the page of a document, such as `7/save`, and returns the status and the text of the answer. After the
    /// answer 503 (try again) it is repeated.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn post(
        &self,
        to: Instance,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<(u16, String)> {
        let answer = || async {
            let answer = self.post_once(to, path, body).await;
            Some(answer).filter(|answer| !answer.as_ref().is_ok_and(|(status, _)| *status == 503))
        };
        eventually(LIMIT, "an answer that is not 503", answer).await?
    }

    async fn post_once(
        &self,
        (_, address): Instance,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<(u16, String)> {
        let document = path.split('/').next().unwrap_or_default();
        let mut request = self.http.post(format!("http://{address}/{path}")).json(body);
        request = request.header("x-session", &self.session);
        if let Some(cookie) = self.cookie(document) {
            let sent = cookie.split(';').next().unwrap_or_default();
            request = request.header(COOKIE, sent);
        }
        let response = request.send().await?;
        if let Some(cookie) = response.headers().get(SET_COOKIE) {
            self.set_cookie(document, cookie.to_str()?);
        }
        Ok((response.status().as_u16(), response.text().await?))
    }

    /// Sends a request, and checks that the answer has this status and, unless it is empty, this text. Returns the text.
    ///
    /// # Errors
    /// When it has another one.
    pub async fn expect(
        &self,
        to: Instance,
        path: &str,
        body: &impl Serialize,
        wanted: (u16, &str),
    ) -> anyhow::Result<String> {
        let answer = self.post(to, path, body).await?;
        self.check(to, path, wanted, answer)
    }

    /// Repeats a request until the answer has this status, and checks it as [`expect`](Self::expect) does. Only the answers 423
    /// (locked by another session), and any other answer to a heartbeat, are followed by a repetition.
    ///
    /// # Errors
    /// When another answer comes before, or this one does not come in time.
    pub async fn until(
        &self,
        to: Instance,
        path: &str,
        body: &impl Serialize,
        wanted: (u16, &str),
    ) -> anyhow::Result<String> {
        let repeats = |found: u16| found != wanted.0 && (found == 423 || path.ends_with("/heartbeat"));
        let answer = || async {
            let answer = self.post(to, path, body).await;
            answer.map_or_else(|error| Some(Err(error)), |it| (!repeats(it.0)).then_some(Ok(it)))
        };
        let answer = eventually(LIMIT, &format!("{} for {path}", wanted.0), answer).await??;
        self.check(to, path, wanted, answer)
    }

    fn check(
        &self,
        (number, _): Instance,
        path: &str,
        wanted: (u16, &str),
        (status, text): (u16, String),
    ) -> anyhow::Result<String> {
        let line = format!("{:>8}  {path:<12} on {number}: {status} {text:?}", self.session);
        ensure!(
            status == wanted.0 && (wanted.1.is_empty() || text == wanted.1),
            "{line} instead of {wanted:?}"
        );
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
