//! The commands about a node: [`doctor`] examines it; `topology` and `pins` show its CPUs with their
//! owners and the pods with exclusive CPUs; `drain` returns these CPUs to the shared pool.

pub mod doctor;
mod drain;
mod pins;
mod topology;

pub use drain::drain;
pub use pins::{pins, show_pins};
pub use topology::{TopologySources, show_topology, topology};
