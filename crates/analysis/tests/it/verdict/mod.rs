//! Victims and causes.

mod counterexamples;
mod methods;
mod over_time;
mod properties;
mod reading;
mod recorded;
mod scene;
