//! Victims and causes.

mod counterexamples;
mod over_time;
mod properties;
mod reading;
mod scene;
