//! Which traffic travels in which class.
//!
//! The classes of a fabric are its switches' priority queues: a queue is served when all
//! before it are empty. [`Fabric`] says what a fabric serves first and
//! [`Fabric::class_of`] is the table. [`Classes`] adds the marks by which switches know a class.
//!
//! A delay that is promised is computed for [`Class::Guaranteed`]: nothing is served
//! before it but one frame that is on the wire already. So all hosts of a fabric have to
//! have the same classes.

mod mark;
mod table;

pub use mark::{Classes, ClassesError, ClassesSpec, Mark};
pub use table::{Class, Fabric, Traffic};
