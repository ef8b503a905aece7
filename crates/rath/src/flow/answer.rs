//! Answers that have to fit a JSON schema, and answers that are read as a Rust value.

use std::sync::Arc;

use rath_record::chunk::Chunk;
use rath_record::turn::Next;
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
/// The line of the prompt above the schema.
const INSTRUCTIONS: &str = "Answer with one JSON value, and nothing else, that fits this JSON schema:";

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
        let schema = schema_of::<T>();
        let format = AnswerFormat::new(&schema).map_err(|problem| {
            let message = format!("the type of the answer has no usable JSON schema: {problem}");
            Error::new(ErrorKind::Answer, message).with_session(&session)
        })?;
        let read = |session: &Session| {
            let value = format.read(session)?;
            serde_json::from_value::<T>(value).map_err(|error| error.to_string())
        };
        let ask = |session| self.run_until_fits(session, &format, |session| read(session).map(drop));
        let session = run_module(self, session, ask).await?;
        match read(&session) {
            Ok(value) => Ok((session, value)),
            Err(problem) => Err(does_not_fit(&problem, &session)),
        }
    }

    /// Lets each run go on until the model gives an answer of JSON that fits a schema: [`Session::answer_json`] returns it.
    ///
    /// The schema is added below the prompt. For an answer that does not fit, the model is told what is wrong and asked again, at most
    /// twice; then the run fails with [`ErrorKind::Answer`]. A schema that cannot be used, or is too large, is an error.
    ///
    /// ```
    /// use rath::prelude::*;
    ///
    /// # async fn example() -> Result<()> {
    /// # let provider = Script::of([r#"{"text": "{\"name\": \"Seine\"}"}"#])?.into();
    /// let schema = serde_json::json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    /// let agent = Agent::new("You know rivers.", &provider).answer_schema(&schema)?;
    /// let session = agent.run(Session::user("Which river runs through Paris?")).await?;
    /// assert_eq!(session.answer_json().as_deref(), Some(r#"{"name": "Seine"}"#));
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    pub fn answer_schema(mut self, schema: &Value) -> Result<Self> {
        let format = AnswerFormat::new(schema).map_err(|problem| Error::new(ErrorKind::Answer, problem))?;
        self.answer_format = Some(Arc::new(format));
        Ok(self)
    }

    /// Runs until the model gives an answer that fits the schema of [`Agent::answer_schema`].
    pub(super) async fn run_to_answer(&self, session: Session, format: &AnswerFormat) -> Result<Session> {
        let session = self.run_until_fits(session, format, |session| format.read(session).map(drop)).await?;
        match (session.next(), format.read(&session)) {
            (Next::Done, Err(problem)) => Err(does_not_fit(&problem, &session)),
            _ => Ok(session),
        }
    }

    /// Asks the model, and again for an answer that does not fit.
    async fn run_until_fits(
        &self,
        session: Session,
        format: &AnswerFormat,
        check: impl Fn(&Session) -> Result<(), String>,
    ) -> Result<Session> {
        let mut session = Box::pin(self.run_turns(session, &format.instructions)).await?;
        for _ in 1..MAX_ANSWERS {
            let Err(problem) = check(&session) else { break };
            // Another agent is in the middle of its turn: this is no answer.
            if session.next() != Next::Done {
                break;
            }
            let message =
                format!("The answer does not fit: {problem}. Answer again, with one JSON value that fits the schema.");
            session.push(Chunk::user(message));
            session = Box::pin(self.run_turns(session, &format.instructions)).await?;
        }
        Ok(session)
    }
}

impl Session {
    /// Returns the newest answer of a model, with that of the answers that it continues and without the code fence that models put
    /// around JSON.
    ///
    /// See [`Agent::answer_schema`] for an example: after such a run it is JSON that fits the schema.
    pub fn answer_json(&self) -> Option<String> {
        self.last_answer().map(|_| strip_fence(&whole_answer(self)).to_owned())
    }
}

/// Returns a prompt without the part that [`Agent::answer_schema`] adds to it, for an agent that takes over a recorded prompt.
#[doc(hidden)]
pub fn without_answer_schema(prompt: &str) -> &str {
    prompt.rsplit_once(&format!("\n\n{INSTRUCTIONS}\n")).map_or(prompt, |(prompt, _)| prompt)
}

fn does_not_fit(problem: &str, session: &Session) -> Error {
    let message = format!("the answer does not fit after {MAX_ANSWERS} attempts: {problem}");
    Error::new(ErrorKind::Answer, message).with_hint("say in the agent's prompt what to answer").with_session(session)
}

/// The JSON schema that an answer has to fit.
pub(super) struct AnswerFormat {
    check: ArgumentChecker,
    /// The part of the prompt that describes it.
    pub(super) instructions: String,
}

impl AnswerFormat {
    /// Takes a schema, or says why it cannot be used.
    fn new(schema: &Value) -> Result<Self, String> {
        let check = ArgumentChecker::schema(schema)?;
        Ok(AnswerFormat { check, instructions: format!("{INSTRUCTIONS}\n{schema}") })
    }

    /// Reads the model's newest answer, or says what is wrong with it.
    fn read(&self, session: &Session) -> Result<Value, String> {
        let json = session.answer_json().unwrap_or_default();
        let json = json.as_str();
        if count_json_values(json) > MAX_ARGUMENT_VALUES {
            return Err(format!("it has more than {MAX_ARGUMENT_VALUES} JSON values"));
        }
        let value: Value = serde_json::from_str(json).map_err(|error| format!("it is not JSON: {error}"))?;
        self.check.arguments(&value)?;
        Ok(value)
    }
}

/// Removes the Markdown code fence that models often put around JSON.
pub(super) fn strip_fence(text: &str) -> &str {
    let text = text.trim();
    let fenced = text.strip_prefix("```json").or_else(|| text.strip_prefix("```"));
    fenced.and_then(|rest| rest.strip_suffix("```")).map_or(text, str::trim)
}
