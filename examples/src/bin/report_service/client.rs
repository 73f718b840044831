//! A client of one instance, as users of the service write one.

use std::time::Duration;

use anyhow::Context;
use reqwest::StatusCode;
use reqwest::header::RETRY_AFTER;

use crate::answer::{Changed, Content, Problem, Request};

/// Longer than any request of the demonstration takes.
const LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) instance: u32,
    pub(crate) url: String,
    http: reqwest::Client,
}

/// The answer to a request to change a report.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The one that was asked.
    pub(crate) instance: u32,
    pub(crate) id: u32,
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) answer: Result<Changed, Problem>,
    /// The request was sent again, as `retry_after` had asked for.
    pub(crate) again: bool,
}

impl Client {
    pub(crate) fn new(instance: u32, url: String) -> anyhow::Result<Self> {
        // The instances are on this machine, whatever proxy the environment names.
        let http = reqwest::Client::builder().timeout(LIMIT).no_proxy().build()?;
        Ok(Self { instance, url, http })
    }

    pub(crate) async fn change(&self, id: u32, request: &Request) -> anyhow::Result<Reply> {
        self.send_change(id, request).await.with_context(|| {
            format!(
                "no answer from instance {} to a change of report {id}",
                self.instance
            )
        })
    }

    async fn send_change(&self, id: u32, request: &Request) -> reqwest::Result<Reply> {
        let response = self.http.post(self.report(id)).json(request).send().await?;
        let status = response.status();
        let seconds = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        let answer = if status.is_success() {
            Ok(response.json().await?)
        } else {
            Err(response.json().await?)
        };
        Ok(Reply {
            instance: self.instance,
            id,
            status,
            retry_after: seconds.map(Duration::from_secs),
            answer,
            again: false,
        })
    }

    pub(crate) async fn read(&self, id: u32) -> anyhow::Result<Content> {
        let reading = async || {
            let response = self.http.get(self.report(id)).send().await?;
            response.error_for_status()?.json().await
        };
        reading()
            .await
            .with_context(|| format!("no report {id} from instance {}", self.instance))
    }

    fn report(&self, id: u32) -> String {
        format!("{}/reports/{id}", self.url)
    }
}
