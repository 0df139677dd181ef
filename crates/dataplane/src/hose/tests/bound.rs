//! What holds at every moment.
