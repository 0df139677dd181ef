//! The limits that an experiment compares.

use serde::Deserialize;
use tailbound_dataplane::shaper::{BucketConfig, ControlConfig, CreditConfig, WindowConfig};
use tailbound_dataplane::{QueueConfig, ShaperConfig};
use tailbound_experiment::Section;
use tailbound_units::{Bytes, Nanos, Rate};

/// A kind of limit.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shaped {
    /// Start of its variants' names.
    pub name: String,
    /// Mechanism.
    pub kind: Kind,
    /// Interval of credit; its default.
    pub interval: Option<Nanos>,
    /// Resolution of credit's timers; exact.
    pub tick: Option<Nanos>,
    /// Width of a smooth window; its default.
    pub width: Option<Nanos>,
    /// Its least delay; 0.
    pub dmin: Option<Nanos>,
}

/// Mechanism of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// No limit.
    None,
    /// A link of that rate, and a FIFO before it.
    Link,
    /// An exact bucket before a FIFO.
    Fifo,
    /// An exact bucket before FQ-CoDel.
    FqCodel,
    /// The smooth window.
    SmoothWindow,
    /// The credit of Xen's netback.
    Credit,
}

impl Shaped {
    /// Returns its configuration at a rate; `None` if the guest is unlimited.
    pub(super) fn config(&self, rate: Rate) -> Option<ShaperConfig> {
        Some(match self.kind {
            Kind::None => return None,
            // A depth of two frames: a frame leaves when the one before has left.
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

/// Checks the kinds.
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
