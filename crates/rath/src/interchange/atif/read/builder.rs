//! The record of one trajectory while its steps are read.

use std::collections::{BTreeMap, HashMap, HashSet};

use rath_record::chunk::{Assistant, Chunk, Instructions, ToolResult, ToolSpec};
use rath_record::{BranchId, Money, Record, StepId, Usage};
use serde_json::value::RawValue;

use crate::interchange::builder::RecordBuilder;
use crate::interchange::extras::{EmbeddedChunk, Extras};
use crate::interchange::notes::{NoteCode, Notes};
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
    /// The steps of the record by their position in the session that rath wrote.
    pub(super) steps: HashMap<u64, StepId>,
    /// Steps of the record that are written elsewhere in the document than they happened, by their position.
    deferred: BTreeMap<u64, Vec<DeferredStep>>,
    /// The highest position of a result or an aside in the steps that were read.
    reached: u64,
    /// The sub-agents' trajectories by id.
    pub(super) subagents: HashMap<String, Record>,
    /// The ids of the sub-agents' trajectories that are in the record.
    pub(super) kept_asides: HashSet<String>,
    /// The sum of the steps' usage.
    pub(super) counted: Usage,
    /// The part of the total cost that no step has, and the number of the last step of an agent.
    uncounted_cost: Option<(Money, Option<u64>)>,
}

/// A step of the record that waits for those before it.
pub(super) enum DeferredStep {
    Result(ToolResult, Extras),
    /// A chunk that is not a step of the document.
    Chunk(Extras),
    /// The sub-agent's trajectory with this id.
    Aside(String),
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
            deferred: BTreeMap::new(),
            reached: 0,
            subagents: HashMap::new(),
            kept_asides: HashSet::new(),
            counted: Usage::default(),
            uncounted_cost: None,
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

    /// Appends a chunk.
    pub(super) fn push(&mut self, chunk: Chunk, extras: &Extras) {
        let step = self.record.push(chunk, extras);
        self.steps.extend(extras.nth.map(|nth| (nth, step)));
    }

    /// Appends an answer. Rath writes which of its calls were started, approved or denied.
    pub(super) fn push_answer(&mut self, answer: Assistant, extras: &Extras) {
        let progress: Option<&[EmbeddedChunk]> = extras.nth.filter(|_| self.is_from_rath).map(|_| &[][..]);
        let step = self.record.push_answer(answer, extras, progress);
        self.steps.extend(extras.nth.map(|nth| (nth, step)));
    }

    /// Appends a result, and notes one that matches no open call.
    pub(super) fn push_result(&mut self, result: ToolResult, extras: &Extras, notes: &Notes) {
        let call = result.call.clone();
        let (step, is_matched) = self.record.push_result(result, extras);
        if !is_matched {
            let text = format!("a result for `{call}` matches no open call: it is kept and not shown");
            notes.add(NoteCode::Invalid, text);
        }
        self.steps.extend(extras.nth.map(|nth| (nth, step)));
    }

    /// Lets a step wait until the steps before its position are in the record.
    pub(super) fn defer(&mut self, nth: u64, step: DeferredStep) {
        self.deferred.entry(nth).or_default().push(step);
    }

    /// Lets a part of a step of the document wait. It does not wait for steps that another program added.
    pub(super) fn defer_until_reached(&mut self, nth: u64, step: DeferredStep) {
        self.reached = self.reached.max(nth);
        self.defer(nth, step);
    }

    /// Appends the steps that wait for a step of the document with this position.
    pub(super) fn push_deferred_before(&mut self, nth: Option<u64>, notes: &Notes) {
        self.push_deferred(nth.map_or(self.reached, |nth| nth.saturating_sub(1)), notes);
    }

    /// Appends the steps that wait, up to a position.
    pub(super) fn push_deferred(&mut self, last: u64, notes: &Notes) {
        while let Some(entry) = self.deferred.first_entry().filter(|entry| *entry.key() <= last) {
            for step in entry.remove() {
                match step {
                    DeferredStep::Result(result, extras) => self.push_result(result, &extras, notes),
                    DeferredStep::Aside(id) => self.keep_aside(&id),
                    DeferredStep::Chunk(mut extras) => {
                        match extras.chunk.take().and_then(|embedded| embedded.decode()) {
                            Some(chunk) => self.push(chunk, &extras),
                            None => {
                                notes.count(NoteCode::Damaged, "chunk", "under `rath` cannot be read and is left out");
                            }
                        }
                    }
                }
            }
        }
    }

