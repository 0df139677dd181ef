//! What nobody without the key can change.
