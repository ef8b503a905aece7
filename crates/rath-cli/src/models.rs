//! The model that an agent asks: an option, the environment, the session, an agent's section or the configuration names it.

use std::path::Path;

use rath::prelude::*;
use rath::provider::Env;
use rath::view;
use serde_json::Value;

use crate::configuration::{self, AgentProfile, KeySource, MODEL_KINDS, ModelProfile, Settings};
use crate::keys;
use crate::output::{self, Exit, Failure};
use crate::scripts;

/// The places that name a model.
pub(crate) struct ModelChoice<'a> {
    pub(crate) option: Option<&'a str>,
    pub(crate) agent: Option<&'a AgentProfile>,
    pub(crate) settings: &'a Settings,
    pub(crate) session: Option<&'a Session>,
}

impl ModelChoice<'_> {
    /// Returns the model to ask: the one that an option names, or else the one that is asked without an option.
    pub(crate) fn model(&self) -> Result<ModelProfile, Failure> {
        match self.option {
            Some(name) => self.profile(name),
            None => self.without_option()?.ok_or_else(|| no_model(self.session)),
        }
    }

    /// Returns the option that names the model, for a hint: empty if the same model is asked without it.
    pub(crate) fn hint(&self) -> String {
        let Some(name) = self.option else { return String::new() };
        match (self.without_option(), self.profile(name)) {
            (Ok(Some(other)), Ok(model)) if is_same_model(&other, &model) => String::new(),
            _ => format!(" --model {}", output::quote(name)),
        }
    }

    /// Returns the model that is asked where no option names one: that of the environment, of the session, of the agent, or of the
    /// configuration.
    fn without_option(&self) -> Result<Option<ModelProfile>, Failure> {
        let configured = self.settings.model.as_ref();
        let variable = configured.filter(|model| model.is_variable()).map(|model| model.value.as_str());
        if variable.is_none()
            && let Some(uri) = self.session.and_then(last_model)
        {
            return Ok(Some(self.profile_of_uri(uri)));
        }
        let agent = self.agent.and_then(|agent| agent.model.as_deref());
        let name = variable.or(agent).or(configured.map(|model| model.value.as_str()));
        name.map(|name| self.profile(name)).transpose()
    }

    /// Returns the model that a name or a URI means.
    fn profile(&self, name: &str) -> Result<ModelProfile, Failure> {
        let plain = |uri: &str| ModelProfile { uri: uri.to_owned(), base_url: None, key: None, options: Vec::new() };
        // A kind without a model means its default model.
        if name.contains(':') || MODEL_KINDS.contains(&name) {
            return Ok(plain(name));
        }
        if let Some(profile) = self.settings.models.get(name) {
            return Ok(profile.value.clone());
        }
        let known: Vec<_> = self.settings.models.keys().map(String::as_str).collect();
        let failure = Failure::new(format!("unknown model `{name}`"), KINDS_HINT).with_exit(Exit::Usage);
        Err(match known.is_empty() {
            true => failure,
            false => failure.add_hint(&format!("your configuration names these: {}", known.join(", "))),
        })
    }

    /// Returns the model that a session used. The record has no server: it is that of the configured model with this URI.
    fn profile_of_uri(&self, uri: String) -> ModelProfile {
        let configured = self.settings.model.as_ref().and_then(|model| self.settings.models.get(&model.value));
        let mut profiles = configured.into_iter().chain(self.settings.models.values());
        let known = profiles.find(|profile| profile.value.uri == uri).map(|profile| profile.value.clone());
        known.unwrap_or(ModelProfile { uri, base_url: None, key: None, options: Vec::new() })
    }
}

/// Opens a model, with further members of its requests.
pub(crate) async fn open(model: &ModelProfile, options: &[(String, Value)]) -> Result<Provider, Failure> {
    let ModelProfile { uri, base_url, .. } = model;
    let (kind, name) = uri.split_once(':').unwrap_or((uri, ""));
    let is_unknown = uri.contains(':') && !MODEL_KINDS.contains(&kind);
    if !keys::PROVIDERS.contains(&kind) || name.starts_with("//") {
        if !options.is_empty() && !is_unknown {
            return Err(Failure::new("a script has no options", "leave `--option` out").with_exit(Exit::Usage));
        }
        return Provider::open(uri).await.map_err(|error| match is_unknown {
            true => Failure::from(error).with_hint(KINDS_HINT).with_exit(Exit::Usage),
            false if error.kind() == rath::provider::ProviderErrorKind::Io => {
                Failure::from(error).with_hint("a script is a file with one answer a line: {\"text\": \"hello\"}")
            }
            false => error.into(),
        });
    }
    let prefix = kind.to_uppercase();
    let setting = |name: &str| variable(&format!("{prefix}_{name}")).unwrap_or_default();
    let key = match &model.key {
        Some(source) => read_key(source)?,
        // The usual key is for the usual server.
        None if base_url.is_some() => String::new(),
        None => usual_key(kind)?.unwrap_or_default(),
    };
    let base_url = base_url.clone().unwrap_or_else(|| setting("BASE_URL"));
    let env = Env::from_values([
        (&format!("{prefix}_BASE_URL"), &base_url),
        (&format!("{prefix}_API_KEY"), &key),
        (&format!("{prefix}_DEFAULT_MODEL"), &setting("DEFAULT_MODEL")),
    ]);
    let explain = |error: rath::provider::ProviderError| {
        let is_without_key = error.kind() == rath::provider::ProviderErrorKind::Key;
        let failure = Failure::from(error);
        if is_without_key { failure.add_hint(&format!("`rath config set-key {kind}` keeps one")) } else { failure }
    };
    let all_options = model.options.iter().chain(options);
    Ok(match kind {
        "openai" => {
            let model = rath::provider::OpenAi::from_env(name, &env).map_err(explain)?;
            all_options.into_iter().try_fold(model, |model, (name, value)| model.option(name, value))?.into()
        }
        "gemini" => {
            let model = rath::provider::Gemini::from_env(name, &env).map_err(explain)?;
            all_options.into_iter().try_fold(model, |model, (name, value)| model.option(name, value))?.into()
        }
        _ => {
            let model = rath::provider::Anthropic::from_env(name, &env).map_err(explain)?;
            all_options.into_iter().try_fold(model, |model, (name, value)| model.option(name, value))?.into()
        }
    })
}

