//! The exchange of rates with other hosts while guests take part in it.

use crate::command::adopt::Places;
use crate::exit::Failure;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use tailbound_api::client::Settings;
use tailbound_host::control::ControlConfig;
use tailbound_host::hose::{HoseConfig, KernelExchange, KernelGuest};
use tailbound_sys::edge::{Edge, EdgeError, EdgeRates};

/// The file with the last keys of the service, beside the directory of the journal.
const KEPT: &str = "adopted-guarantees.json";

/// The exchange of rates, if one is configured. It runs while guests take part, with the programs that are
/// pinned then.
pub(super) struct RateExchange {
    settings: Option<ExchangeSettings>,
    pins: PathBuf,
    running: Option<Running>,
    /// The last message about a failed start, which is not repeated.
    failure: Option<String>,
}

struct ExchangeSettings {
    config: HoseConfig,
    service: ControlConfig,
}

struct Running {
    exchange: KernelExchange,
    /// The pinned programs that it uses: others have another directory.
    programs: u64,
}

impl RateExchange {
    /// Starts nothing yet. Without a section, rates of an ended exchange are removed.
    pub(super) fn new(
        places: &Places,
        section: Option<HoseConfig>,
        service: &Settings,
        host: &str,
    ) -> Result<Self, Failure> {
        let pins = places.pins.clone();
        let settings = if let Some(config) = section {
            Some(ExchangeSettings {
                config,
                service: ControlConfig {
                    service: service.clone(),
                    host: host.to_owned(),
                    state: places.state.with_file_name(KEPT),
                },
            })
        } else {
            remove_rates(&pins)?;
            None
        };
        Ok(Self {
            settings,
            pins,
            running: None,
            failure: None,
        })
    }

    /// Returns true if rates are exchanged while guests take part.
    pub(super) const fn is_configured(&self) -> bool {
        self.settings.is_some()
    }

    /// Replaces the guests that take part. The exchange starts with the first one, and ends with the last one.
    pub(super) fn set_guests(&mut self, guests: Vec<KernelGuest>) {
        let programs = std::fs::metadata(&self.pins).map(|it| it.ino()).ok();
        let Some(programs) = programs.filter(|_| !guests.is_empty()) else {
            self.running = None;
            return;
        };
        if self
            .running
            .as_ref()
            .is_some_and(|it| it.programs != programs)
        {
            self.running = None;
        }
        if self.running.is_none() {
            self.start(programs);
        }
        if let Some(running) = &self.running {
            running.exchange.set_guests(guests);
        }
    }

    fn start(&mut self, programs: u64) {
        let Some(ExchangeSettings { config, service }) = &self.settings else {
            return;
        };
        match KernelExchange::start(config.clone(), service.clone(), &self.pins) {
            Ok(exchange) => {
                self.failure = None;
                self.running = Some(Running { exchange, programs });
            }
            Err(error) => {
                let why = error.to_string();
                if self.failure.as_ref() != Some(&why) {
                    tracing::error!("{why}; guests have no rates by destination");
                }
                self.failure = Some(why);
            }
        }
    }
}

/// Removes the rates of an ended exchange.
fn remove_rates(pins: &Path) -> Result<(), Failure> {
    if !Edge::is_pinned(pins) {
        return Ok(());
    }
    let remove = || {
        let mut rates = EdgeRates::open(pins)?;
        let all = rates.all()?;
        if all.is_empty() {
            return Ok(());
        }
        rates.remove(&all)
    };
    let removed: Result<(), EdgeError> = remove();
    removed.map_err(|error| Failure::new(format!("rates of an ended exchange stay: {error}")))
}
