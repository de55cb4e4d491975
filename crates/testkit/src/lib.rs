//! What tests and the demo share.

pub mod load;
