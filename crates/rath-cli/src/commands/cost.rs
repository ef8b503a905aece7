//! `rath cost`: show the cost of the model calls.

mod tree;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rath::provider::{Cost, Money, Prices, ProviderError};
use rath::record::draw::{BranchNames, one_line};
use rath::record::{BranchId, StepId, Usage};

use self::tree::CostNode;
use crate::output::{self, CommandResult, Failure};
use crate::sessions::SessionAtArg;

/// Show the cost of the model calls, by model and by branch
///
/// A call counts once, however many branches contain it.
#[derive(clap::Args)]
pub(crate) struct CostArgs {
    #[command(flatten)]
    session: SessionAtArg,
    /// A JSON file with prices that replace the built-in ones, in dollars per million tokens: `{"openai:NAME":
    /// {"input": 1.25, "output": 10}}`
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Show the cost by branch and by the part of the program that asked, as a tree
    #[arg(long)]
    tree: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &CostArgs) -> CommandResult {
    let prices = match &args.prices {
        None => Prices::list(),
        Some(path) => Prices::list().read(&read(path)?).map_err(|error| in_file(path, &error))?,
    };
    let loaded = args.session.read().await?;
    let exit = loaded.warn();
    let cost = loaded.session.cost(&prices);
    let names = BranchNames::new(&loaded.lineage);
    let tree = args.tree.then(|| CostNode::of(&loaded.lineage, &prices));
    if args.json {
        output::data(|out| output::json_line(out, &CostJson { tree, ..CostJson::new(&cost, &names) }))?;
    } else {
        match &tree {
            Some(tree) => output::text(|out| tree.print(out))?,
            None => output::text(|out| print(out, &cost, &names))?,
        }
        if has_unpriced(&cost) {
            output::message!("hint: `rath cost --help` tells how to give the prices of other models");
        }
    }
    Ok(exit)
}

const FORMAT_HINT: &str = "`rath cost --help` shows the format of the file";

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        let message = format!("cannot read the prices in {}: {error}", path.display());
        Failure::new(message, "`--prices` names a JSON file: prices by model")
    })
}

/// Adds the path of the file to an error.
fn in_file(path: &Path, error: &ProviderError) -> Failure {
    let text = error.message();
    let message = text.lines().next().unwrap_or_default();
    Failure::new(format!("{}: {message}", path.display()), error.hint().unwrap_or(FORMAT_HINT))
}

fn print(out: &mut dyn Write, cost: &Cost, names: &BranchNames) -> io::Result<()> {
    let mut rows: Vec<[String; 3]> = Vec::new();
    for (model, usage, money) in &cost.by_model {
        let model = model.as_ref().map_or_else(|| "model not recorded".to_owned(), ToString::to_string);
        let money = money.map_or_else(|| "no price".to_owned(), |money| money.to_string());
        rows.push([one_line(&model), describe_usage(usage), money]);
    }
    let total = if has_unpriced(cost) { "total of priced models" } else { "total" };
    rows.push([total.to_owned(), String::new(), cost.total.to_string()]);
    if cost.by_branch.len() > 1 && cost.total > Money::default() {
        let branches = cost.by_branch.iter();
        rows.extend(branches.map(|(branch, money)| {
            [format!("  on {}", one_line(names.name_of(*branch))), String::new(), money.to_string()]
        }));
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let (first, second) = (width(0), width(1));
    rows.iter().try_for_each(|[what, usage, money]| writeln!(out, "{what:<first$}  {usage:<second$}  {money}"))?;
    Ok(())
}

fn has_unpriced(cost: &Cost) -> bool {
    cost.by_model.iter().any(|(_, _, money)| money.is_none())
}

fn describe_usage(usage: &Usage) -> String {
    let parts =
        [("cached", usage.cached_read), ("written to the cache", usage.cache_write), ("reasoning", usage.reasoning)];
    let parts = parts.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!(", {count} {name}"));
    format!("{usage}{}", parts.collect::<String>())
}

#[derive(serde::Serialize)]
struct CostJson<'a> {
    head: Option<StepId>,
    dollars: f64,
    by_model: Vec<ModelJson<'a>>,
    by_branch: Vec<BranchJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tree: Option<CostNode>,
}

#[derive(serde::Serialize)]
struct ModelJson<'a> {
    provider: Option<&'a str>,
    model: Option<&'a str>,
    usage: Usage,
    dollars: Option<f64>,
}

#[derive(serde::Serialize)]
struct BranchJson<'a> {
    branch: BranchId,
    branch_name: &'a str,
    dollars: f64,
}

impl<'a> CostJson<'a> {
    fn new(cost: &'a Cost, names: &'a BranchNames) -> Self {
        let by_model = cost.by_model.iter().map(|(identity, usage, money)| ModelJson {
            provider: identity.as_ref().map(|identity| &*identity.provider),
            model: identity.as_ref().map(|identity| &*identity.model),
            usage: *usage,
            dollars: money.map(Money::as_dollars),
        });
        let by_branch = cost.by_branch.iter().map(|(branch, money)| BranchJson {
            branch: *branch,
            branch_name: names.name_of(*branch),
            dollars: money.as_dollars(),
        });
        CostJson {
            head: cost.head,
            dollars: cost.total.as_dollars(),
            by_model: by_model.collect(),
            by_branch: by_branch.collect(),
            tree: None,
        }
    }
}
