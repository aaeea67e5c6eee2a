//! Tests, one per field case.
