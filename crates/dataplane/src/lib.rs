//! What happens to a packet between a guest and the wire.

mod frame;

pub use frame::{Class, FlowKey, Frame, GuestId};
