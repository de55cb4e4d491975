/* Empty, for Clippy of another system: ring includes it, and needs nothing of it to compile. */
