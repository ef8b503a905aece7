//! An answer that is a value.

use rath_record::chunk::Chunk;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::agent::Agent;
use super::enter;
use crate::error::ErrorKind;
use crate::session::{Error, Result, Session};
use crate::tool::{Check, schema_of};

/// How often a model may answer until the answer fits.
const ATTEMPTS: u32 = 3;

impl Agent {
    /// Runs until the model gives an answer that is a `T`, and gives that with the session.
    ///
    /// The model is told the JSON schema of `T` below the prompt. An answer that does not fit goes back to it with what is
    /// wrong, twice at most.
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
        let form = Form::of::<T>().map_err(|error| error.with_session(&session))?;
        let answered = |session: Session| async {
            let mut session = self.go(session, &form.told).await?;
            for _ in 1..ATTEMPTS {
                let Err(wrong) = form.read::<T>(&session) else { break };
                let again = format!(
                    "The answer does not fit: {wrong}. Answer again, with one JSON value that fits the schema."
                );
                session.push(Chunk::user(again));
                session = self.go(session, &form.told).await?;
            }
            Ok(session)
        };
        let session = enter(self, session, answered).await?;
        match form.read(&session) {
            Ok(value) => Ok((session, value)),
            Err(wrong) => {
                let message = format!("the answer does not fit, after {ATTEMPTS} attempts: {wrong}");
                Err(Error::new(ErrorKind::Answer, message)
                    .with_hint("say in the agent's prompt what the answer has to be")
                    .with_session(&session))
            }
        }
    }
}

/// What an answer has to be.
struct Form {
    check: Check,
    /// What the model is told of it.
    told: String,
}

impl Form {
    fn of<T: JsonSchema>() -> Result<Self> {
        let schema = schema_of::<T>();
        let told = format!("Answer with one JSON value, and nothing else, that fits this JSON schema:\n{schema}");
        match Check::schema(&schema) {
            Ok(check) => Ok(Form { check, told }),
            Err(wrong) => Err(Error::new(ErrorKind::Answer, format_args!("no answer can be asked for: {wrong}"))),
        }
    }

    /// The value that the model's last words are, or what is wrong with them.
    fn read<T: DeserializeOwned>(&self, session: &Session) -> Result<T, String> {
        let text = session.last_words().unwrap_or_default();
        let value: Value = serde_json::from_str(bare(text)).map_err(|error| format!("it is not JSON: {error}"))?;
        self.check.arguments(&value)?;
        serde_json::from_value(value).map_err(|error| error.to_string())
    }
}

/// A text without the fence that models like to put around JSON.
fn bare(text: &str) -> &str {
    let text = text.trim();
    let fenced = text.strip_prefix("```json").or_else(|| text.strip_prefix("```"));
    fenced.and_then(|rest| rest.strip_suffix("```")).map_or(text, str::trim)
}
