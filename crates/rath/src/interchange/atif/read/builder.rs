//! The record of one trajectory while its steps are read.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use rath_record::chunk::{Chunk, Instructions, ToolResult, ToolSpec};
use rath_record::{BranchId, Record, StepId, Usage};

use crate::interchange::builder::RecordBuilder;
use crate::interchange::extras::Extras;
use crate::interchange::notes::Notes;
use crate::interchange::object::ObjectReader;
use crate::secrets::Secrets;

/// The record of one trajectory under construction.
pub(super) struct TrajectoryBuilder {
    pub(super) record: RecordBuilder,
    pub(super) tools: Vec<ToolSpec>,
    /// True if rath wrote the trajectory.
    is_from_rath: bool,
    /// The messages of the system steps at the beginning.
    pub(super) prompt: Vec<String>,
    /// True once the instructions are in the record, or known not to come.
    pub(super) has_instructions: bool,
    /// The steps of the record by the number of the trajectory's step they were read from.
    pub(super) steps: HashMap<u64, Vec<StepId>>,
    /// Results by the number of the step that they came after, if that is not their own step; with their own number.
    pub(super) late_results: BTreeMap<u64, Vec<(u64, ToolResult, Extras)>>,
    /// Chunks that rath wrote beside the steps, by the number of the step that they came after.
    pub(super) chunks: BTreeMap<u64, Vec<Extras>>,
    /// The sub-agents' trajectories by id.
    pub(super) subagents: HashMap<String, Record>,
    /// The ids of the sub-agents' trajectories that are in the record.
    pub(super) kept_asides: HashSet<String>,
    /// The sum of the steps' usage.
    pub(super) counted: Usage,
}

impl TrajectoryBuilder {
    pub(super) fn new(branch: Option<BranchId>, tools: Vec<ToolSpec>, is_from_rath: bool, secrets: &Secrets) -> Self {
        TrajectoryBuilder {
            record: RecordBuilder::new(branch, secrets),
            tools,
            is_from_rath,
            prompt: Vec::new(),
            has_instructions: false,
            steps: HashMap::new(),
            late_results: BTreeMap::new(),
            chunks: BTreeMap::new(),
            subagents: HashMap::new(),
            kept_asides: HashSet::new(),
            counted: Usage::default(),
        }
    }

    /// Appends the prompt and the tools as instructions, the first time that it is called.
    ///
    /// Trajectories that rath wrote have their instructions as marked steps.
    pub(super) fn push_instructions(&mut self) {
        if std::mem::replace(&mut self.has_instructions, true) || self.is_from_rath {
            return;
        }
        let text = std::mem::take(&mut self.prompt).join("\n\n");
        if !text.is_empty() || !self.tools.is_empty() {
            let instructions = Instructions::new(text).with_tools(self.tools.clone());
            self.record.push(Chunk::Instructions(instructions), &Extras::default());
        }
    }

    /// Appends a result, and notes one that matches no open call.
    pub(super) fn push_result(&mut self, result: ToolResult, extras: &Extras, notes: &Notes) -> StepId {
        let call = result.call.clone();
        let (step, is_matched) = self.record.push_result(result, extras);
        if !is_matched {
            notes.add(format!("a result for `{call}` matches no open call: it is kept and not shown"));
        }
        step
    }

    /// Appends the results and chunks that came after a step and are written elsewhere in the document.
    pub(super) fn push_deferred(&mut self, number: u64, notes: &Notes) {
        for (result_number, result, extras) in self.late_results.remove(&number).unwrap_or_default() {
            let step = self.push_result(result, &extras, notes);
            self.steps.entry(result_number).or_default().push(step);
        }
        for mut extras in self.chunks.remove(&number).unwrap_or_default() {
            match extras.chunk.take().and_then(|embedded| embedded.decode()) {
                Some(chunk) => _ = self.record.push(chunk, &extras),
                None => notes.count("chunk", "under `rath` cannot be read and is left out"),
            }
        }
    }

    /// Appends the results and chunks whose preceding step does not exist.
    pub(super) fn push_all_deferred(&mut self, notes: &Notes) {
        let numbers: BTreeSet<u64> = self.late_results.keys().chain(self.chunks.keys()).copied().collect();
        if !numbers.is_empty() {
            notes.add("some results or chunks name a preceding step that does not exist: they are kept at the end");
        }
        numbers.into_iter().for_each(|number| self.push_deferred(number, notes));
    }

    /// Adds a sub-agent's trajectory to the record, unless it is there already.
    pub(super) fn keep_aside(&mut self, id: &str) {
        if let Some(work) = self.subagents.get(id)
            && self.kept_asides.insert(id.to_owned())
        {
            self.record.keep_aside(work);
        }
    }

    /// Appends a note with the tokens that the trajectory counts in all and that no step used.
    pub(super) fn push_uncounted_usage(&mut self, mut totals: ObjectReader<'_>) {
        let mut tokens = |name| totals.take_number(name);
        let [input, output, cached] =
            ["total_prompt_tokens", "total_completion_tokens", "total_cached_tokens"].map(&mut tokens);
        tokens("total_steps");
        if let Some(cost) = totals.take::<f64>("total_cost_usd", "an amount").filter(|_| !self.is_from_rath) {
            totals.note(format_args!("the total cost, ${cost}, is left out: only the cost of each answer is kept"));
        }
        totals.take_raw("extra");
        let counted = self.counted;
        let uncounted = |total: Option<u64>, counted: u64| total.unwrap_or(counted).saturating_sub(counted);
        let rest = Usage {
            cached_read: uncounted(cached, counted.cached_read),
            ..Usage::new(uncounted(input, counted.input), uncounted(output, counted.output))
        };
        if input.is_some_and(|input| input < counted.input) || output.is_some_and(|output| output < counted.output) {
            totals.note(format_args!("counts fewer tokens than the steps, which count {counted}"));
        }
        if rest != Usage::default() {
            totals.note(format_args!("counts more tokens than the steps: {rest}"));
            self.record.push_note("tokens that the trajectory counts and no step of it used", None, Some(rest));
        }
        totals.finish();
    }
}
