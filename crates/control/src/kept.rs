//! The values of stores and backups.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads a value as it is kept. A field that is not known here is one of a later version, which
/// would be lost with the next change: it is refused.
pub(crate) fn read<T: DeserializeOwned + Serialize>(text: &[u8]) -> Result<T, String> {
    let value: T = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    match lost(&value, text) {
        Ok(None) => Ok(value),
        Ok(Some(field)) => Err(format!(
            "the field {field} is not known to tailbound {}; use the version that wrote it",
            env!("CARGO_PKG_VERSION")
        )),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the first field of `text` that would be lost when `value`, which was parsed from `text`,
/// is written. The value is written by its usual code, so that no other code is generated.
fn lost(value: &impl Serialize, text: &[u8]) -> serde_json::Result<Option<String>> {
    let original: Value = serde_json::from_slice(text)?;
    let again: Value = serde_json::from_str(&serde_json::to_string(value)?)?;
    Ok(missing(&original, &again))
}

/// The path of the first field of `original` that `again` does not have.
fn missing(original: &Value, again: &Value) -> Option<String> {
    let under = |name: &str, path: String| match path.as_str() {
        "" => name.to_owned(),
        path => format!("{name}.{path}"),
    };
    match (original, again) {
        (Value::Object(original), Value::Object(again)) => {
            original
                .iter()
                .find_map(|(name, original)| match again.get(name) {
                    // An absent member equals a null one.
                    None if original.is_null() => None,
                    None => Some(name.clone()),
                    Some(again) => missing(original, again).map(|path| under(name, path)),
                })
        }
        (Value::Array(original), Value::Array(again)) => {
            let mut both = original.iter().zip(again).enumerate();
            both.find_map(|(index, (original, again))| {
                missing(original, again).map(|path| under(&index.to_string(), path))
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Inner {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Outer {
        inner: Vec<Inner>,
    }

    #[test]
    fn only_unknown_fields_are_refused_and_each_by_its_path() {
        let read = |text: &str| read::<Outer>(text.as_bytes());
        let none = |name| Inner { name };
        let known = Outer {
            inner: vec![none(None), none(Some("a".to_owned()))],
        };
        assert_eq!(read(r#"{"inner":[{"name":null},{"name":"a"}]}"#), Ok(known));
        for (text, field) in [
            (r#"{"inner":[],"colour":"red"}"#, "colour"),
            (r#"{"inner":[],"colour":false}"#, "colour"),
            (r#"{"inner":[{},{"size":{"x":1}}]}"#, "inner.1.size"),
        ] {
            let why = read(text).unwrap_err();
            let says = format!("the field {field} is not known to tailbound ");
            assert!(why.starts_with(&says), "{why}");
        }
        assert!(
            read(r#"{"inner":[]} {}"#).is_err(),
            "nothing comes behind it"
        );
    }
}
