//! The catalog (G1).
