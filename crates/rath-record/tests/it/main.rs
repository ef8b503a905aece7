//! What the record promises, as tests that anyone can read.

mod codec;
mod damage;
mod fuzz;
mod graph;
mod laws;
mod lineage;
mod scale;
mod support;
mod turn;
mod views;
