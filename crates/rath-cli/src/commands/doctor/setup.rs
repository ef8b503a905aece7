//! The part of `rath doctor` that looks at the configuration, and at all that it names.

use std::path::Path;

use rath::record::draw::count;
use rath::sandbox::Root;
use rath::{Memory, Sandbox};

use super::Finding;
use crate::configuration::{McpFiles, Permissions, Settings, Trust};
use crate::memories;
use crate::models::{self, ModelChoice};
use crate::output::{self, Failure};
use crate::sandboxes;

const TRUST_HINT: &str = "`rath config` shows it, and `rath config trust` accepts it";

/// Looks at the configuration of the user, of the project in this directory and of the environment, and at what it names.
pub(super) async fn look() -> Vec<Finding> {
    let here = Path::new(".");
    let read = Permissions::read(Some(here)).and_then(|permissions| Ok((permissions, Settings::read(here)?)));
    let (permissions, settings) = match read {
        Ok(read) => read,
        Err(failure) => return vec![Finding::wrong("configuration", &failure), mcp_servers()],
    };
    let mut findings = vec![configuration(&permissions, &settings), mcp_servers()];
    findings.extend(models(&settings).await);
    let sandbox = sandbox(&settings);
    let directory = sandbox.as_ref().ok().and_then(|sandbox| sandbox.as_ref()?.directory());
    findings.push(memory(&settings, directory).await);
    findings.push(match &sandbox {
        Ok(None) => Finding::ok("directory", "agents have no tools"),
        Ok(Some(sandbox)) => match sandboxes::refuse_home(sandbox) {
            Ok(()) => Finding::ok("directory", output::home_path(sandbox.directory().unwrap_or(here))),
            Err(failure) => Finding::unusable("directory", &failure),
        },
        Err(failure) => Finding::wrong("directory", failure),
    });
    findings
}

/// Tells what is in force, and what of a project's files is not.
fn configuration(permissions: &Permissions, settings: &Settings) -> Finding {
    let ignored = permissions.ignored.iter().map(|(_, source)| source);
    let asked = permissions.project_modes.iter().map(|(_, source)| source);
    let mut untrusted = ignored.chain(asked).filter(|source| source.trust != Trust::Full).map(|source| &*source.path);
    match (untrusted.next().or(settings.ignored_files().next()), permissions.of_others.first()) {
        (Some(path), _) => {
            let text = format!("{} is not accepted: it can only restrict", output::path(path));
            Finding::missing("configuration", text, TRUST_HINT)
        }
        (None, Some(path)) => {
            let path = output::path(path);
            let hint = format!("`ls -l {}` shows its owner", output::quote(&path));
            Finding::missing("configuration", format!("{path} is ignored: another user owns it"), hint)
        }
        (None, None) => {
            let rules = count(permissions.rules.len() as u64, "rule");
            Finding::ok("configuration", format!("{rules} in force"))
        }
    }
}

fn mcp_servers() -> Finding {
    match McpFiles::read(Some(Path::new("."))) {
        Err(failure) => Finding::wrong("MCP servers", &failure),
        Ok(files) => match files.proposed().next() {
            Some(file) => {
                let text = format!("{} is not accepted: its servers do not start", output::path(&file.path));
                Finding::missing("MCP servers", text, TRUST_HINT)
            }
            None => Finding::ok("MCP servers", format!("{} configured", files.servers.len())),
        },
    }
}

/// Opens the models that are named, as a run would. None of them is asked.
async fn models(settings: &Settings) -> Vec<Finding> {
    let choice = |option, agent| ModelChoice { option, agent, settings, session: None };
    let mut findings = Vec::new();
    findings.push(match &settings.model {
        None => {
            let hint = "`--model` names one for a command, and `model` in your configuration for all";
            Finding::missing("model", "none is named", hint)
        }
        Some(_) => match open(&choice(None, None)).await {
            Ok(uri) => Finding::ok("model", uri),
            Err(failure) => Finding::wrong("model", &failure),
        },
    });
    for name in settings.models.keys() {
        if let Err(failure) = open(&choice(Some(name), None)).await {
            findings.push(Finding::unusable("models", &within(&format!("models.{name}"), &failure)));
        }
    }
    for (name, agent) in &settings.agents {
        let opened = match agent.value.model {
            Some(_) => open(&choice(None, Some(&agent.value))).await.map(drop),
            None => Ok(()),
        };
        if let Err(failure) = opened {
            findings.push(Finding::unusable("agents", &within(&format!("agents.{name}"), &failure)));
        }
    }
    findings
}

/// Opens the model that a choice means, and returns its URI.
async fn open(choice: &ModelChoice<'_>) -> Result<String, Failure> {
    let model = choice.model()?;
    models::open(&model, &[]).await?;
    Ok(model.uri)
}

/// Adds the section to the message of a failure.
fn within(section: &str, failure: &Failure) -> Failure {
    let text = failure.to_string();
    let (_, hint) = text.split_once("\nhint: ").unwrap_or((&text, ""));
    Failure::new(format!("{section}: {}", failure.message), hint)
}

/// Opens the sandbox that agents work in where no option names one; none if they have no tools.
fn sandbox(settings: &Settings) -> Result<Option<Sandbox>, Failure> {
    let uri = settings.sandbox.as_ref().map_or("isolated:.", |sandbox| sandbox.value.as_str());
    if uri == "none" {
        return Ok(None);
    }
    let sandbox = sandboxes::open(uri)?;
    if let Some(directory) = sandbox.directory() {
        Root::open(directory)?;
    }
    Ok(Some(sandbox))
}

/// Opens the memory of agents, if it is there: to open one creates it.
async fn memory(settings: &Settings, directory: Option<&Path>) -> Finding {
    let Some(uri) = settings.memory.as_ref().map(|memory| memory.value.as_str()).filter(|uri| *uri != "none") else {
        return Finding::ok("memory", "none is named");
    };
    let looked = async {
        memories::refuse_within_reach(uri, directory)?;
        match memories::is_new(uri) {
            true => Ok("none here yet; the first run makes one".to_owned()),
            false => Ok::<_, Failure>(Memory::open(uri).await?.uri().to_owned()),
        }
    };
    match looked.await {
        Ok(text) => Finding::ok("memory", text),
        Err(failure) => Finding::wrong("memory", &failure),
    }
}
