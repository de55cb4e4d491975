//! The page and the JSON API over real connections, and the page in a real browser.

#![allow(clippy::unwrap_used, reason = "tests")]

mod access;
mod api;
mod browser;
mod look;
mod page;
mod paint;
mod past;
mod schema;
mod support;
