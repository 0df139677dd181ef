//! Early acknowledgement, by scripts and by a model.

mod bounds;
mod delayed;
mod last;
mod model;
mod rules;
mod script;
mod steady;
mod wire;
