//! Programs on interfaces: links of tcx, or filters of clsact before Linux 6.6.

use super::pins::Pins;
use super::qdisc::{HANDLE, Hook, PRIORITY, Qdiscs, SIDES};
use super::rules::{Attachment, Queue, Way};
use super::{EdgeError, name_of, step};
use crate::bpf_program::refused;
use aya::programs::TcAttachType;
use aya::programs::links::{FdLink, LinkOrder};
use aya::programs::tc::{
    NlOptions, SchedClassifierLink, TcAttachOptions, TcHandle, qdisc_add_clsact,
};
use aya::util::KernelVersion;

/// A program and its place on an interface.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    program: &'static str,
    side: TcAttachType,
    /// The parent of filters there.
    parent: u32,
}

const FROM_GUEST: Place = Place {
    program: "from_guest",
    side: TcAttachType::Ingress,
    parent: SIDES[0],
};
const TO_GUEST: Place = Place {
    program: "to_guest",
    side: TcAttachType::Egress,
    parent: SIDES[1],
};
const TO_QUEUE: Place = Place {
    program: "to_queue",
    side: TcAttachType::Egress,
    parent: SIDES[1],
};
const TO_UPLINK: Place = Place {
    program: "to_uplink",
    side: TcAttachType::Egress,
    parent: SIDES[1],
};

const TO_SPLITTER: Place = Place {
    program: "to_splitter",
    side: TcAttachType::Egress,
    parent: SIDES[1],
};
const FROM_SPLITTER: Place = Place {
    program: "from_splitter",
    side: TcAttachType::Ingress,
    parent: SIDES[0],
};

/// The programs of both ends of the splitter.
pub(super) const SPLITTER: [Place; 2] = [TO_SPLITTER, FROM_SPLITTER];

impl Place {
    pub(super) const fn program(self) -> &'static str {
        self.program
    }
}

/// The programs of an interface.
pub(super) const fn places(attachment: Attachment) -> &'static [Place] {
    match attachment {
        Attachment {
            is_uplink: false, ..
        } => &[FROM_GUEST, TO_GUEST],
        Attachment {
            queue: Queue::Bpf, ..
        } => &[TO_QUEUE],
        Attachment { .. } => &[TO_UPLINK],
    }
}

/// The way of this kernel.
pub(super) fn way() -> Way {
    let since = KernelVersion::new(6, 6, 0);
    match KernelVersion::current() {
        Ok(version) if version >= since => Way::Tcx,
        _ => Way::Clsact,
    }
}

/// Returns true if clsact is missing; an error if it cannot be there.
pub(super) fn lacks_clsact(ifindex: u32) -> Result<bool, EdgeError> {
    let hook = Qdiscs::of(ifindex).and_then(|qdiscs| qdiscs.hook());
    match hook.map_err(|error| step("list qdiscs".to_owned(), error))? {
        Hook::None => Ok(true),
        Hook::Clsact => Ok(false),
        Hook::Others(kind) => Err(EdgeError::Qdisc { ifindex, kind }),
    }
}

/// Attaches the programs of an interface, before other owners' programs.
pub(super) fn attach(pins: &Pins, attachment: Attachment) -> Result<(), EdgeError> {
    let Attachment {
        ifindex,
        way,
        adds_clsact,
        ..
    } = attachment;
    attach_at(pins, ifindex, places(attachment), way, adds_clsact)
}

/// Attaches programs to an interface, before other owners' programs.
pub(super) fn attach_at(
    pins: &Pins,
    ifindex: u32,
    places: &[Place],
    way: Way,
    adds_clsact: bool,
) -> Result<(), EdgeError> {
    let interface = name_of(ifindex)?;
    if way == Way::Clsact && adds_clsact {
        qdisc_add_clsact(&interface).map_err(|error| refused(&error))?;
    }
    for place in places {
        let mut program = pins.program(place.program)?;
        let options = match way {
            Way::Tcx => TcAttachOptions::TcxOrder(LinkOrder::first()),
            Way::Clsact => TcAttachOptions::Netlink(NlOptions {
                priority: PRIORITY,
                handle: TcHandle::new(0, HANDLE),
                classid: None,
            }),
        };
        let link = program
            .attach_with_options(&interface, place.side, options)
            .map_err(|error| refused(&error))?;
        let link = program.take_link(link).map_err(|error| refused(&error))?;
        match way {
            Way::Tcx => {
                let link = FdLink::try_from(link).map_err(|error| refused(&error))?;
                pins.pin_link(ifindex, place.program, link)?;
            }
            // A filter stays without a descriptor.
            Way::Clsact => std::mem::forget(link),
        }
    }
    Ok(())
}

/// Detaches the programs of an interface; those that are not there, and an interface that has gone
/// away, are no error.
pub(super) fn detach(pins: &Pins, attachment: Attachment) -> Result<(), EdgeError> {
    let Attachment {
        ifindex,
        way,
        adds_clsact,
        ..
    } = attachment;
    if way == Way::Tcx {
        return places(attachment)
            .iter()
            .try_for_each(|place| pins.remove_link(ifindex, place.program));
    }
    let Ok(interface) = name_of(ifindex) else {
        return Ok(());
    };
    let failed = |error| step("remove filters".to_owned(), error);
    let qdiscs = Qdiscs::of(ifindex).map_err(failed)?;
    for place in places(attachment) {
        if !is_filter_there(&qdiscs, *place) {
            continue;
        }
        let handle = TcHandle::new(0, HANDLE);
        let link = SchedClassifierLink::attached(&interface, place.side, PRIORITY, handle, None);
        // Dropping it detaches it.
        drop(link.map_err(failed)?);
    }
    if adds_clsact {
        qdiscs.remove_clsact().map_err(failed)?;
    }
    Ok(())
}

fn is_filter_there(qdiscs: &Qdiscs, place: Place) -> bool {
    let filters = qdiscs.filters(place.parent).unwrap_or_default();
    filters.contains(&(u32::from(HANDLE), PRIORITY))
}

/// Returns true if all programs of an interface are attached.
pub(super) fn is_attached(pins: &Pins, attachment: Attachment) -> bool {
    let Attachment { ifindex, way, .. } = attachment;
    let Ok(interface) = name_of(ifindex) else {
        return false;
    };
    let Ok(qdiscs) = Qdiscs::of(ifindex) else {
        return false;
    };
    places(attachment).iter().all(|place| match way {
        Way::Clsact => is_filter_there(&qdiscs, *place),
        Way::Tcx => {
            let own = pins.program(place.program).ok();
            let own = own.and_then(|program| Some(program.info().ok()?.id()));
            let found = aya::programs::SchedClassifier::query_tcx(&interface, place.side);
            found.is_ok_and(|(_, all)| all.iter().any(|it| Some(it.id()) == own))
        }
    })
}
