//! The guarantees of the record, as readable tests.

mod appending;
mod codec;
mod compat;
mod damage;
mod fuzz;
mod graph;
mod joiners;
mod laws;
mod lineage;
mod python;
mod rewrite;
mod scale;
mod support;
mod turn;
mod views;
