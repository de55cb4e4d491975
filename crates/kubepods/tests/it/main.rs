//! Path grammar, pod lists, quantities and the join, also on recordings of nodes.

mod decode;
mod index;
mod parsers;
mod path;
mod quantity;
mod recorded_nodes;