    /// Adds a sub-agent's trajectory to the record, unless it is there already.
    pub(super) fn keep_aside(&mut self, id: &str) {
        if let Some(work) = self.subagents.get(id)
            && self.kept_asides.insert(id.to_owned())
        {
            self.record.keep_aside(work);
        }
    }

    /// Finds the part of the total cost that no step has.
    pub(super) fn assign_uncounted_cost(&mut self, steps: &[Box<RawValue>], totals: Option<&ObjectReader<'_>>) {
        #[derive(Default, serde::Deserialize)]
        #[serde(default)]
        struct StepCost {
            source: String,
            metrics: Option<CostMetrics>,
        }
        #[derive(serde::Deserialize)]
        struct CostMetrics {
            cost_usd: Option<f64>,
        }
        let Some(total) = totals.and_then(|totals| totals.peek::<f64>("total_cost_usd")) else { return };
        let steps = steps.iter().map(|raw| serde_json::from_str::<StepCost>(raw.get()).unwrap_or_default());
        let (mut counted, mut last) = (Money::default(), None);
        for (step, number) in steps.zip(1_u64..).filter(|(step, _)| step.source == "agent") {
            counted += step.metrics.and_then(|metrics| metrics.cost_usd).map(Money::dollars).unwrap_or_default();
            last = Some(number);
        }
        let rest = Money::dollars(total).saturating_sub(counted);
        // Sums of floating-point numbers differ in their last digits.
        self.uncounted_cost = (rest > Money::dollars(total * 1e-9)).then_some((rest, last));
    }

    /// Returns the cost of a step in dollars, with the cost that no step has if the step is the last one of an agent.
    pub(super) fn with_uncounted_cost(&self, number: u64, cost: Option<f64>) -> Option<f64> {
        match self.uncounted_cost {
            Some((rest, Some(last))) if last == number && !self.is_from_rath => {
                Some(cost.unwrap_or_default() + rest.as_dollars())
            }
            _ => cost,
        }
    }

    /// Appends a note with the tokens that the trajectory counts in all and that no step used.
    pub(super) fn push_uncounted_usage(&mut self, mut totals: ObjectReader<'_>) {
        let mut tokens = |name| totals.take_number(name);
        let [input, output, cached] =
            ["total_prompt_tokens", "total_completion_tokens", "total_cached_tokens"].map(&mut tokens);
        tokens("total_steps");
        totals.take::<f64>("total_cost_usd", "an amount");
        match self.uncounted_cost.filter(|_| !self.is_from_rath) {
            Some((cost, Some(_))) => totals.note(
                NoteCode::Changed,
                format_args!("counts {cost} more than the steps: this cost is assigned to the last answer"),
            ),
            Some((cost, None)) => {
                totals.note(
                    NoteCode::LeftOut,
                    format_args!("{cost} is left out: there is no answer that it is the cost of"),
                );
            }
            None => {}
        }
        totals.take_raw("extra");
        let counted = self.counted;
        let uncounted = |total: Option<u64>, counted: u64| total.unwrap_or(counted).saturating_sub(counted);
        let rest = Usage {
            cached_read: uncounted(cached, counted.cached_read),
            ..Usage::new(uncounted(input, counted.input), uncounted(output, counted.output))
        };
        if input.is_some_and(|input| input < counted.input) || output.is_some_and(|output| output < counted.output) {
            totals.note(NoteCode::Mismatch, format_args!("counts fewer tokens than the steps, which count {counted}"));
        }
        if rest != Usage::default() {
            totals.note(NoteCode::Mismatch, format_args!("counts more tokens than the steps: {rest}"));
            self.record.push_note("tokens that the trajectory counts and no step of it used", None, Some(rest));
        }
        totals.finish();
    }
}
