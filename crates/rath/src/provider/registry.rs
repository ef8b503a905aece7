//! Providers by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::{Anthropic, OpenAi, Provider, Script};
use crate::error::ErrorKind;
use crate::session::{Error, Result};

/// The kinds of provider that a URI can name.
///
/// ```
/// use rath::prelude::*;
/// use rath::provider::{Env, Registry};
///
/// # fn main() -> Result<()> {
/// let registry = Registry::new().kind("house", |model, _env| {
///     Ok(OpenAi::new(model).base_url("http://127.0.0.1:8080/v1")?.into())
/// });
/// let provider = registry.open("house:qwen3", &Env::process())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Registry {
    kinds: BTreeMap<String, Arc<Open>>,
}

type Open = dyn Fn(&str, &Env) -> Result<Provider> + Send + Sync;

impl Registry {
    /// The kinds that are built in: `openai`, `anthropic`, `script`.
    pub fn new() -> Self {
        Registry { kinds: BTreeMap::new() }
            .kind("openai", |model, env| Ok(OpenAi::from_env(model, env)?.into()))
            .kind("anthropic", |model, env| Ok(Anthropic::from_env(model, env)?.into()))
            .kind("script", |file, _| Ok(Script::read(file)?.into()))
    }

    /// Adds a kind. `open` is given what follows the colon.
    pub fn kind(
        mut self,
        name: impl Into<String>,
        open: impl Fn(&str, &Env) -> Result<Provider> + Send + Sync + 'static,
    ) -> Self {
        self.kinds.insert(name.into(), Arc::new(open));
        self
    }

    /// The provider that a URI names.
    pub fn open(&self, uri: &str, env: &Env) -> Result<Provider> {
        let known = || self.kinds.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        // A kind by itself means its default model.
        let (kind, rest) = uri.split_once(':').unwrap_or((uri, ""));
        if let Some(open) = self.kinds.get(kind) {
            let rest = rest.trim();
            if let Some(model) = rest.strip_prefix("//") {
                let message = format!("wanted a provider such as `{kind}:MODEL`, found `{uri}`");
                return Err(Error::new(ErrorKind::Provider, message).with_hint(format!("write `{kind}:{model}`")));
            }
            return open(rest, env);
        }
        if !uri.contains(':') {
            let message = format!("wanted a provider such as `openai:MODEL`, found `{uri}`");
            return Err(Error::new(ErrorKind::Provider, message)
                .with_hint(format!("write the kind of provider, a colon, and the model; kinds: {}", known())));
        }
        Err(Error::new(ErrorKind::Provider, format_args!("unknown kind of provider `{kind}`; known: {}", known()))
            .with_hint("a kind of your own is added with `Registry::kind`"))
    }
}

impl Default for Registry {
    fn default() -> Self {
        Registry::new()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.kinds.keys()).finish()
    }
}

/// Where settings are looked up: the environment of the process, or values of your own.
#[derive(Clone)]
pub struct Env(Arc<Lookup>);

type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

impl Env {
    /// The environment of the process.
    pub fn process() -> Self {
        Env(Arc::new(|name| std::env::var(name).ok()))
    }

    /// These values and no others.
    pub fn of<const N: usize>(values: [(&str, &str); N]) -> Self {
        let values: BTreeMap<_, _> = values.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Env(Arc::new(move |name| values.get(name).cloned()))
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<String> {
        (self.0)(name)
    }
}

/// Shows no value: most of them are secrets.
impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Env")
    }
}
