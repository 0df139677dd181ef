//! Checks the priority classes of a configuration and applies them to its pipelines.

use super::draft::Draft;
use super::{Config, UplinkConfig};
use std::fmt::Write as _;
use tailbound_dataplane::meter::Share;
use tailbound_dataplane::{Class, Fabric, MeterConfig, PipelineConfig, Traffic};
use tailbound_document::{Problem, Step};
use tailbound_units::Rate;

/// Returns all mistakes about classes in `draft`.
pub(super) fn check(draft: &Draft) -> Vec<Problem> {
    let mut wrong = Vec::new();
    let mut meter_at = |at: &[Step], pipeline: &PipelineConfig, link: Option<Rate>| {
        let Some(meter) = &pipeline.meter else { return };
        let key = |key: &[&'static str]| {
            let steps = ["pipeline", "meter"].iter().chain(key);
            let steps = steps.map(|key| Step::Key(key));
            at.iter().cloned().chain(steps).collect::<Vec<_>>()
        };
        if let Some(fabric) = fabric_without_small_flows(draft) {
            wrong.push(Problem {
                path: key(&[]),
                message: format!(
                    "with {fabric} the class does not depend on the size of a flow, so a meter \
                        has no effect; remove the meter, or set `fabric = \"three-classes\"` in \
                        `[classes]` if the switches have three classes"
                ),
            });
        }
        wrong.extend(budget(meter, link).map(|message| Problem {
            path: key(&["budget"]),
            message,
        }));
    };
    if let Some(uplink) = &draft.uplink {
        let at = [Step::Key("uplink")];
        meter_at(&at, &uplink.pipeline, uplink.link());
    }
    for (index, guest) in &draft.guests {
        let at = [Step::Key("guest"), Step::Index(*index)];
        if let Some(pipeline) = &guest.pipeline {
            meter_at(&at, pipeline, rate(pipeline));
        }
    }
    wrong.extend(link_unknown(draft));
    wrong
}

/// Returns the fabric if it has no class for small flows. An unreadable section may have such a
/// class, and the result is `None`.
fn fabric_without_small_flows(draft: &Draft) -> Option<Fabric> {
    let fabric = draft.classes()?.fabric();
    let is_known = !draft.unread.classes && draft.unread.uplink.is_none();
    (is_known && !fabric.has(Class::Small)).then_some(fabric)
}

/// Returns the mistake in a meter's budget on a link of this rate, if there is one.
fn budget(meter: &MeterConfig, link: Option<Rate>) -> Option<String> {
    let budget = meter.budget?;
    if budget.0 == 0 {
        let message =
            "a budget of 0 leaves a guest no small flow; use at least 1bit/s, or no meter";
        return Some(message.to_owned());
    }
    let most = Rate(link?.0 / Share::OF_LINK);
    (budget > most).then(|| {
        format!(
            "a budget of {budget} is more than a quarter of the link, which is what the small \
             flows of all guests may be together; use at most {most}"
        )
    })
}

/// Returns a mistake if the uplink has a meter, but the configuration does not define the rate of
/// the link.
fn link_unknown(draft: &Draft) -> Option<Problem> {
    let uplink = draft.uplink.as_ref()?;
    uplink.pipeline.meter?;
    if uplink.link().is_some() {
        return None;
    }
    Some(Problem {
        path: ["uplink", "pipeline", "meter"].map(Step::Key).to_vec(),
        message:
            "the budget of small flows is a quarter of the link, and the link's rate is unknown; \
                add `nic = { rate = ... }` to the pipeline"
                .to_owned(),
    })
}

/// Returns the rate of the pipeline's NIC, if it is set.
fn rate(pipeline: &PipelineConfig) -> Option<Rate> {
    pipeline.nic.as_ref().map(|nic| nic.rate)
}

impl UplinkConfig {
    /// Returns the rate of the wire, if the file defines it.
    pub(crate) fn link(&self) -> Option<Rate> {
        let paced = self.pacer.as_ref().map(|pacer| pacer.link);
        paced.or(rate(&self.pipeline))
    }
}

impl Config {
    /// Returns the rate of the wire, if the file defines it.
    pub fn link(&self) -> Option<Rate> {
        self.uplink.as_ref().and_then(UplinkConfig::link)
    }

    /// Returns a pipeline with the settings that follow from the whole configuration: the classes,
    /// if `gives_class`, and the link that its guests share.
    pub(crate) fn classified(
        &self,
        pipeline: &PipelineConfig,
        link: Option<Rate>,
        gives_class: bool,
    ) -> PipelineConfig {
        PipelineConfig {
            meter: pipeline.meter.map(|meter| MeterConfig { link, ..meter }),
            classes: self.classes.filter(|_| gives_class),
            ..pipeline.clone()
        }
    }

    /// Explains, in lines for operators, the class of each kind of traffic and the limits of small
    /// flows. Empty if frames get no class.
    pub fn explain_classes(&self) -> String {
        let mut text = String::new();
        let Some(classes) = self.classes else {
            return text;
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "classes: {classes}");
        for traffic in Traffic::ALL {
            let class = classes.fabric().class_of(traffic);
            let class = class.map_or("by its flow's size", Class::word);
            let _ = writeln!(text, "  {}: {class}", traffic.words());
        }
        let uplink = self.uplink.as_ref();
        let meter = uplink.and_then(|uplink| Some((uplink.pipeline.meter?, uplink.link()?)));
        if let Some((meter, link)) = meter {
            let guests = self.guests.len() as u64;
            let link = Some(link);
            let share = MeterConfig { link, ..meter }.share(self.guests.len());
            if let (Some(each), Some(all)) = (share.guest, share.all) {
                let sum = Rate(each.0.saturating_mul(guests));
                let _ = writeln!(
                    text,
                    "small flows: at most {each} of each of {guests} guests, {sum} in sum, and \
                     {all} of all together, a quarter of the link"
                );
            }
        }
        text
    }
}
