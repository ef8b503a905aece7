//! Verification of an exported graph.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;

use super::SEAL_MEMBER;
use crate::id::Seal;

/// Verifies an exported graph; its rows may be in any order.
///
/// ```
/// use rath_record::graph;
///
/// let report = graph::verify(b"{}\n");
/// assert_eq!((report.rows, report.problems.len()), (1, 1));
/// ```
pub fn verify(export: &[u8]) -> GraphReport {
    let mut report = GraphReport::default();
    let mut rows: Vec<BranchParents> = Vec::new();
    let mut index: HashMap<String, usize> = HashMap::new();
    for (nth, bytes) in export.split(|byte| *byte == b'\n').enumerate() {
        let line = nth as u64 + 1;
        if bytes.is_empty() {
            continue;
        }
        report.rows += 1;
        let row: ParsedRow = match serde_json::from_slice(bytes) {
            Ok(row) => row,
            Err(error) => {
                report.add(line, None, GraphFault::NotARow(error.to_string()));
                continue;
            }
        };
        if !is_sealed(bytes) {
            report.add(line, Some(&row.id), GraphFault::SealMismatch);
        }
        if index.contains_key(&row.id) {
            report.add(line, Some(&row.id), GraphFault::Duplicate);
            continue;
        }
        index.insert(row.id.clone(), rows.len());
        rows.push(BranchParents { line, id: row.id, parents: row.parent_session_ids });
    }
    for row in &rows {
        for parent in row.parents.iter().filter(|parent| !index.contains_key(*parent)) {
            report.add(row.line, Some(&row.id), GraphFault::MissingParent(parent.clone()));
        }
    }
    for cycle in find_cycles(&rows, &index) {
        let row = &rows[cycle[0]];
        let through = cycle.iter().map(|at| rows[*at].id.clone()).collect();
        report.add(row.line, Some(&row.id), GraphFault::Cycle(through));
    }
    report.problems.sort_by_key(|problem| problem.line);
    report
}

/// The result of verifying an exported graph.
///
/// Returned by [`verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphReport {
    /// The number of rows.
    pub rows: u64,
    /// The problems, in file order.
    pub problems: Vec<GraphProblem>,
}

impl GraphReport {
    fn add(&mut self, line: u64, id: Option<&str>, fault: GraphFault) {
        self.problems.push(GraphProblem { line, id: id.map(str::to_owned), fault });
    }
}

/// A problem in an exported graph, with its location.
///
/// Part of [`GraphReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphProblem {
    /// The line number, from 1.
    pub line: u64,
    /// The id of the branch, if its row can be read.
    pub id: Option<String>,
    /// The kind of problem.
    pub fault: GraphFault,
}

impl fmt::Display for GraphProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        if let Some(id) = &self.id {
            write!(f, ", session {id}")?;
        }
        write!(f, ": {}", self.fault)
    }
}

/// A kind of problem in a row of an exported graph.
///
/// Part of [`GraphProblem`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphFault {
    /// The line is not a row.
    #[error("not a row: {0}")]
    NotARow(String),
    /// The bytes do not match the seal.
    #[error("the row was changed: its seal is missing or does not match its bytes")]
    SealMismatch,
    /// The branch has a row already.
    #[error("the session appears twice")]
    Duplicate,
    /// A parent has no row.
    #[error("parent {0} is missing")]
    MissingParent(String),
    /// A branch descends from itself.
    #[error("a cycle: {}", .0.join(" → "))]
    Cycle(Vec<String>),
}

#[derive(Deserialize)]
struct ParsedRow {
    id: String,
    parent_session_ids: Vec<String>,
}

struct BranchParents {
    line: u64,
    id: String,
    parents: Vec<String>,
}

fn is_sealed(line: &[u8]) -> bool {
    let Some(at) = line.len().checked_sub(SEAL_MEMBER.len() + Seal::HEX_DIGITS + r#""}"#.len()) else { return false };
    let (sealed, seal) = line.split_at(at);
    seal == format!("{SEAL_MEMBER}{}\"}}", Seal::compute(sealed)).as_bytes()
}

/// Returns one cycle for every set of rows that form cycles, each starting at its first row.
fn find_cycles(rows: &[BranchParents], index: &HashMap<String, usize>) -> Vec<Vec<usize>> {
    let parents: Vec<Vec<usize>> =
        rows.iter().map(|row| row.parents.iter().filter_map(|id| index.get(id).copied()).collect()).collect();
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); rows.len()];
    let mut parents_left: Vec<usize> = parents.iter().map(Vec::len).collect();
    for (row, parents) in parents.iter().enumerate() {
        for parent in parents {
            children[*parent].push(row);
        }
    }
    // Repeatedly remove the rows that have no parent left. Every row that stays descends from a cycle.
    let mut without_parents: Vec<usize> = (0..rows.len()).filter(|row| parents_left[*row] == 0).collect();
    while let Some(row) = without_parents.pop() {
        for child in &children[row] {
            parents_left[*child] -= 1;
            if parents_left[*child] == 0 {
                without_parents.push(*child);
            }
        }
    }
    // From such a row the way to its parents never ends, so following it must come back to a row visited before.
    let mut cycles = Vec::new();
    let mut visited_from: Vec<Option<usize>> = vec![None; rows.len()];
    for start in (0..rows.len()).filter(|row| parents_left[*row] > 0) {
        let mut path = Vec::new();
        let mut at = start;
        while visited_from[at].is_none() {
            visited_from[at] = Some(start);
            path.push(at);
            at = parents[at].iter().copied().find(|parent| parents_left[*parent] > 0).unwrap_or(at);
        }
        if visited_from[at] == Some(start)
            && let Some(from) = path.iter().position(|step| *step == at)
        {
            let mut cycle = path.split_off(from);
            let first = cycle.iter().enumerate().min_by_key(|(_, row)| **row).map_or(0, |(nth, _)| nth);
            cycle.rotate_left(first);
            cycles.push(cycle);
        }
    }
    cycles
}
