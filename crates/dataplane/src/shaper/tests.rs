mod control;
mod harness;
mod limit;
mod media;
mod refused;
mod step;
