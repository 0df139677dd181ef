//! The `OpenAPI` document is a contract: only its descriptions may change freely.

use serde_json::Value;
use tailbound_control::server::document;

/// The contract. A deliberate change of the API changes this file with it.
const CONTRACT: &str = include_str!("openapi.json");

/// Removes what is written for people. The keys of `properties` are names of fields, of which one
/// may be called so too.
fn without_prose(value: &mut Value, are_fields: bool) {
    match value {
        Value::Object(entries) => {
            if !are_fields {
                entries.retain(|key, value| {
                    !(value.is_string() && matches!(key.as_str(), "description" | "summary"))
                });
            }
            for (key, value) in entries {
                without_prose(value, key == "properties");
            }
        }
        Value::Array(items) => {
            for item in items {
                without_prose(item, false);
            }
        }
        _ => {}
    }
}

#[test]
fn the_document_is_the_contract_but_for_its_descriptions() {
    let mut found = serde_json::to_value(document()).unwrap();
    without_prose(&mut found, false);
    found["info"].as_object_mut().unwrap().remove("version");
    let contract: Value = serde_json::from_str(CONTRACT).unwrap();
    if found != contract {
        let path = std::env::temp_dir().join("openapi.json");
        std::fs::write(&path, format!("{found:#}\n")).unwrap();
        panic!(
            "the API differs from crates/control/tests/openapi.json; it is now {}",
            path.display()
        );
    }
}
