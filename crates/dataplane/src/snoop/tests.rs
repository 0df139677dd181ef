//! Early acknowledgement, by scripts and by a model.

mod bounds;
mod last;
mod model;
mod rules;
mod script;
mod steady;
mod wire;
