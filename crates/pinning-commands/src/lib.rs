//! The commands `topology`, `pins` and `drain`: the CPUs of a node with their owners, the pods with
//! exclusive CPUs, and the way back to the shared pool.

mod drain;
mod pins;
mod topology;

pub use drain::drain;
pub use pins::{PinRow, pins, show_pins, show_rows};
pub use topology::{NodeTopology, TopologySources};
