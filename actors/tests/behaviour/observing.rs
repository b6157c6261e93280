//! What administrators see (A1).
