//! Choice of a format of metrics by content negotiation.

use crate::encode::{Exposition, protobuf, text};
use std::fmt::Error;

/// A format that a scraper may request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `OpenMetrics` 1.0.
    Text,
    /// Prometheus's protobuf, each metric after its length.
    Protobuf,
}

impl Format {
    /// Returns the format with the best quality in a scraper's `Accept` header (RFC 9110, 12.5.1);
    /// text if the header names neither.
    pub fn accepted_by(accept: &str) -> Self {
        let quality = |wanted: &str| {
            let range = accept.split(',').find(|range| range.contains(wanted))?;
            let mut parameters = range.split(';').map(str::trim);
            let quality = parameters.find_map(|parameter| parameter.strip_prefix("q="));
            quality.map_or(Some(1.0), |quality| quality.parse::<f64>().ok())
        };
        let protobuf = quality("proto=io.prometheus.client.MetricFamily");
        let text = quality("application/openmetrics-text").unwrap_or_default();
        match protobuf {
            Some(protobuf) if protobuf > text => Self::Protobuf,
            _ => Self::Text,
        }
    }

    /// Returns the media type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
                 encoding=delimited"
            }
        }
    }

    /// Returns counts in this format.
    ///
    /// # Errors
    /// A count cannot be written.
    pub fn encode(self, exposition: impl Exposition) -> Result<Vec<u8>, Error> {
        match self {
            Self::Text => text(exposition).map(String::into_bytes),
            Self::Protobuf => protobuf(&exposition),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scraper_gets_the_form_that_it_likes_best() {
        // The headers of Prometheus 2.40 and later, with native histograms and without.
        let native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                      encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,\
                      application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;\
                      q=0.5,*/*;q=0.1";
        let classic = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                       application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                       encoding=delimited;q=0.5,text/plain;version=1.0.0;q=0.3,*/*;q=0.1";
        assert_eq!(Format::accepted_by(native), Format::Protobuf);
        for accept in [classic, "", "*/*", "text/html", "q=;;,,;q=x"] {
            assert_eq!(Format::accepted_by(accept), Format::Text, "{accept}");
        }
    }
}
