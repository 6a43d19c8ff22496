//! Bodies of requests, up to their maximum size and time.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::{Body, Incoming};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum time until the body of a request is complete; then the status is 408.
pub const BODY_TIME: Duration = Duration::from_secs(30);

/// Reads a body, whose bytes take room from `room` as they come.
///
/// # Errors
/// The status, if the body exceeds `max_bytes`, `room` or [`BODY_TIME`], or breaks off.
pub async fn read_body(
    mut body: Incoming,
    room: &Arc<Semaphore>,
    max_bytes: usize,
) -> Result<(Vec<u8>, OwnedSemaphorePermit), StatusCode> {
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(StatusCode::PAYLOAD_TOO_LARGE);
    }
    let all = async {
        let take = |bytes: usize| {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            let taken = room.clone().try_acquire_many_owned(bytes);
            taken.map_err(|_| StatusCode::TOO_MANY_REQUESTS)
        };
        let mut bytes = Vec::new();
        let mut held = take(0)?;
        while let Some(frame) = std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)).await
        {
            let frame = frame.map_err(|_| StatusCode::BAD_REQUEST)?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > max_bytes {
                return Err(StatusCode::PAYLOAD_TOO_LARGE);
            }
            held.merge(take(data.len())?);
            bytes.extend_from_slice(&data);
        }
        Ok((bytes, held))
    };
    tokio::time::timeout(BODY_TIME, all)
        .await
        .unwrap_or(Err(StatusCode::REQUEST_TIMEOUT))
}