fn read_key(source: &KeySource) -> Result<String, Failure> {
    let key = match source {
        KeySource::Variable(name) => std::env::var(name).ok(),
        KeySource::File(path) => keys::read_private(path)?,
        KeySource::Keyring(name) => Some(keys::read_from_keyring(name)?),
    };
    let key = key.map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
    key.ok_or_else(|| match source {
        KeySource::Variable(name) => Failure::new(
            format!("there is no key in the variable {name}, which the model names"),
            format!("set {name}"),
        ),
        KeySource::File(path) => {
            let path = output::home_path(path);
            Failure::new(format!("there is no key in {path}, which the model names"), "write the key to that file")
        }
        KeySource::Keyring(name) => keys::not_in_keyring(name),
    })
}

/// Returns true if two models are one, also if a script is named by two paths.
fn is_same_model(one: &ModelProfile, other: &ModelProfile) -> bool {
    let script = |model: &ModelProfile| Path::new(model.uri.strip_prefix("script:")?).canonicalize().ok();
    one == other || script(one).is_some_and(|path| script(other) == Some(path))
}

/// Returns the model that a session used last, if it can be opened by what is on the record, or in the user's data directory for a script.
fn last_model(session: &Session) -> Option<String> {
    let (_, instructions) = view::instructions(session.as_record())?;
    let identity = instructions.provider.as_ref()?;
    if identity.provider == "script" {
        return scripts::of_session(session).map(|path| format!("script:{}", path.display()));
    }
    keys::PROVIDERS.contains(&identity.provider.as_str()).then(|| identity.to_string())
}

/// Returns the failure of a command that has to ask a model, where none is named.
fn no_model(session: Option<&Session>) -> Failure {
    let instructions = session.and_then(|session| view::instructions(session.as_record()));
    let script = instructions.and_then(|(_, it)| it.provider.as_ref()).filter(|it| it.provider == "script");
    let (message, model) = match script {
        Some(script) => (format!("the session used {script}, and its script is not known here"), SCRIPT.into()),
        None => ("no model is named".to_owned(), usable_model().unwrap_or_else(|| DEFAULT_OPENAI.to_owned())),
    };
    let command = command_with_model(&model);
    let file = configuration::user_file().map(|path| output::home_path(&path));
    let hint = match (usable_model().or(script.map(|_| model)), file) {
        (None, _) => format!("set OPENAI_API_KEY, ANTHROPIC_API_KEY or GEMINI_API_KEY; then `{command}` names a model"),
        (Some(_), Some(file)) => format!("`{command}` names one; `model` in {file} names one for all commands"),
        (Some(_), None) => format!("`{command}` names one"),
    };
    Failure::new(message, hint).with_exit(Exit::Usage)
}

const KINDS_HINT: &str = "use openai:NAME, anthropic:NAME, gemini:NAME or script:FILE";
const SCRIPT: &str = "script:FILE";
const DEFAULT_OPENAI: &str = "openai:gpt-5";
const DEFAULT_ANTHROPIC: &str = "anthropic:claude-sonnet-4-5";
const DEFAULT_GEMINI: &str = "gemini:gemini-3-flash-preview";

/// Returns a model for which there is a key.
fn usable_model() -> Option<String> {
    let kinds = [("openai", DEFAULT_OPENAI), ("anthropic", DEFAULT_ANTHROPIC), ("gemini", DEFAULT_GEMINI)];
    kinds.into_iter().find_map(|(kind, usual)| {
        usual_key(kind).ok().flatten()?;
        let named = variable(&format!("{}_DEFAULT_MODEL", kind.to_uppercase()));
        Some(named.map_or_else(|| usual.to_owned(), |model| format!("{kind}:{model}")))
    })
}

/// Returns the key for the usual server of a provider: that of the environment, or else the one that the user keeps.
fn usual_key(kind: &str) -> Result<Option<String>, Failure> {
    let own = format!("{}_API_KEY", kind.to_uppercase());
    let others: &[&str] = if kind == "gemini" { &["GOOGLE_API_KEY"] } else { &[] };
    let key = [&*own].iter().chain(others).find_map(|name| variable(name));
    key.map_or_else(|| keys::key_of(kind), |key| Ok(Some(key)))
}

/// Returns the value of an environment variable, unless it is blank.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// Returns the command line of this process with an option that names a model.
fn command_with_model(model: &str) -> String {
    let mut words: Vec<_> = std::env::args_os().skip(1).map(|word| output::quote(&word.to_string_lossy())).collect();
    // What comes after `--` is no option.
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words.insert(end, format!("--model {}", output::quote(model)));
    format!("rath {}", words.join(" "))
}
