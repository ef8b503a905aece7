//! Messages of a server, read from their bytes.

use rmcp::model::{ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage};
use serde::Deserialize;

/// The most values of one message. Each takes far more memory than its text does.
const MAX_VALUES: usize = 256 * 1024;

/// The code of the error that stands for an answer that cannot be read. The protocol has no such code.
pub(crate) const UNREADABLE: ErrorCode = ErrorCode(i32::MIN);

/// A message that cannot be read.
pub(crate) struct MessageError {
    pub(crate) problem: String,
    id: Option<RequestId>,
}

/// Reads a message.
pub(crate) fn read(bytes: &[u8]) -> Result<ServerJsonRpcMessage, MessageError> {
    let problem = match count_values(bytes) <= MAX_VALUES {
        true => match serde_json::from_slice(bytes) {
            Ok(message) => return Ok(message),
            Err(error) => format!("its answer is not valid: {error}"),
        },
        false => format!("its answer has more than {MAX_VALUES} values"),
    };
    Err(MessageError { problem, id: answer_id(bytes) })
}

impl MessageError {
    /// Returns an answer with the problem, so that the request need not wait; none if the message is no answer.
    pub(crate) fn answer(self) -> Option<ServerJsonRpcMessage> {
        let id = self.id?;
        Some(ServerJsonRpcMessage::error(ErrorData::new(UNREADABLE, self.problem, None), Some(id)))
    }
}

/// Returns the id of an answer, whatever else is in it.
fn answer_id(bytes: &[u8]) -> Option<RequestId> {
    #[derive(Deserialize)]
    struct Answer {
        id: RequestId,
        method: Option<serde::de::IgnoredAny>,
    }
    let answer: Answer = serde_json::from_slice(bytes).ok()?;
    answer.method.is_none().then_some(answer.id)
}

/// Returns about the number of values and names in a text of JSON.
fn count_values(json: &[u8]) -> usize {
    let (mut count, mut is_text, mut is_escaped) = (0, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_text,
            b'"' => is_text = !is_text,
            b',' | b':' | b'[' | b'{' => count += usize::from(!is_text),
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_texts() {
        for (json, expected) in
            [("7", 0), ("[1, 2, 3]", 3), (r#"{"a": 1, "b": [2]}"#, 5), (r#"["a,b,[{:", "\\", "c\"d,e"]"#, 3)]
        {
            assert_eq!(count_values(json.as_bytes()), expected, "{json}");
        }
    }
}
