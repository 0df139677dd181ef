//! Priority classes of a fabric, shared by host, placement and network calculus.
//!
//! The classes of a fabric are the priority queues of its switches: a switch serves a queue only
//! if all queues of higher priority are empty. [`Fabric`] is the order, [`Fabric::class_of`]
//! returns the class of each kind of [`Traffic`], and [`Classes`] adds the mark of each class
//! (DSCP and PCP).
//!
//! Promised delays are computed for [`Class::Guaranteed`]. A frame of that class waits for at
//! most one frame of another class, which is already on the wire. All hosts of a fabric therefore
//! need equal classes.
//!
//! Do not use this crate to classify packets: `tailbound-dataplane` decides which traffic a frame
//! is, and this crate only maps traffic to classes.
//!
//! ```
//! use tailbound_classes::{Class, Classes, Fabric, Traffic};
//!
//! let fabric = Fabric::GuaranteesFirst;
//! assert_eq!(fabric.class_of(Traffic::Guaranteed), Some(Class::Guaranteed));
//! assert_eq!(fabric.class_of(Traffic::Elastic), Some(Class::Lowest));
//! assert!(fabric.promises_delays());
//!
//! let mark = Classes::of(fabric).mark(Class::Guaranteed);
//! assert_eq!((mark.dscp, mark.pcp), (46, 5));
//! ```

mod mark;
mod table;

pub use mark::{Classes, ClassesError, ClassesSpec, Mark};
pub use table::{Class, Fabric, Traffic};
