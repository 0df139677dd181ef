//! The address of a collector.

use std::fmt;
use std::str::FromStr;

/// Base address of a collector for OTLP over HTTP, without the path of a signal, for example
/// `http://127.0.0.1:4318`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct Endpoint(String);

/// The text is not the address of a collector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no address of a collector: write http:// or https://, a host and a port, as \
     http://127.0.0.1:4318; /v1/traces and /v1/metrics are added"
)]
pub struct EndpointError(String);

impl Endpoint {
    /// The address of a signal: `traces` or `metrics`.
    pub(crate) fn of(&self, signal: &str) -> String {
        format!("{}/v1/{signal}", self.0)
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let wrong = || EndpointError(text.to_owned());
        let trimmed = text.trim_end_matches('/');
        let rest = trimmed
            .strip_prefix("http://")
            .or_else(|| trimmed.strip_prefix("https://"))
            .ok_or_else(wrong)?;
        let authority = rest.split('/').next().unwrap_or_default();
        let is_known = |letter: char| letter.is_ascii_graphic() && !"?#@\"<>".contains(letter);
        let is_signal = ["/v1/traces", "/v1/metrics"]
            .iter()
            .any(|signal| rest.ends_with(signal));
        if authority.is_empty()
            || authority.starts_with(':')
            || is_signal
            || !rest.chars().all(is_known)
        {
            return Err(wrong());
        }
        Ok(Self(trimmed.to_owned()))
    }
}

impl TryFrom<String> for Endpoint {
    type Error = EndpointError;

    fn try_from(text: String) -> Result<Self, EndpointError> {
        text.parse()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_scheme_and_a_host_and_no_signal() {
        for text in [
            "http://127.0.0.1:4318",
            "http://[::1]:4318/",
            "https://otel.example/gateway",
        ] {
            let endpoint: Endpoint = text.parse().expect(text);
            let expected = format!("{}/v1/traces", text.trim_end_matches('/'));
            assert_eq!(endpoint.of("traces"), expected);
        }
        for text in [
            "",
            "127.0.0.1:4318",
            "grpc://h:4317",
            "http://",
            "http://:4318",
            "http://h:4318/v1/traces",
            "http://h?x=1",
            "http://user:word@h",
        ] {
            let error = text.parse::<Endpoint>().expect_err(text).to_string();
            assert!(error.contains("http://127.0.0.1:4318"), "{error}");
        }
    }
}
