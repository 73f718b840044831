//! Browsers of the program `edit_document`, and of its tests.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use mongolock_tests::eventually;
use reqwest::header::{COOKIE, SET_COOKIE};
use serde::Serialize;

use crate::print;

/// An instance of the service: its number, and where it listens.
pub type Instance = (u32, SocketAddr);

/// The limit for a request that is repeated, such as opening a document that others edit.
const LIMIT: Duration = Duration::from_secs(120);

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

    /// Sends a request of the page of a document, such as `7/save`, and returns the status and the text of the answer.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn post(
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

    /// Sends a request, and checks that the answer has this status. Returns its text.
    ///
    /// # Errors
    /// When it has another status.
    pub async fn expect(
        &self,
        to: Instance,
        path: &str,
        body: &impl Serialize,
        status: u16,
    ) -> anyhow::Result<String> {
        let (found, text) = self.post(to, path, body).await?;
        self.check(to, path, status, (found, text))
    }

    /// Sends a request again and again until the answer has this status, as [`expect`](Self::expect) does. Only an answer that
    /// the document is locked, or stays so, is followed by a repetition.
    ///
    /// # Errors
    /// When another status comes before, or this one does not come in time.
    pub async fn until(
        &self,
        to: Instance,
        path: &str,
        body: &impl Serialize,
        status: u16,
    ) -> anyhow::Result<String> {
        let repeats = |found: u16| found != status && (found == 423 || path.ends_with("/heartbeat"));
        let answer = || async {
            let answer = self.post(to, path, body).await;
            answer.map_or_else(|error| Some(Err(error)), |it| (!repeats(it.0)).then_some(Ok(it)))
        };
        let answer = eventually(LIMIT, &format!("{status} for {path}"), answer).await??;
        self.check(to, path, status, answer)
    }

    fn check(
        &self,
        (number, _): Instance,
        path: &str,
        status: u16,
        (found, text): (u16, String),
    ) -> anyhow::Result<String> {
        let session = &self.session;
        if self.prints {
            print(format!("{session:>8}  {path:<12} on {number}: {found} {text:?}"))?;
        }
        ensure!(
            found == status,
            "{session} {path} on {number}: {found} {text:?} instead of {status}"
        );
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
