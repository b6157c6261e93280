//! Policy as a table: autonomy × risk → ruling (G3).

/// What the table says of one cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// Run it.
    Allow,
    /// Ask a person.
    Ask,
    /// Don't.
    Deny,
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matrix;
