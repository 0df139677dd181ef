//! Metrics of the placement service's promises and of the connection to it.

use crate::control::WatchStatus;
use crate::guarantees::{GuaranteesSnapshot, MachineSnapshot};
use crate::reserved::{ReservationDifferences, Reservations};
use std::fmt::Error;
use tailbound_api::{CpuUse, VmGuarantee};
use tailbound_metrics::{Encoder, Kind, Labels, Unit, counter, gauge};

/// Encodes the state of the connection.
pub(super) fn encode_status(status: WatchStatus, encoder: &mut Encoder<'_>) -> Result<(), Error> {
    gauge::<0>(
        encoder,
        "tailbound_control_connected",
        "1 while the placement service is there",
        &[([], u64::from(status.connected))],
    )?;
    let silence = status.heard.map(|heard| heard.elapsed().as_secs_f64());
    number::<0>(
        encoder,
        "tailbound_control_silence_seconds",
        "Time since the last message of the placement service; absent before the first",
        silence.map(|silence| ([], silence)),
    )?;
    counter::<0>(
        encoder,
        "tailbound_control_failures",
        "Number of failed or lost connections to the placement service",
        &[([], status.failures)],
    )
}

/// Encodes the guarantees.
pub(super) fn encode_guarantees(
    snapshot: &GuaranteesSnapshot,
    encoder: &mut Encoder<'_>,
) -> Result<(), Error> {
    gauge::<0>(
        encoder,
        "tailbound_control_classes_differ",
        "1 while guarantees are refused, as the topology's fabric has other classes than this host",
        &[([], u64::from(snapshot.classes_differ))],
    )?;
    if let Some(service) = &snapshot.service {
        gauge::<0>(
            encoder,
            "tailbound_control_revision",
            "The revision of the guarantees that are held",
            &[([], service.revision)],
        )?;
        gauge(
            encoder,
            "tailbound_control_host_state",
            "1 for what the placement service takes this host for",
            &[([("state", service.state.word().to_owned())], 1)],
        )?;
        let without = service.without_guest.iter();
        let without: Vec<_> = without.map(|vm| ([("vm", vm.clone())], 1)).collect();
        gauge(
            encoder,
            "tailbound_guarantee_without_guest",
            "1 for a machine that the placement service assigned to this host and that no guest \
                represents",
            &without,
        )?;
    }
    gauge(
        encoder,
        "tailbound_guarantee_known",
        "1 while the placement service has the guest's machine on this host",
        &samples(snapshot, |machine| Some(u64::from(machine.known.is_some()))),
    )?;
    gauge(
        encoder,
        "tailbound_guarantee_bandwidth_bits_per_second",
        "The average bandwidth that the guest is guaranteed",
        &known(snapshot, |vm| Some(vm.guarantee?.bandwidth.0)),
    )?;
    gauge(
        encoder,
        "tailbound_guarantee_burst_bytes",
        "Burst that the guest may send after a pause",
        &known(snapshot, |vm| Some(vm.guarantee?.burst.0)),
    )?;
    gauge(
        encoder,
        "tailbound_guarantee_burst_rate_bits_per_second",
        "Rate of the guest's bursts; absent if unlimited",
        &known(snapshot, |vm| Some(vm.guarantee?.burst_rate?.0)),
    )?;
    number(
        encoder,
        "tailbound_guarantee_delay_seconds",
        "The longest that a frame between machines of the guest's tenant may wait in queues; \
         absent if none is guaranteed",
        known(snapshot, |vm| Some(vm.guarantee?.delay?.as_secs_f64())),
    )
}

/// Encodes the CPU that guests have reserved beyond the promises, if the service ever answered.
pub(super) fn encode_unpromised(
    snapshot: &GuaranteesSnapshot,
    reservations: &Reservations,
    encoder: &mut Encoder<'_>,
) -> Result<(), Error> {
    if snapshot.service.is_none() {
        return Ok(());
    }
    let compared = ReservationDifferences::new(&snapshot.machines, reservations);
    let sample =
        |(guest, used): (&str, CpuUse)| ([("guest", guest.to_owned())], used.cpu as f64 / 1_000.0);
    number(
        encoder,
        "tailbound_guarantee_cpu_unpromised",
        "CPUs that the guest's vCPUs have reserved beyond what its machine is promised; absent if \
         none",
        compared.by_guest().map(sample),
    )
}

/// Returns the samples of the guests that are VMs of the service and have the number.
fn samples<T>(
    snapshot: &GuaranteesSnapshot,
    number: impl Fn(&MachineSnapshot) -> Option<T>,
) -> Vec<(Labels<2>, T)> {
    let sample = |machine: &MachineSnapshot| {
        let number = number(machine)?;
        let labels = [
            ("guest", machine.guest.clone()),
            ("vm", machine.vm.to_string()),
        ];
        Some((labels, number))
    };
    snapshot.machines.iter().filter_map(sample).collect()
}

/// Returns the samples of the guests whose VM the placement service knows and that have the number.
fn known<T>(
    snapshot: &GuaranteesSnapshot,
    number: impl Fn(&VmGuarantee) -> Option<T>,
) -> Vec<(Labels<2>, T)> {
    samples(snapshot, |machine| number(machine.known.as_ref()?))
}

fn number<const N: usize>(
    encoder: &mut Encoder<'_>,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = (Labels<N>, f64)>,
) -> Result<(), Error> {
    let mut family = encoder.family(name, help, Unit::None, Kind::Gauge)?;
    for (labels, value) in samples {
        family.with(&labels)?.number(value)?;
    }
    Ok(())
}
