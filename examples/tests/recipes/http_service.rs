//! A service that stores a report for clients that hold locks elsewhere, and that send their tokens.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::put;
use mongolock::{Fenced, FencingToken, LockError};
use reqwest::Client;
use tokio::net::TcpListener;

use crate::stale_and_next;

const TOKEN: &str = "fencing-token";

type Report = Arc<Fenced<String>>;

/// The answers have fixed texts: the text of an error is for the log of the service.
async fn write(State(report): State<Report>, headers: HeaderMap, body: String) -> (StatusCode, &'static str) {
    let token = headers
        .get(TOKEN)
        .and_then(|token| token.to_str().ok()?.parse().ok());
    let Some(token) = token else {
        return (
            StatusCode::BAD_REQUEST,
            "the header fencing-token is missing or not a number",
        );
    };
    match report.write(token, |report| *report = body) {
        Ok(()) => (StatusCode::NO_CONTENT, ""),
        Err(_) => (StatusCode::CONFLICT, "a newer lock holder has already written"),
    }
}

async fn read(State(report): State<Report>) -> String {
    report.read(|report, _| report.clone())
}

/// Serves on a port of its own, and returns the address of the report.
async fn serve(report: Report) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = Router::new()
        .route("/report", put(write).get(read))
        .with_state(report);
    tokio::spawn(async move { axum::serve(listener, service).await });
    format!("http://{address}/report")
}

#[tokio::test]
async fn a_service_rejects_a_stale_holder() {
    let (stale, next) = stale_and_next().await;
    let url = serve(Arc::default()).await;
    let client = Client::new();
    let send = async |token: &str, text: &'static str| {
        let sent = client
            .put(&url)
            .header(TOKEN, token)
            .body(text)
            .send()
            .await
            .unwrap();
        (sent.status().as_u16(), sent.text().await.unwrap())
    };

    assert_eq!(send(&next.to_string(), "the next").await.0, 204);
    let rejected = send(&stale.to_string(), "stale").await;
    assert_eq!(
        rejected,
        (409, "a newer lock holder has already written".to_owned())
    );
    assert_eq!(send("soon", "without a token").await.0, 400);
    let report = client.get(&url).send().await.unwrap().text().await.unwrap();
    assert_eq!(report, "the next");
}

/// A service that restarts continues with the token that it has stored with the value.
#[tokio::test]
async fn a_restarted_service_still_rejects() {
    let (stale, next) = stale_and_next().await;
    let report = Fenced::restored("the next".to_owned(), next);
    let rejected = report.write(stale, String::clear);
    assert!(matches!(rejected, Err(LockError::Stale { token, seen, .. }) if token == stale && seen == next));
    let (text, seen) = report.read(|text, seen| (text.clone(), seen));
    assert_eq!((text.as_str(), seen), ("the next", Some(next)));
}

/// A change that panics does not affect later changes.
#[test]
fn a_value_can_be_used_after_a_panic() {
    let value = Fenced::new(1);
    let (first, second) = (FencingToken::from(1), FencingToken::from(2));
    let panicking = AssertUnwindSafe(|| value.write(second, |_| panic!("half-way")));
    assert!(catch_unwind(panicking).is_err());
    let stale = value.write(first, |value| *value = 2);
    assert!(matches!(stale, Err(LockError::Stale { .. })));
    assert!(value.write(second, |value| *value = 3).is_ok());
    assert_eq!(value.read(|value, _| *value), 3);
}
