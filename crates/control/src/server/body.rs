//! The bodies of requests, read in one place.

use super::problem::Error;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use std::time::Duration;
use tailbound_client::Code;
use tokio::time::timeout;

/// A body that has not come whole within this time does not come.
const PATIENCE: Duration = Duration::from_secs(30);
/// So much of a body that nobody wants is still taken, for so long: a connection
/// that is closed while its caller is still sending may lose the answer.
const UNWANTED: usize = 4_000_000;
const LINGER: Duration = Duration::from_secs(1);

/// The bytes of a body, at most `limit` of them.
pub(super) async fn read(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, Error> {
    let said = headers.get(CONTENT_LENGTH);
    let said = said.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if said.is_some_and(|length| length > limit) {
        discard(body).await;
        return Err(too_large(limit));
    }
    match timeout(PATIENCE, to_bytes(body, limit + UNWANTED)).await {
        Ok(Ok(body)) if body.len() <= limit => Ok(body),
        // Otherwise there is even more, or the connection broke and nobody reads
        // this.
        Ok(_) => Err(too_large(limit)),
        Err(_) => Err(Error::malformed(format!(
            "the body has not come whole within {} s",
            PATIENCE.as_secs()
        ))),
    }
}

/// Takes what nobody wants.
pub(super) async fn discard(body: Body) {
    // What is more than that ends with the connection.
    let _ = timeout(LINGER, to_bytes(body, UNWANTED)).await;
}

fn too_large(limit: usize) -> Error {
    let detail = if limit == 0 {
        "there is a body, where none belongs".to_owned()
    } else {
        format!("the body has more than {limit} bytes")
    };
    Error::new(Code::TooLarge, detail)
}
