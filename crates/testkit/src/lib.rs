//! Load for tests and the demo.

pub mod load;
