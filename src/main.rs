//! The binary: parses arguments and calls `cli`.
fn main() {}
