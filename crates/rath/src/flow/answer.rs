//! Answers that are read as a Rust value.

use rath_record::chunk::Chunk;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::agent::Agent;
use super::ending::whole_answer;
use super::run_module;
use crate::error::ErrorKind;
use crate::provider::{MAX_ARGUMENT_VALUES, count_json_values};
use crate::session::{Error, Result, Session};
use crate::tool::{ArgumentChecker, schema_of};

/// The number of answers that a model may give until one fits the schema.
const MAX_ANSWERS: u32 = 3;

impl Agent {
    /// Runs until the model gives an answer that is a `T`, and returns the session and the value.
    ///
    /// The JSON schema of `T` is added below the prompt. For an answer that does not fit, the model is told what is wrong
    /// and asked again, at most twice.
    ///
    /// ```
    /// use rath::prelude::*;
    ///
    /// #[derive(JsonSchema, serde::Deserialize)]
    /// struct River { name: String, length_km: u32 }
    ///
    /// # async fn example() -> Result<()> {
    /// # let provider = Script::of([r#"{"text": "{\"name\": \"Seine\", \"length_km\": 777}"}"#])?.into();
    /// let agent = Agent::new("You know rivers.", &provider);
    /// let (session, river) = agent.answer::<River>(Session::user("Which river runs through Paris?")).await?;
    /// assert_eq!(river.name, "Seine");
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    pub async fn answer<T: JsonSchema + DeserializeOwned>(&self, session: Session) -> Result<(Session, T)> {
        let format = AnswerFormat::new::<T>().map_err(|error| error.with_session(&session))?;
        let ask = |session: Session| async {
            let mut session = self.run_turns(session, &format.instructions).await?;
            for _ in 1..MAX_ANSWERS {
                let Err(problem) = format.read::<T>(&session) else { break };
                let message = format!(
                    "The answer does not fit: {problem}. Answer again, with one JSON value that fits the schema."
                );
                session.push(Chunk::user(message));
                session = self.run_turns(session, &format.instructions).await?;
            }
            Ok(session)
        };
        let session = run_module(self, session, ask).await?;
        match format.read(&session) {
            Ok(value) => Ok((session, value)),
            Err(problem) => {
                let message = format!("the answer does not fit after {MAX_ANSWERS} attempts: {problem}");
                Err(Error::new(ErrorKind::Answer, message)
                    .with_hint("say in the agent's prompt what to answer")
                    .with_session(&session))
            }
        }
    }
}

/// The JSON schema that an answer has to fit.
struct AnswerFormat {
    check: ArgumentChecker,
    /// The part of the prompt that describes it.
    instructions: String,
}

impl AnswerFormat {
    fn new<T: JsonSchema>() -> Result<Self> {
        let schema = schema_of::<T>();
        let instructions =
            format!("Answer with one JSON value, and nothing else, that fits this JSON schema:\n{schema}");
        match ArgumentChecker::schema(&schema) {
            Ok(check) => Ok(AnswerFormat { check, instructions }),
            Err(problem) => {
                let message = format!("the type of the answer has no usable JSON schema: {problem}");
                Err(Error::new(ErrorKind::Answer, message))
            }
        }
    }

    /// Reads the model's newest answer, or says what is wrong with it.
    fn read<T: DeserializeOwned>(&self, session: &Session) -> Result<T, String> {
        let text = whole_answer(session);
        let json = strip_fence(&text);
        if count_json_values(json) > MAX_ARGUMENT_VALUES {
            return Err(format!("it has more than {MAX_ARGUMENT_VALUES} JSON values"));
        }
        let value: Value = serde_json::from_str(json).map_err(|error| format!("it is not JSON: {error}"))?;
        self.check.arguments(&value)?;
        serde_json::from_value(value).map_err(|error| error.to_string())
    }
}

/// Removes the Markdown code fence that models often put around JSON.
pub(super) fn strip_fence(text: &str) -> &str {
    let text = text.trim();
    let fenced = text.strip_prefix("```json").or_else(|| text.strip_prefix("```"));
    fenced.and_then(|rest| rest.strip_suffix("```")).map_or(text, str::trim)
}
