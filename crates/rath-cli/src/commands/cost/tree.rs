//! The cost of a session as a tree: branches below the branches that they were forked from, and the modules that asked.

use std::collections::HashMap;
use std::io::{self, Write};

use anstyle::Style;
use rath::chunk::Chunk;
use rath::provider::{Money, Prices};
use rath::record::draw::{count, one_line, shorten};
use rath::record::lineage::{Lineage, branches};
use rath::record::{BranchId, Usage};
use unicode_width::UnicodeWidthStr;

use crate::output::{self, BRANCH};

/// The depth of branches in the tree, and that of modules in a branch: both fit a terminal, and no tree is too deep to walk.
const MAX_DEPTH: usize = 4;
/// The fewest columns that a name is shortened to.
const MIN_NAME_COLUMNS: usize = 8;

/// A branch or a module, with the cost of its calls and of all below it.
#[derive(serde::Serialize)]
pub(super) struct CostNode {
    name: String,
    kind: NodeKind,
    #[serde(flatten)]
    sum: Sum,
    children: Vec<CostNode>,
}

#[derive(Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum NodeKind {
    Session,
    Branch,
    Module,
}

/// The calls of a model, their tokens and their cost.
#[derive(Clone, Copy, Default, serde::Serialize)]
struct Sum {
    calls: u64,
    usage: Usage,
    #[serde(rename = "dollars", serialize_with = "as_dollars")]
    money: Money,
    /// True if a model without a price was asked, so that the cost is higher.
    has_unpriced: bool,
}

fn as_dollars<S: serde::Serializer>(money: &Money, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(money.as_dollars())
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.calls += other.calls;
        self.usage += other.usage;
        self.money += other.money;
        self.has_unpriced |= other.has_unpriced;
    }
}

impl CostNode {
    /// Returns the tree of the calls behind the heads of a lineage, each call once.
    pub(super) fn of(lineage: &Lineage, prices: &Prices) -> Self {
        let walk = lineage.walk();
        // The cost of each branch by module, in the order of the first calls.
        let mut costs: HashMap<BranchId, Vec<(&str, Sum)>> = HashMap::new();
        for step in &walk {
            let recorded = step.chunk().recorded_cost();
            let Some(usage) = step.stamp().usage.or(recorded.map(|_| Usage::default())) else { continue };
            let identity = match step.chunk() {
                Chunk::Assistant(answer) => answer.provider.as_ref(),
                _ => None,
            };
            let money = recorded.or_else(|| Some(prices.get(identity?)?.cost(usage)));
            let sum = Sum { calls: 1, usage, money: money.unwrap_or_default(), has_unpriced: money.is_none() };
            let modules = costs.entry(step.stamp().branch).or_default();
            let module = step.stamp().by.as_deref().unwrap_or_default();
            match modules.iter_mut().find(|(name, _)| *name == module) {
                Some((_, known)) => known.add(sum),
                None => modules.push((module, sum)),
            }
        }
        let list = branches(&walk);
        let index: HashMap<BranchId, usize> = list.iter().enumerate().map(|(nth, branch)| (branch.id, nth)).collect();
        let mut nodes: Vec<(CostNode, Option<usize>)> = Vec::with_capacity(list.len());
        let mut depths: Vec<usize> = Vec::with_capacity(list.len());
        for (nth, branch) in list.iter().enumerate() {
            let fork = branch.first.parents().first().and_then(|parent| parent.step());
            let mut above = fork.and_then(|fork| index.get(&fork.stamp().branch).copied()).filter(|above| *above < nth);
            // Forks of forks without end stand side by side.
            if let Some(deep) = above.filter(|above| depths[*above] >= MAX_DEPTH) {
                above = nodes[deep].1;
            }
            depths.push(above.map_or(1, |above| depths[above] + 1));
            let mut node = CostNode::new(&branch.name, NodeKind::Branch);
            for (module, sum) in costs.remove(&branch.id).unwrap_or_default() {
                node.sum.add(sum);
                if !module.is_empty() {
                    node.add_module(module, sum);
                }
            }
            nodes.push((node, above));
        }
        let mut root = CostNode::new("all branches", NodeKind::Session);
        // A branch comes after the one that it was forked from, so the last one gets no more children.
        while let Some((mut node, above)) = nodes.pop() {
            node.oldest_branch_first();
            let above = above.map_or(&mut root, |above| &mut nodes[above].0);
            above.sum.add(node.sum);
            if node.sum.calls > 0 {
                above.children.push(node);
            }
        }
        root.oldest_branch_first();
        root
    }

