//! Rate limits of the data path in virtual time: `tailbound_dataplane::shaper` itself, behind a
//! guest's ring of 256 frames.
//!
//! Three kinds of experiments, after Cheng and Wang, 5.3: a stream of media at its limit (figures
//! 17 and 18), pages of a web server (19 and 20), and the rate of bulk transfers (21).

mod experiment;
mod guest;
mod http;
mod kind;
mod rate;
mod rtp;
#[cfg(test)]
mod tests;
mod transfer;

pub use experiment::ShaperExperiment;
pub use http::Http;
pub use kind::Shaped;
pub use rate::Rates;
pub use rtp::{KeyFrames, Rtp};
