//! The view as drawn on terminals of 80x24 and 200x50 characters, without color.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod keys;
mod narrow;
mod scene;
mod screens;
mod slow;
