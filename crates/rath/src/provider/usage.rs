//! What providers count, counted the same way.
//!
//! The one place where their differences are settled. In [`Usage`] `input` is everything that was read, cached or not,
//! and `output` everything that was written, reasoning included.
//!
//! | provider | cached input | reasoning |
//! |---|---|---|
//! | OpenAI and most servers of its shape | inside `prompt_tokens` | inside `completion_tokens` |
//! | some servers of its shape (xAI) | inside `prompt_tokens` | beside `completion_tokens`: then the total says so |
//! | Anthropic | beside `input_tokens`: read and written are counted apart | inside `output_tokens` |

use rath_record::Usage;
use serde_json::Value;

/// Usage as OpenAI's Chat Completions report it. `None` if nothing was counted.
pub(crate) fn chat(raw: &Value) -> Option<Usage> {
    let [input, output, total] = ["prompt_tokens", "completion_tokens", "total_tokens"].map(|name| count(raw, &[name]));
    let cached_read = first(
        raw,
        &[&["prompt_tokens_details", "cached_tokens"], &["prompt_cache_hit_tokens"], &["cache_read_input_tokens"]],
    );
    let cache_write = first(raw, &[&["prompt_tokens_details", "cache_write_tokens"], &["cache_creation_input_tokens"]]);
    let reasoning = first(raw, &[&["completion_tokens_details", "reasoning_tokens"], &["reasoning_tokens"]]);
    let beside = reasoning > 0 && total == input.saturating_add(output).saturating_add(reasoning);
    known(Usage {
        input,
        output: output.saturating_add(if beside { reasoning } else { 0 }),
        cached_read,
        cache_write,
        reasoning,
    })
}

/// Usage as Anthropic's Messages report it. `None` if nothing was counted.
pub(crate) fn messages(raw: &Value) -> Option<Usage> {
    let cached_read = count(raw, &["cache_read_input_tokens"]);
    let cache_write = count(raw, &["cache_creation_input_tokens"]);
    known(Usage {
        input: count(raw, &["input_tokens"]).saturating_add(cached_read).saturating_add(cache_write),
        output: count(raw, &["output_tokens"]),
        cached_read,
        cache_write,
        reasoning: count(raw, &["output_tokens_details", "thinking_tokens"]),
    })
}

/// A count of nothing is no count: every request has input. Parts larger than their whole are cut to it.
fn known(usage: Usage) -> Option<Usage> {
    let Usage { input, output, .. } = usage;
    let cached_read = usage.cached_read.min(input);
    let cache_write = usage.cache_write.min(input - cached_read);
    let reasoning = usage.reasoning.min(output);
    (input > 0 || output > 0).then_some(Usage { input, output, cached_read, cache_write, reasoning })
}

fn first(raw: &Value, paths: &[&[&str]]) -> u64 {
    paths.iter().map(|path| count(raw, path)).find(|count| *count > 0).unwrap_or_default()
}

fn count(raw: &Value, path: &[&str]) -> u64 {
    let number = path.iter().try_fold(raw, |value, name| value.get(name));
    number
        .and_then(|number| number.as_u64().or_else(|| number.as_f64().map(|number| number as u64)))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(read: fn(&Value) -> Option<Usage>, raw: &str, expected: &str) {
        let usage = read(&serde_json::from_str(raw).expect("the case is JSON"));
        let shown = usage.map(|usage| serde_json::to_string(&usage).expect("usage is JSON"));
        assert_eq!(shown.as_deref().unwrap_or("none"), expected, "{raw}");
    }

    #[test]
    fn chat_usage_counts_cached_input_inside() {
        check(chat, r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}"#, r#"{"input":10,"output":5}"#);
        check(
            chat,
            r#"{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":8},
                "completion_tokens_details":{"reasoning_tokens":3}}"#,
            r#"{"input":10,"output":5,"cached_read":8,"reasoning":3}"#,
        );
        check(
            chat,
            r#"{"prompt_tokens":10,"completion_tokens":5,"prompt_cache_hit_tokens":4,"prompt_cache_miss_tokens":6}"#,
            r#"{"input":10,"output":5,"cached_read":4}"#,
        );
    }

    #[test]
    fn reasoning_counted_beside_the_output_is_added_to_it() {
        check(
            chat,
            r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":115,
                "completion_tokens_details":{"reasoning_tokens":100}}"#,
            r#"{"input":10,"output":105,"reasoning":100}"#,
        );
    }

    #[test]
    fn messages_usage_counts_cached_input_beside() {
        check(
            messages,
            r#"{"input_tokens":3,"cache_read_input_tokens":100,"cache_creation_input_tokens":20,"output_tokens":7}"#,
            r#"{"input":123,"output":7,"cached_read":100,"cache_write":20}"#,
        );
        check(
            messages,
            r#"{"input_tokens":3,"output_tokens":7,"cache_read_input_tokens":null}"#,
            r#"{"input":3,"output":7}"#,
        );
    }

    #[test]
    fn a_count_of_nothing_or_nonsense_is_no_count() {
        check(chat, r#"{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}"#, "none");
        check(chat, r#"null"#, "none");
        check(messages, r#"{"input_tokens":"many"}"#, "none");
        check(chat, r#"{"prompt_tokens":-4,"completion_tokens":2.0}"#, r#"{"output":2}"#);
        check(
            chat,
            r#"{"prompt_tokens":4,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":9}}"#,
            r#"{"input":4,"output":1,"cached_read":4}"#,
        );
    }
}
