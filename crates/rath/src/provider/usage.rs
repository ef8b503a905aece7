//! Token counts of different providers, parsed into the same [`Usage`].
//!
//! In [`Usage`], `input` is everything that was read, cached or not, and `output` is everything that was written, reasoning
//! included. Providers differ in what their counts include:
//!
//! | provider | cached input | reasoning |
//! |---|---|---|
//! | OpenAI's Responses | inside `input_tokens` | inside `output_tokens` |
//! | OpenAI's Chat Completions and most servers of its shape | inside `prompt_tokens` | inside `completion_tokens` |
//! | some servers of its shape (xAI) | inside `prompt_tokens` | not in `completion_tokens`, but in the total |
//! | Gemini | inside `promptTokenCount`, which does not include the input of server tools | not in `candidatesTokenCount`: `thoughtsTokenCount` |
//! | Anthropic | not in `input_tokens`: cache reads and writes have counts of their own | inside `output_tokens` |

use rath_record::Usage;
use serde_json::value::RawValue;

use super::assemble::json_members;

/// Parses the usage of OpenAI's Chat Completions. Returns `None` if nothing was counted.
pub(crate) fn parse_chat_usage(raw: &str) -> Option<Usage> {
    let [input, output, total, input_details, output_details, others @ ..] = json_members(
        raw,
        [
            "prompt_tokens",
            "completion_tokens",
            "total_tokens",
            "prompt_tokens_details",
            "completion_tokens_details",
            "prompt_cache_hit_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
            "reasoning_tokens",
        ],
    );
    let [input, output, total] = [input, output, total].map(count);
    let [hit, read, written, reasoning] = others.map(count);
    let [cached_detail, written_detail] = detail_counts(input_details, ["cached_tokens", "cache_write_tokens"]);
    let [reasoning_detail] = detail_counts(output_details, ["reasoning_tokens"]);
    let reasoning = first_count([reasoning_detail, reasoning]);
    let is_separate = reasoning > 0 && total == input.saturating_add(output).saturating_add(reasoning);
    normalize(Usage {
        input,
        output: output.saturating_add(if is_separate { reasoning } else { 0 }),
        cached_read: first_count([cached_detail, hit, read]),
        cache_write: first_count([written_detail, written]),
        reasoning,
    })
}

/// Parses the usage of Anthropic's Messages. Returns `None` if nothing was counted.
pub(crate) fn parse_messages_usage(raw: &str) -> Option<Usage> {
    let [output_details, counts @ ..] = json_members(
        raw,
        [
            "output_tokens_details",
            "input_tokens",
            "output_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
        ],
    );
    let [uncached, output, cached_read, cache_write] = counts.map(count);
    let [reasoning] = detail_counts(output_details, ["thinking_tokens"]);
    let input = uncached.saturating_add(cached_read).saturating_add(cache_write);
    normalize(Usage { input, output, cached_read, cache_write, reasoning })
}

/// Parses the usage of OpenAI's Responses. Returns `None` if nothing was counted.
pub(crate) fn parse_responses_usage(raw: &str) -> Option<Usage> {
    let [input_details, output_details, counts @ ..] =
        json_members(raw, ["input_tokens_details", "output_tokens_details", "input_tokens", "output_tokens"]);
    let [input, output] = counts.map(count);
    let [cached_read, cache_write] = detail_counts(input_details, ["cached_tokens", "cache_write_tokens"]);
    let [reasoning] = detail_counts(output_details, ["reasoning_tokens"]);
    normalize(Usage { input, output, cached_read, cache_write, reasoning })
}

/// Parses the usage of Gemini. Returns `None` if nothing was counted.
pub(crate) fn parse_gemini_usage(raw: &str) -> Option<Usage> {
    let counts = json_members(
        raw,
        [
            "promptTokenCount",
            "toolUsePromptTokenCount",
            "cachedContentTokenCount",
            "candidatesTokenCount",
            "thoughtsTokenCount",
            "totalTokenCount",
        ],
    );
    let [prompt, tool_use, cached_read, candidates, reasoning, total] = counts.map(count);
    let input = prompt.saturating_add(tool_use);
    // Some servers of this shape count the reasoning in both.
    let is_included = reasoning > 0 && reasoning <= candidates && total == input.saturating_add(candidates);
    let output = candidates.saturating_add(if is_included { 0 } else { reasoning });
    normalize(Usage { input, output, cached_read, cache_write: 0, reasoning })
}

/// Limits each part to its whole. Returns `None` if all counts are 0: every request has input.
fn normalize(usage: Usage) -> Option<Usage> {
    let Usage { input, output, .. } = usage;
    let cached_read = usage.cached_read.min(input);
    let cache_write = usage.cache_write.min(input - cached_read);
    let reasoning = usage.reasoning.min(output);
    (input > 0 || output > 0).then_some(Usage { input, output, cached_read, cache_write, reasoning })
}

