//! The runtime.
fn main() {}
