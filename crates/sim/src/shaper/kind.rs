//! The limits that an experiment compares.

use serde::Deserialize;
use tailbound_dataplane::shaper::{BucketConfig, ControlConfig, CreditConfig, WindowConfig};
use tailbound_dataplane::{QueueConfig, ShaperConfig};
use tailbound_experiment::Section;
use tailbound_units::{Bytes, Nanos, Rate};

/// A kind of limit, whatever its rate.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shaped {
    /// The beginning of its variants' names.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// How often credit is given; the default of its configuration where it is left out.
    pub interval: Option<Nanos>,
    /// How far the ticks of credit's timers are apart; exact where it is left out.
    pub tick: Option<Nanos>,
    /// How wide a smooth window is; the default of its configuration where it is left out.
    pub width: Option<Nanos>,
    /// Its least delay; zero where it is left out.
    pub dmin: Option<Nanos>,
}

/// What holds a guest to its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Nothing.
    None,
    /// Nothing but a link of that rate, and a FIFO before it.
    Link,
    /// An exact bucket before a FIFO.
    Fifo,
    /// The same before FQ-CoDel.
    FqCodel,
    /// The smooth window.
    SmoothWindow,
    /// The credit of Xen's netback.
    Credit,
}

impl Shaped {
    /// Its configuration at a rate; `None` where nothing limits the guest.
    pub(super) fn config(&self, rate: Rate) -> Option<ShaperConfig> {
        Some(match self.kind {
            Kind::None => return None,
            // A frame, and one that is owed: one leaves when the one before has.
            Kind::Link => ShaperConfig::Bucket(BucketConfig {
                depth: Some(Bytes(2 * 1514)),
                queue: QueueConfig::default(),
                control: ControlConfig {
                    percent: 0,
                    ..ControlConfig::default()
                },
                ..BucketConfig::new(rate)
            }),
            Kind::Fifo => ShaperConfig::Bucket(BucketConfig {
                queue: QueueConfig::default(),
                ..BucketConfig::new(rate)
            }),
            Kind::FqCodel => ShaperConfig::Bucket(BucketConfig::new(rate)),
            Kind::SmoothWindow => {
                let window = WindowConfig::new(rate);
                ShaperConfig::SmoothWindow(WindowConfig {
                    width: self.width.unwrap_or(window.width),
                    dmin: self.dmin.unwrap_or(window.dmin),
                    ..window
                })
            }
            Kind::Credit => {
                let interval = self.interval.unwrap_or(Nanos::from_millis(50));
                let tick = self.tick.unwrap_or(Nanos(1));
                ShaperConfig::Credit(CreditConfig {
                    tick,
                    ..CreditConfig::new(rate, interval)
                })
            }
        })
    }
}

/// Finds what cannot be simulated of the kinds.
pub(super) fn check(shaped: &[Shaped], section: &mut Section<'_>) {
    let (millis, second) = (Nanos::from_millis, Nanos::from_secs(1));
    for (index, it) in shaped.iter().enumerate() {
        let section = &mut section.item("shaper", index);
        let credit = it.kind == Kind::Credit;
        let smooth = it.kind == Kind::SmoothWindow;
        for (key, value, range, taken, whose) in [
            (
                "interval",
                it.interval,
                millis(1)..=second,
                credit,
                "credit",
            ),
            ("tick", it.tick, Nanos(1)..=millis(100), credit, "credit"),
            (
                "width",
                it.width,
                Nanos(1_000)..=millis(50),
                smooth,
                "smooth-window",
            ),
            (
                "dmin",
                it.dmin,
                Nanos::ZERO..=millis(50),
                smooth,
                "smooth-window",
            ),
        ] {
            match value {
                Some(_) if !taken => {
                    section.at(key, format!("{key} is a key of kind = \"{whose}\" alone"));
                }
                Some(value) => section.range(key, value, range),
                None => {}
            }
        }
    }
}
