//! The allocator, plans and steps; the vectors are a target of their own.

mod contract;
mod invariants;
mod plan;
mod steps;
