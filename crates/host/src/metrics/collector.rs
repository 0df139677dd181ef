//! Push of all metrics to a collector by OTLP.

use super::{AskWatch, Asker, Client, Vcpus};
use crate::retire::retire;
use std::io;
use tailbound_metrics::Format;
use tailbound_otlp::{Endpoint, Exporter, Settings};

/// Sends metrics to a collector until it is dropped. The packet loop waits for the collector no
/// more than for a scraper.
pub(crate) struct Collector {
    endpoint: Endpoint,
    /// The exporter; None at the end.
    exporter: Option<Exporter>,
}

impl Collector {
    /// Starts to send; `instance` is this host's name.
    ///
    /// # Errors
    /// The system refused to start a thread.
    pub(crate) fn start(
        endpoint: Endpoint,
        instance: String,
        asker: Asker,
        vcpus: Vcpus,
        watch: Option<AskWatch>,
    ) -> io::Result<Self> {
        let client = Client {
            asker,
            vcpus,
            watch,
        };
        let ask = move || {
            let page = Format::Text.encode(client.ask()?).ok()?;
            String::from_utf8(page).ok()
        };
        let settings = Settings {
            endpoint: endpoint.clone(),
            service: "tailbound-host",
            instance,
        };
        Ok(Self {
            endpoint,
            exporter: Some(Exporter::start(settings, Box::new(ask))?),
        })
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // Its thread may ask the packet loop once more, which must not wait for it.
        retire(self.exporter.take());
    }
}
