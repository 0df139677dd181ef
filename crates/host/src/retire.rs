//! What is not needed any more, and may take a while to end.

/// Drops something on a thread of its own.
pub(crate) fn retire(what: impl Send + 'static) {
    let ending = std::thread::Builder::new().name("retire".to_owned());
    if let Err(error) = ending.spawn(move || drop(what)) {
        tracing::error!(%error, "something was closed within the packet loop");
    }
}
