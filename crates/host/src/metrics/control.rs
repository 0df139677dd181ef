//! What the placement service has promised, and whether it is there, as text.

use crate::control::FeedStatus;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use std::fmt::Error;
use tailbound_api::VmGuarantee;
use tailbound_metrics::{Labels, counter, gauge};
use tailbound_switch::{LinkSnapshot, Snapshot};

/// How the connection is.
pub(super) fn encode_status(
    status: FeedStatus,
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), Error> {
    gauge::<0>(
        encoder,
        "tailbound_control_connected",
        "1 while the placement service is there",
        &[([], u64::from(status.connected))],
    )?;
    let silence = status.heard.map(|heard| heard.elapsed().as_secs_f64());
    seconds::<0>(
        encoder,
        "tailbound_control_silence_seconds",
        "How long ago the placement service last said something; absent if it never did",
        silence.map(|silence| ([], silence)),
    )?;
    counter::<0>(
        encoder,
        "tailbound_control_failures",
        "How often the placement service could not be reached, or was lost",
        &[([], status.failures)],
    )
}

/// What is promised.
pub(super) fn encode_promises(
    snapshot: &Snapshot,
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), Error> {
    if let Some(promises) = &snapshot.promises {
        gauge::<0>(
            encoder,
            "tailbound_control_revision",
            "The revision of the guarantees that are held",
            &[([], promises.revision)],
        )?;
        gauge(
            encoder,
            "tailbound_control_host_state",
            "1 for what the placement service takes this host for",
            &[([("state", promises.state.word().to_owned())], 1)],
        )?;
        let without = promises.without_guest.iter();
        let without: Vec<_> = without.map(|vm| ([("vm", vm.clone())], 1)).collect();
        gauge(
            encoder,
            "tailbound_guarantee_without_guest",
            "1 for a machine that is to be on this host and that no guest is",
            &without,
        )?;
    }
    let links = snapshot.links.iter();
    let known: Vec<_> = links
        .filter_map(|link| Some((labels(link)?, u64::from(link.promise.is_some()))))
        .collect();
    gauge(
        encoder,
        "tailbound_guarantee_known",
        "1 while the placement service has the guest's machine on this host",
        &known,
    )?;
    gauge(
        encoder,
        "tailbound_guarantee_bandwidth_bits_per_second",
        "The average bandwidth that the guest is promised",
        &promised(snapshot, |vm| Some(vm.guarantee?.bandwidth.0)),
    )?;
    gauge(
        encoder,
        "tailbound_guarantee_burst_bytes",
        "What the guest may send at once after it has sent less",
        &promised(snapshot, |vm| Some(vm.guarantee?.burst.0)),
    )?;
    gauge(
        encoder,
        "tailbound_guarantee_burst_rate_bits_per_second",
        "How fast the guest may send a burst; absent if all at once",
        &promised(snapshot, |vm| Some(vm.guarantee?.burst_rate?.0)),
    )?;
    seconds(
        encoder,
        "tailbound_guarantee_delay_seconds",
        "The longest that a frame between machines of the guest's tenant may wait in queues; \
         absent if none is promised",
        promised(snapshot, |vm| Some(vm.guarantee?.delay?.as_secs_f64())),
    )
}

/// The guest and its machine; `None` without one.
fn labels(link: &LinkSnapshot) -> Option<Labels<2>> {
    let vm = link.vm.as_ref()?;
    Some([("guest", link.name.clone()), ("vm", vm.to_string())])
}

/// A number of each guest that is promised it.
fn promised<T>(
    snapshot: &Snapshot,
    number: impl Fn(&VmGuarantee) -> Option<T>,
) -> Vec<(Labels<2>, T)> {
    let sample = |link: &LinkSnapshot| Some((labels(link)?, number(link.promise.as_ref()?)?));
    snapshot.links.iter().filter_map(sample).collect()
}

fn seconds<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = (Labels<N>, f64)>,
) -> Result<(), Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in samples {
        family.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}
