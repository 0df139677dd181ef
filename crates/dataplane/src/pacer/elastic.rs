//! Elastic flows: traffic beyond guarantees while the wire is idle.
//!
//! A flow, the frames of one connection ([`Frame::connection`]), is either guaranteed or elastic.
//! It starts guaranteed.
//!
//! - **Begin** (`begin`): if no frame with a departure time is due on the wire, no frame without a
//!   guarantee waits, and frames of the guest wait for {B, S}, then the flow with the most waiting
//!   bytes leaves its line with all its frames.
//! - **While elastic** (`pass`), its frames leave in the lowest class, behind all frames without a
//!   guarantee. They are charged to neither {B, S} nor {`B_i`, S}, the charge of one that has a
//!   departure time is reverted, and they are no demand ([`super::Pacer::destinations_used`]): the
//!   burst remains for the guest's other frames.
//! - **Stop** (`stop`): a flow stops if its own rate conforms again: over the last `drain`, or S /
//!   B if that is longer, its arrivals were at most B divided by the number of its guest's elastic
//!   flows. All elastic flows of a guest stop if they wait while the wire carries other frames, so
//!   that they get less than B; such a guest's flows become elastic again only after a pause, twice
//!   as long as the one before, so that repeated attempts seldom keep a guest below B.
//! - **Then its frames are held** for `drain` from the end of its last elastic frame on the wire,
//!   and join their line. So they overtake only frames that stay in the network for longer. Then
//!   the flow stays guaranteed for a time, even if it waits for {B, S}: the held frames may exceed
//!   the burst.
//!
//! The limit of a guest (`cap`) is enforced here: its elastic frames wait for it, too. A flow
//! begins only if the limit has room.
//!
//! Frames to guests of this host are never elastic, because no wire carries them. Frames to groups
//! are not elastic either, because switches multiply them.
//!
//! The cost is bounded for any traffic. A guest has at most [`MOST_FLOWS`] such flows. Their frames
//! hold at most the memory of one line, frames in front are dropped, and each flow has a `CoDel` of
//! its own. A search for a flow reads at most [`FRAMES`] frames, and for each of them [`SEARCH_PAUSE_PER_FRAME`] must
//! pass before the next search.

mod begin;
mod pass;
mod stop;

pub(super) use pass::ElasticPath;
pub(super) use stop::Settlement;

#[cfg(doc)]
use super::flows::MOST_FLOWS;
#[cfg(doc)]
use crate::Frame;
#[cfg(doc)]
use begin::{FRAMES, SEARCH_PAUSE_PER_FRAME};
