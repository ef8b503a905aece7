//! A check of an exported graph.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;

use super::SEAL_LAST;
use crate::id::Seal;

/// Checks an exported graph, rows in any order.
pub fn verify(export: &[u8]) -> GraphReport {
    let mut report = GraphReport::default();
    let mut rows: Vec<Known> = Vec::new();
    let mut index: HashMap<String, usize> = HashMap::new();
    for (nth, bytes) in export.split(|byte| *byte == b'\n').enumerate() {
        let line = nth as u64 + 1;
        if bytes.is_empty() {
            continue;
        }
        report.rows += 1;
        let row: ReadRow = match serde_json::from_slice(bytes) {
            Ok(row) => row,
            Err(error) => {
                report.add(line, None, GraphFault::NotARow(error.to_string()));
                continue;
            }
        };
        if !is_sealed(bytes) {
            report.add(line, Some(&row.id), GraphFault::Seal);
        }
        if index.contains_key(&row.id) {
            report.add(line, Some(&row.id), GraphFault::Twice);
            continue;
        }
        index.insert(row.id.clone(), rows.len());
        rows.push(Known { line, id: row.id, parents: row.parent_session_ids });
    }
    for row in &rows {
        for parent in row.parents.iter().filter(|parent| !index.contains_key(*parent)) {
            report.add(row.line, Some(&row.id), GraphFault::MissingParent(parent.clone()));
        }
    }
    for cycle in cycles(&rows, &index) {
        let row = &rows[cycle[0]];
        let through = cycle.iter().map(|at| rows[*at].id.clone()).collect();
        report.add(row.line, Some(&row.id), GraphFault::Cycle(through));
    }
    report.problems.sort_by_key(|problem| problem.line);
    report
}

/// What a check of an exported graph found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphReport {
    /// How many rows it has.
    pub rows: u64,
    /// What is wrong with it, in file order.
    pub problems: Vec<Problem>,
}

impl GraphReport {
    fn add(&mut self, line: u64, id: Option<&str>, fault: GraphFault) {
        self.problems.push(Problem { line, id: id.map(str::to_owned), fault });
    }
}

/// One thing that is wrong with an exported graph, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: u64,
    /// The branch, where its row can be read.
    pub id: Option<String>,
    /// What is wrong.
    pub fault: GraphFault,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        if let Some(id) = &self.id {
            write!(f, ", session {id}")?;
        }
        write!(f, ": {}", self.fault)
    }
}

/// What is wrong with a row of an exported graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphFault {
    /// It does not read as a row.
    #[error("not a row: {0}")]
    NotARow(String),
    /// Its bytes are not those that were sealed.
    #[error("the row was changed: its seal is missing or does not fit its bytes")]
    Seal,
    /// There is a row for this branch already.
    #[error("the session is there twice")]
    Twice,
    /// A parent has no row.
    #[error("parent {0} is missing")]
    MissingParent(String),
    /// A branch descends from itself.
    #[error("a cycle: {}", .0.join(" → "))]
    Cycle(Vec<String>),
}

#[derive(Deserialize)]
struct ReadRow {
    id: String,
    parent_session_ids: Vec<String>,
}

struct Known {
    line: u64,
    id: String,
    parents: Vec<String>,
}

fn is_sealed(line: &[u8]) -> bool {
    let Some(at) = line.len().checked_sub(SEAL_LAST.len() + Seal::HEX + r#""}"#.len()) else { return false };
    let (sealed, seal) = line.split_at(at);
    seal == format!("{SEAL_LAST}{}\"}}", Seal::of(sealed)).as_bytes()
}

/// One cycle for every knot in the graph, each named from its first row on.
fn cycles(rows: &[Known], index: &HashMap<String, usize>) -> Vec<Vec<usize>> {
    let parents: Vec<Vec<usize>> =
        rows.iter().map(|row| row.parents.iter().filter_map(|id| index.get(id).copied()).collect()).collect();
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); rows.len()];
    let mut waits_for: Vec<usize> = parents.iter().map(Vec::len).collect();
    for (row, parents) in parents.iter().enumerate() {
        for parent in parents {
            children[*parent].push(row);
        }
    }
    // Take away, again and again, what has no parent left. What stays descends from a cycle.
    let mut free: Vec<usize> = (0..rows.len()).filter(|row| waits_for[*row] == 0).collect();
    while let Some(row) = free.pop() {
        for child in &children[row] {
            waits_for[*child] -= 1;
            if waits_for[*child] == 0 {
                free.push(*child);
            }
        }
    }
    // So from any of it the way up never ends: following it must come back to where it was.
    let mut found = Vec::new();
    let mut visited_from: Vec<Option<usize>> = vec![None; rows.len()];
    for start in (0..rows.len()).filter(|row| waits_for[*row] > 0) {
        let mut path = Vec::new();
        let mut at = start;
        while visited_from[at].is_none() {
            visited_from[at] = Some(start);
            path.push(at);
            at = parents[at].iter().copied().find(|parent| waits_for[*parent] > 0).unwrap_or(at);
        }
        if visited_from[at] == Some(start)
            && let Some(from) = path.iter().position(|step| *step == at)
        {
            let mut cycle = path.split_off(from);
            let first = cycle.iter().enumerate().min_by_key(|(_, row)| **row).map_or(0, |(nth, _)| nth);
            cycle.rotate_left(first);
            found.push(cycle);
        }
    }
    found
}
