//! The bodies of requests, read in one place.

use super::problem::ApiError;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use std::time::Duration;
use tailbound_api::Code;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;

/// A body that has not arrived whole within this time is refused.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Limits in bytes and time on the part of an unwanted body that is still read. If the server
/// closed the connection while its caller is sending, the answer could be lost.
const UNWANTED: usize = 4_000_000;
const LINGER: Duration = Duration::from_secs(1);

/// Returns the bytes of a body, at most `limit` of them. No more are ever held.
pub(super) async fn read(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let content_length = headers.get(CONTENT_LENGTH);
    let content_length =
        content_length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if content_length.is_some_and(|length| length > limit) {
        discard(body).await;
        return Err(too_large(limit));
    }
    let mut rest = body.into_data_stream();
    match timeout(BODY_TIMEOUT, gather(&mut rest, limit)).await {
        Ok(Ok(Some(body))) => Ok(body),
        Ok(Ok(None)) => {
            linger(rest).await;
            Err(too_large(limit))
        }
        // Then nobody reads this.
        Ok(Err(error)) => Err(ApiError::malformed(format!("the body broke off: {error}"))),
        Err(_) => Err(ApiError::malformed(format!(
            "the body has not come whole within {} s",
            BODY_TIMEOUT.as_secs()
        ))),
    }
}

/// Returns the whole body, or None if it is longer than `limit`.
async fn gather(body: &mut BodyDataStream, limit: usize) -> Result<Option<Bytes>, axum::Error> {
    let mut whole = Vec::new();
    while let Some(some) = body.next().await {
        let some = some?;
        if some.len() > limit - whole.len() {
            return Ok(None);
        }
        whole.extend_from_slice(&some);
    }
    Ok(Some(whole.into()))
}

/// Reads and drops an unwanted body.
pub(super) async fn discard(body: Body) {
    linger(body.into_data_stream()).await;
}

async fn linger(mut rest: BodyDataStream) {
    let taking = async {
        let mut drained_bytes = 0;
        while let Some(Ok(some)) = rest.next().await {
            drained_bytes += some.len();
            if drained_bytes > UNWANTED {
                return;
            }
        }
    };
    // The rest ends with the connection.
    let _ = timeout(LINGER, taking).await;
}

fn too_large(limit: usize) -> ApiError {
    let detail = if limit == 0 {
        "there is a body, where none belongs".to_owned()
    } else {
        format!("the body has more than {limit} bytes")
    };
    ApiError::new(Code::TooLarge, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const PIECE: usize = 10_000;

    /// Part of a body, which counts how many there are.
    struct Piece(Arc<AtomicUsize>);

    impl AsRef<[u8]> for Piece {
        fn as_ref(&self) -> &[u8] {
            &[b'x'; PIECE]
        }
    }

    impl Drop for Piece {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns a body of `pieces` pieces, and the maximum of pieces held together.
    fn body(pieces: usize) -> (Body, Arc<AtomicUsize>) {
        let (held, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let peak = Arc::clone(&most);
        let pieces = (0..pieces).map(move |_| {
            let now = held.fetch_add(1, Ordering::Relaxed) + 1;
            peak.fetch_max(now, Ordering::Relaxed);
            Ok::<_, Infallible>(Bytes::from_owner(Piece(Arc::clone(&held))))
        });
        (Body::from_stream(tokio_stream::iter(pieces)), most)
    }

    #[tokio::test]
    async fn discarded_and_oversized_bodies_are_not_buffered() {
        let (unwanted, most) = body(300);
        discard(unwanted).await;
        assert!(most.load(Ordering::Relaxed) <= 2, "{most:?}");
        // Its length is not said, so it is found out by reading.
        let (long, most) = body(300);
        let error = read(&HeaderMap::new(), long, 3 * PIECE).await.unwrap_err();
        assert_eq!(error.code(), Code::TooLarge);
        assert!(most.load(Ordering::Relaxed) <= 4, "{most:?}");
        let (right, _) = body(3);
        let whole = read(&HeaderMap::new(), right, 3 * PIECE).await.unwrap();
        assert_eq!(whole.len(), 3 * PIECE);
    }
}
