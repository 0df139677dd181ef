//! Ends objects whose end may take milliseconds, outside of the packet loop.

/// Drops an object on a thread of its own.
pub(crate) fn retire(value: impl Send + 'static) {
    let ending = std::thread::Builder::new().name("retire".to_owned());
    if let Err(error) = ending.spawn(move || drop(value)) {
        tracing::error!(%error, "something was closed within the packet loop");
    }
}
