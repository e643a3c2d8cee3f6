//! The `payhook` binary.
fn main() {}
