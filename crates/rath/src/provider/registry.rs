//! Opening providers by URI.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::error::{ProviderError, ProviderErrorKind};
#[cfg(feature = "http")]
use super::{Anthropic, Gemini, OpenAi};
use super::{Provider, Script};
use crate::blocking::run_blocking;

/// The kinds of provider that a URI can name.
///
/// ```
/// use rath::prelude::*;
/// use rath::provider::{Env, ProviderRegistry};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let registry = ProviderRegistry::new().kind("house", |model, _env| {
///     Ok(OpenAi::new(model).base_url("http://127.0.0.1:8080/v1")?.into())
/// });
/// let provider = registry.open("house:qwen3", &Env::process()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ProviderRegistry {
    kinds: BTreeMap<String, Arc<OpenProvider>>,
}

type OpenProvider = dyn Fn(&str, &Env) -> Result<Provider, ProviderError> + Send + Sync;

impl ProviderRegistry {
    /// Creates a registry with the built-in kinds: `openai`, `anthropic`, `gemini`, `script`.
    pub fn new() -> Self {
        let registry = ProviderRegistry { kinds: BTreeMap::new() }
            .kind("script", |file, _| Ok(Script::read_blocking(file)?.into()));
        #[cfg(feature = "http")]
        let registry = registry
            .kind("openai", |model, env| Ok(OpenAi::from_env(model, env)?.into()))
            .kind("anthropic", |model, env| Ok(Anthropic::from_env(model, env)?.into()))
            .kind("gemini", |model, env| Ok(Gemini::from_env(model, env)?.into()));
        registry
    }

    /// Adds a kind. `open` gets the part of the URI after the colon, and runs on a thread that may block.
    pub fn kind(
        mut self,
        name: impl Into<String>,
        open: impl Fn(&str, &Env) -> Result<Provider, ProviderError> + Send + Sync + 'static,
    ) -> Self {
        self.kinds.insert(name.into(), Arc::new(open));
        self
    }

    /// Opens the provider that a URI names.
    pub async fn open(&self, uri: &str, env: &Env) -> Result<Provider, ProviderError> {
        let setup_error = |message: String| ProviderError::new(ProviderErrorKind::Setup, message);
        let known = || self.kinds.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        // A kind without a model means its default model.
        let (kind, rest) = uri.split_once(':').unwrap_or((uri, ""));
        if let Some(open) = self.kinds.get(kind) {
            let rest = rest.trim();
            if let Some(model) = rest.strip_prefix("//") {
                let message = format!("wanted a provider such as `{kind}:MODEL`, found `{uri}`");
                return Err(setup_error(message).with_hint(format!("write `{kind}:{model}`")));
            }
            let (open, rest, env) = (open.clone(), rest.to_owned(), env.clone());
            return run_blocking(move || open(&rest, &env)).await;
        }
        if !uri.contains(':') {
            let hint = format!("write the kind of provider, a colon, and the model; kinds: {}", known());
            return Err(setup_error(format!("wanted a provider such as `openai:MODEL`, found `{uri}`")).with_hint(hint));
        }
        let kinds: Vec<_> = self.kinds.keys().map(|kind| format!("{kind}:")).collect();
        let kinds = match &kinds[..] {
            [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
            kinds => kinds.concat(),
        };
        Err(setup_error(format!("unknown kind of provider `{kind}`; known: {}", known())).with_hint(match kind {
            // A build without HTTP knows none of them.
            "openai" | "anthropic" | "gemini" => "build rath with its feature `http`".to_owned(),
            _ => format!("use {kinds}"),
        }))
    }
}

impl Default for ProviderRegistry {
    fn default() -> Self {
        ProviderRegistry::new()
    }
}

impl fmt::Debug for ProviderRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.kinds.keys()).finish()
    }
}

/// The source of environment variables: the environment of the process, or given values.
///
/// ```
/// use rath::provider::Env;
///
/// let env = Env::from_values([("OPENAI_API_KEY", "sk-test")]);
/// assert_eq!(env.get("OPENAI_API_KEY").as_deref(), Some("sk-test"));
/// assert_eq!(env.get("HOME"), None);
/// ```
#[derive(Clone)]
pub struct Env(Arc<LookupVariable>);

type LookupVariable = dyn Fn(&str) -> Option<String> + Send + Sync;

impl Env {
    /// Returns the environment of the process.
    pub fn process() -> Self {
        Env(Arc::new(|name| std::env::var(name).ok()))
    }

    /// Returns an environment with these variables and no others.
    pub fn from_values<const N: usize>(values: [(&str, &str); N]) -> Self {
        let values: BTreeMap<_, _> = values.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Env(Arc::new(move |name| values.get(name).cloned()))
    }

    /// Returns the value of a variable.
    pub fn get(&self, name: &str) -> Option<String> {
        (self.0)(name)
    }
}

/// Prints no value: most values are secrets.
impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Env")
    }
}