    /// Reverses the branches, which were added from the newest to the oldest. They stand after the modules.
    fn oldest_branch_first(&mut self) {
        let modules = self.children.iter().take_while(|child| child.kind == NodeKind::Module).count();
        self.children[modules..].reverse();
    }

    fn new(name: &str, kind: NodeKind) -> Self {
        CostNode { name: name.to_owned(), kind, sum: Sum::default(), children: Vec::new() }
    }

    /// Adds the calls of a module below the modules that contain it: `readme.agent` below `readme`.
    fn add_module(&mut self, path: &str, sum: Sum) {
        let mut node = self;
        for name in path.splitn(MAX_DEPTH, '.') {
            let known = node.children.iter().position(|child| child.kind == NodeKind::Module && child.name == name);
            let index = known.unwrap_or_else(|| {
                node.children.push(CostNode::new(name, NodeKind::Module));
                node.children.len() - 1
            });
            node = &mut node.children[index];
            node.sum.add(sum);
        }
    }

    /// Prints the tree: a line each for a branch and a module.
    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut rows = Vec::new();
        self.list(&mut rows, "", "");
        let widest = |of: fn(&Row) -> usize| rows.iter().map(of).max().unwrap_or_default();
        let (calls, tokens) = (widest(|row| row.calls.len()), widest(|row| row.tokens.len()));
        let numbers = "  ".len() + calls + "  ".len() + tokens + "  ".len() + widest(|row| row.money.len());
        let room = output::columns().saturating_sub(numbers);
        let columns = widest(|row| row.prefix.width() + row.name.width()).min(room);
        rows.iter().try_for_each(|row| {
            let name = shorten(&row.name, columns.saturating_sub(row.prefix.width()).max(MIN_NAME_COLUMNS));
            let padding = " ".repeat(columns.saturating_sub(row.prefix.width() + name.width()));
            let Row { prefix, style, money, .. } = row;
            writeln!(
                out,
                "{prefix}{style}{name}{style:#}{padding}  {:>calls$}  {:>tokens$}  {money}",
                row.calls, row.tokens
            )
        })?;
        if self.sum.has_unpriced { writeln!(out, "+ and the cost of models that have no price") } else { Ok(()) }
    }

    /// Lists the rows of the tree. `first` stands before the name, `rest` before the rows below it.
    fn list(&self, rows: &mut Vec<Row>, first: &str, rest: &str) {
        let Usage { input, output, .. } = self.sum.usage;
        // The end of the table explains the sign.
        let unpriced = if self.sum.has_unpriced { "+" } else { "" };
        rows.push(Row {
            prefix: first.to_owned(),
            name: one_line(&self.name),
            style: if self.kind == NodeKind::Branch { BRANCH } else { Style::new() },
            calls: count(self.sum.calls, "call"),
            tokens: format!("{} tokens", output::grouped(input.saturating_add(output))),
            money: format!("{}{unpriced}", self.sum.money),
        });
        for (nth, child) in self.children.iter().enumerate() {
            let (branch, below) = if nth + 1 < self.children.len() { ("├─ ", "│  ") } else { ("└─ ", "   ") };
            child.list(rows, &format!("{rest}{branch}"), &format!("{rest}{below}"));
        }
    }
}

/// A line of the tree.
struct Row {
    prefix: String,
    name: String,
    style: Style,
    calls: String,
    tokens: String,
    money: String,
}
