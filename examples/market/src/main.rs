//! Market.
fn main() {}
