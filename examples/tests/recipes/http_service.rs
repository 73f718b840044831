//! A service that keeps a report for clients who hold locks elsewhere, and who send their tokens along.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::put;
use mongolock::{Fenced, FencingToken, LockError};
use reqwest::Client;
use tokio::net::TcpListener;

use crate::late_and_next;

const TOKEN: &str = "fencing-token";

type Report = Arc<Fenced<String>>;

async fn write(State(report): State<Report>, headers: HeaderMap, body: String) -> (StatusCode, String) {
    let token = headers
        .get(TOKEN)
        .and_then(|token| token.to_str().ok()?.parse().ok());
    let Some(token) = token else {
        return (
            StatusCode::BAD_REQUEST,
            format!("the header {TOKEN} is missing, or is no number"),
        );
    };
    match report.write(token, |report| *report = body) {
        Ok(()) => (StatusCode::NO_CONTENT, String::new()),
        Err(stale) => (StatusCode::CONFLICT, stale.to_string()),
    }
}

async fn read(State(report): State<Report>) -> String {
    report.read(|report, _| report.clone())
}

/// Serves on a port of its own and gives the address of the report.
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
async fn a_service_refuses_a_late_holder() {
    let (late, next) = late_and_next().await;
    let url = serve(Arc::default()).await;
    let client = Client::new();
    let send = |token: String, text: &'static str| client.put(&url).header(TOKEN, token).body(text).send();

    let written = send(next.to_string(), "the next").await.unwrap();
    assert_eq!(written.status().as_u16(), 204);
    let refused = send(late.to_string(), "too late").await.unwrap();
    assert_eq!(refused.status().as_u16(), 409);
    let reason = refused.text().await.unwrap();
    assert!(
        reason.contains(&late.to_string()) && reason.contains(&next.to_string()),
        "{reason}"
    );
    let nonsense = send("soon".to_owned(), "whose?").await.unwrap();
    assert_eq!(nonsense.status().as_u16(), 400);
    let report = client.get(&url).send().await.unwrap().text().await.unwrap();
    assert_eq!(report, "the next");
}

/// A service that starts again goes on from the token that it has stored with the value.
#[tokio::test]
async fn a_restarted_service_still_refuses() {
    let (late, next) = late_and_next().await;
    let report = Fenced::restored("the next".to_owned(), next);
    let refused = report.write(late, String::clear);
    assert!(matches!(refused, Err(LockError::Stale { token, seen, .. }) if token == late && seen == next));
    assert_eq!(
        report.read(|text, seen| (text.clone(), seen)),
        ("the next".to_owned(), Some(next))
    );
}

/// A change that panics harms nobody but itself.
#[test]
fn a_value_can_be_used_after_a_panic() {
    let value = Fenced::new(1);
    let (first, second) = (FencingToken::from(1), FencingToken::from(2));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = value.write(second, |_| panic!("half-way"));
    }));
    assert!(panicked.is_err());
    assert!(matches!(
        value.write(first, |value| *value = 2),
        Err(LockError::Stale { .. })
    ));
    assert!(value.write(second, |value| *value = 3).is_ok());
    assert_eq!(value.read(|value, _| *value), 3);
}