/// Returns the first count that is not 0: servers disagree on the member that holds it.
fn first_count<const N: usize>(counts: [u64; N]) -> u64 {
    counts.into_iter().find(|count| *count > 0).unwrap_or_default()
}

/// Returns the counts of these names in an object with details; 0 for those that are missing.
fn detail_counts<const N: usize>(details: Option<&RawValue>, names: [&str; N]) -> [u64; N] {
    details.map_or([None; N], |details| json_members(details.get(), names)).map(count)
}

/// Returns the number that a value is, or 0.
fn count(value: Option<&RawValue>) -> u64 {
    let float = |number: &str| serde_json::from_str::<f64>(number).ok().map(|number| number as u64);
    let number = value.map(RawValue::get);
    number.and_then(|number| number.parse().ok().or_else(|| float(number))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(read: fn(&str) -> Option<Usage>, raw: &str, expected: &str) {
        let usage = read(raw);
        let shown = usage.map(|usage| serde_json::to_string(&usage).expect("usage is JSON"));
        assert_eq!(shown.as_deref().unwrap_or("none"), expected, "{raw}");
    }

    #[test]
    fn chat_usage_includes_cached_input() {
        check(
            parse_chat_usage,
            r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}"#,
            r#"{"input":10,"output":5}"#,
        );
        check(
            parse_chat_usage,
            r#"{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":8},
                "completion_tokens_details":{"reasoning_tokens":3}}"#,
            r#"{"input":10,"output":5,"cached_read":8,"reasoning":3}"#,
        );
        check(
            parse_chat_usage,
            r#"{"prompt_tokens":10,"completion_tokens":5,"prompt_cache_hit_tokens":4,"prompt_cache_miss_tokens":6}"#,
            r#"{"input":10,"output":5,"cached_read":4}"#,
        );
    }

    #[test]
    fn reasoning_that_the_output_does_not_include_is_added_to_it() {
        check(
            parse_chat_usage,
            r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":115,
                "completion_tokens_details":{"reasoning_tokens":100}}"#,
            r#"{"input":10,"output":105,"reasoning":100}"#,
        );
    }

    #[test]
    fn messages_usage_counts_cached_input_separately() {
        check(
            parse_messages_usage,
            r#"{"input_tokens":3,"cache_read_input_tokens":100,"cache_creation_input_tokens":20,"output_tokens":7}"#,
            r#"{"input":123,"output":7,"cached_read":100,"cache_write":20}"#,
        );
        check(
            parse_messages_usage,
            r#"{"input_tokens":3,"output_tokens":7,"cache_read_input_tokens":null}"#,
            r#"{"input":3,"output":7}"#,
        );
    }

    #[test]
    fn responses_usage_includes_cached_input() {
        check(
            parse_responses_usage,
            r#"{"input_tokens":10,"output_tokens":5,"total_tokens":15,"input_tokens_details":{"cached_tokens":8},
                "output_tokens_details":{"reasoning_tokens":3}}"#,
            r#"{"input":10,"output":5,"cached_read":8,"reasoning":3}"#,
        );
    }

    #[test]
    fn gemini_usage_counts_reasoning_and_server_tools_separately() {
        check(
            parse_gemini_usage,
            r#"{"promptTokenCount":10,"cachedContentTokenCount":8,"candidatesTokenCount":5,"thoughtsTokenCount":3,
                "toolUsePromptTokenCount":4,"totalTokenCount":22}"#,
            r#"{"input":14,"output":8,"cached_read":8,"reasoning":3}"#,
        );
        check(
            parse_gemini_usage,
            r#"{"promptTokenCount":10,"thoughtsTokenCount":3}"#,
            r#"{"input":10,"output":3,"reasoning":3}"#,
        );
        check(
            parse_gemini_usage,
            r#"{"promptTokenCount":10,"candidatesTokenCount":5,"thoughtsTokenCount":3,"totalTokenCount":15}"#,
            r#"{"input":10,"output":5,"reasoning":3}"#,
        );
    }

    #[test]
    fn a_count_of_nothing_or_nonsense_is_no_count() {
        check(parse_chat_usage, r#"{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}"#, "none");
        check(parse_chat_usage, r#"null"#, "none");
        check(parse_messages_usage, r#"{"input_tokens":"many"}"#, "none");
        check(parse_chat_usage, r#"{"prompt_tokens":-4,"completion_tokens":2.0}"#, r#"{"output":2}"#);
        check(
            parse_chat_usage,
            r#"{"prompt_tokens":4,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":9}}"#,
            r#"{"input":4,"output":1,"cached_read":4}"#,
        );
    }
}
