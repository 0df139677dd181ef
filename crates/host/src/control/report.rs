//! Reports of this host to the placement service: its capacity, the guarantees in force, and the
//! guarantees that it does not keep.
//!
//! A thread sends a report after each change, and every ten seconds without one. A service that
//! receives no report for half a minute considers the host silent.

use super::{ControlConfig, ControlError};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tailbound_api::client::{Backoff, Client, ClientError, Settings};
use tailbound_api::{
    CpuUse, HostCpu, HostLimits, HostMeasured, HostReport, Lateness, RefusedVm, UnpromisedGuest,
};
use tailbound_dataplane::{Guarantee, PacerConfig};
use tailbound_units::Rate;

/// The longest time between two reports.
const EVERY: Duration = Duration::from_secs(10);
/// The shortest time between two reports: one report contains all changes in between.
const SPACING: Duration = Duration::from_secs(1);
/// The pauses while the service does not answer.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));

/// Returns the capacity of a host with this wire, of which its own configuration guarantees
/// `reserved` to others; None if its pacer keeps no guarantees. `limits_rates` is true if it takes
/// part in the exchange of rates: only then its pacer has a bucket for each receiver.
pub(crate) fn limits(wire: &PacerConfig, reserved: Rate, limits_rates: bool) -> Option<HostLimits> {
    let limits = HostLimits {
        link: wire.link,
        reserved,
        frame: wire.frame,
        slowest: wire.slowest(),
        subtree_bursts: true,
        inward_bursts: limits_rates,
        delay_classes: true,
        lateness: Lateness::Exact,
        packet: None,
    };
    // As it would be made of a service's word.
    let mut most = Guarantee::new(wire.link, wire.frame, wire.link);
    most.horizon = most.horizon.max(wire.batch);
    wire.check(&most).is_ok().then_some(limits)
}

/// Returns the CPU that this host keeps for reservations now, if any.
pub(crate) type AskCpu = Box<dyn Fn() -> Option<HostCpu> + Send>;

/// The measurements for a report.
pub(crate) struct ReportMeasurements {
    /// Recent waiting times, if they are known.
    pub(crate) measured: Option<HostMeasured>,
    /// Difference between the CPU that guests have reserved and their promises.
    pub(crate) reserved: ReservationGap,
}

/// Difference between the CPU that guests have reserved and their promises.
#[derive(Debug, Default)]
pub(crate) struct ReservationGap {
    /// The VMs whose vCPUs lack a promised reservation.
    pub(crate) lacking: Vec<RefusedVm>,
    /// The total CPU reserved beyond the promises.
    pub(crate) unpromised: CpuUse,
    /// The guests with the largest unpromised reservations.
    pub(crate) named: Vec<UnpromisedGuest>,
}

/// Returns the measurements; None if they are unknown at present.
pub(crate) type AskMeasured = Box<dyn FnMut() -> Option<ReportMeasurements> + Send>;

/// Client that sends reports. The thread behind it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct ReportClient(Sender<HostReport>);

impl ReportClient {
    /// Starts the thread, which sends nothing before the first call of `tell`. Each report includes
    /// the results of `cpu` and of `measured`.
    pub(crate) fn start(
        config: &ControlConfig,
        cpu: AskCpu,
        measured: AskMeasured,
    ) -> Result<Self, ControlError> {
        // So that a mistake in the settings shows now.
        Client::new(&config.service)?;
        let (send, reports) = channel();
        let speaking = ReportLoop {
            config: config.clone(),
            reports,
            cpu,
            measured,
            reported_cpu: None,
            reserved: ReservationGap::default(),
            latest: None,
            is_away: false,
        };
        std::thread::Builder::new()
            .name("report".to_owned())
            .spawn(move || speaking.run())
            .map_err(ControlError::Thread)?;
        Ok(Self(send))
    }

    /// Sends this report from now on.
    pub(crate) fn tell(&self, report: HostReport) {
        // An error means that the thread has ended, which it does not by itself.
        let _ = self.0.send(report);
    }
}

/// The thread's side.
struct ReportLoop {
    config: ControlConfig,
    reports: Receiver<HostReport>,
    cpu: AskCpu,
    measured: AskMeasured,
    /// The CPU in the last report.
    reported_cpu: Option<HostCpu>,
    /// The last known differences of the reservations.
    reserved: ReservationGap,
    latest: Option<HostReport>,
    /// True if the service did not answer the last report.
    is_away: bool,
}

impl ReportLoop {
    fn run(mut self) {
        let mut backoff = BACKOFF;
        let mut sent = None::<Instant>;
        let mut wait = EVERY;
        loop {
            match self.reports.recv_timeout(wait.min(SPACING)) {
                Ok(report) => {
                    let newest = self.reports.try_iter().last().unwrap_or(report);
                    if self.latest.as_ref() == Some(&newest) {
                        wait = EVERY.saturating_sub(since(sent));
                        continue;
                    }
                    self.latest = Some(newest);
                    wait = SPACING.saturating_sub(since(sent));
                    if !wait.is_zero() {
                        continue;
                    }
                }
                Err(RecvTimeoutError::Timeout)
                    if wait > SPACING && (self.cpu)() == self.reported_cpu =>
                {
                    wait -= SPACING;
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let Some(latest) = self.latest.clone() else {
                continue;
            };
            self.reported_cpu = (self.cpu)();
            let measured = match (self.measured)() {
                Some(ReportMeasurements { measured, reserved }) => {
                    self.reserved = reserved;
                    measured
                }
                None => None,
            };
            let mut refused = latest.refused;
            refused.extend(self.reserved.lacking.iter().cloned());
            let report = HostReport {
                cpu: self.reported_cpu.map(|cpu| HostCpu {
                    unpromised: self.reserved.unpromised,
                    ..cpu
                }),
                unpromised: self.reserved.named.clone(),
                measured,
                refused,
                ..latest
            };
            let outcome = self.send_report(&report);
            sent = Some(Instant::now());
            wait = match outcome {
                Ok(()) => {
                    backoff.reset();
                    self.is_away = false;
                    EVERY
                }
                Err(error) => {
                    self.failed(&error);
                    backoff.wait()
                }
            };
        }
    }

    fn send_report(&self, report: &HostReport) -> Result<(), ClientError> {
        // A new client each time: the files with the token and the CA may have changed.
        let client = Client::new(&Settings {
            patience: Duration::ZERO,
            timeout: EVERY,
            ..self.config.service.clone()
        })?;
        client.report(&self.config.host, report)
    }

    fn failed(&mut self, error: &ClientError) {
        if std::mem::replace(&mut self.is_away, true) {
            tracing::debug!(%error, "reports still do not reach the placement service");
        } else {
            tracing::warn!(
                %error,
                "reports do not reach the placement service: it considers this host silent, and \
                    its tenants degraded"
            );
        }
    }
}

fn since(moment: Option<Instant>) -> Duration {
    moment.map_or(Duration::MAX, |moment| moment.elapsed())
}

#[cfg(test)]
mod tests;
