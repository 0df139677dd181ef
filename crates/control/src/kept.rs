//! Values as stores and backups keep them.

use serde::de::DeserializeOwned;

/// Reads a value as it is kept. A field that is not known here is one of a later version, which
/// would be lost with the next change: it is refused.
pub(crate) fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    let mut unknown = None;
    let mut document = serde_json::Deserializer::from_slice(text);
    let value = serde_ignored::deserialize(&mut document, |path| {
        unknown.get_or_insert_with(|| path.to_string());
    });
    let value = value.and_then(|value| document.end().map(|()| value));
    let value = value.map_err(|error| error.to_string())?;
    match unknown {
        None => Ok(value),
        Some(field) => Err(format!(
            "the field {field} is not known to tailbound {}; use the version that wrote it",
            env!("CARGO_PKG_VERSION")
        )),
    }
}
