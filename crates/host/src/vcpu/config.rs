//! The agent's configuration: how often it looks, and for whom.

use super::journal::DEFAULT_STATE;
use super::rule::GuestRule;
use crate::config::{ConfigError, Document, Mistake, Step, Wrong, loopback_only};
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tailbound_units::Nanos;

/// The vCPU agent's part of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VcpuConfig {
    /// Where `tailbound vcpu watch` serves metrics; not at all by default. Part of
    /// `tailbound host` they are among its own.
    pub metrics: Option<SocketAddr>,
    /// How often guests and their threads are looked for, and drift.
    pub every: Nanos,
    /// How often waits are read.
    pub sample: Nanos,
    /// Where what was there before is written down.
    pub state: PathBuf,
    /// What becomes of what somebody else has changed.
    pub drift: OnDrift,
    /// The rules; the first that matches a guest counts.
    #[serde(rename = "guest")]
    pub rules: Vec<GuestRule>,
}

impl Default for VcpuConfig {
    fn default() -> Self {
        Self {
            metrics: None,
            every: Nanos::from_secs(1),
            sample: Nanos::from_millis(100),
            state: DEFAULT_STATE.into(),
            drift: OnDrift::default(),
            rules: Vec::new(),
        }
    }
}

/// What becomes of what somebody else has changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnDrift {
    /// It is counted, and applied again: at most three times for each thread, then
    /// it is left to the other.
    #[default]
    Reapply,
    /// It is counted, and left.
    Report,
}

impl VcpuConfig {
    /// Reads a file of the agent's own, for `tailbound vcpu`.
    ///
    /// # Errors
    /// All mistakes found, as [`ConfigError`] prints them.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text).map_err(|mistakes| ConfigError::Mistakes {
            path: path.to_owned(),
            mistakes,
        })
    }

    /// Reads the text of a file of the agent's own.
    ///
    /// # Errors
    /// All mistakes found, in the order of their place; at least one.
    pub fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        let document = Document::parse(text)?;
        let config: Self = document.whole()?;
        let wrong = config.check(&[]).into_iter();
        let mut mistakes: Vec<_> = wrong
            .map(|wrong| document.mistake(document.find(&wrong.place), wrong.message))
            .collect();
        if mistakes.is_empty() {
            return Ok(config);
        }
        mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
        Err(mistakes)
    }

    /// Everything wrong with it; `at` is its place.
    pub(crate) fn check(&self, at: &[Step]) -> Vec<Wrong> {
        let mut wrong: Vec<_> = self.metrics.and_then(loopback_only).into_iter().collect();
        for (key, value, least) in [
            ("every", self.every, Nanos::from_millis(10)),
            ("sample", self.sample, Nanos::from_millis(10)),
        ] {
            if value < least {
                wrong.push(Wrong {
                    place: [at, &[Step::Key(key)]].concat(),
                    message: format!(
                        "looking every {value} would itself be load; use at least {least}"
                    ),
                });
            }
        }
        for (index, rule) in self.rules.iter().enumerate() {
            let place = [at, &[Step::Key("guest"), Step::Index(index)]].concat();
            wrong.extend(rule.check(&place));
        }
        wrong
    }
}
