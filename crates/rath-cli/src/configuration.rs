//! The configuration: `config.toml` of the user, and `rath.toml` of a project.
//!
//! The user's file has permissions for all projects, and for the project in one directory; and the rules of `rath gc`.
//!
//! A project is others' work until the user trusts it: its file may ask and deny, and may choose a stricter mode. What it
//! allows is in force once the user has accepted exactly this content with `rath config trust`. The same holds for the MCP servers
//! of a project's `.mcp.json`, of which nothing runs before.

mod mcp;
#[cfg(unix)]
mod owner;
#[cfg(not(unix))]
#[path = "configuration/owner_unsupported.rs"]
mod owner;
mod parse;
mod profiles;
mod settings;
mod trust;

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rath::Sandbox;
use rath::policy::{Mode, Permission, Rule};
use rath::record::draw::{count, one_line};
use rath::store::home_file_within_reach;
use toml_edit::{Array, DocumentMut, Item, Table, Value};

use self::owner::create_private;
use self::parse::{ConfigContent, Section, parse, wrong};
use self::settings::only_for_users;
use self::trust::{TrustedFiles, accept};
use crate::output::{self, Exit, Failure};
use crate::retention::GcRules;

pub(crate) use self::mcp::{FileState, McpFile, McpFiles};
pub(crate) use self::owner::{is_of_others, is_readable_by_others};
pub(crate) use self::profiles::{AgentProfile, KeySource, MODEL_KINDS, ModelProfile};
pub(crate) use self::settings::Settings;

/// The largest configuration that is read, in bytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;
/// The file of a project.
const PROJECT_FILE: &str = "rath.toml";

/// The permissions that are in force, each with the file that it comes from.
#[derive(Debug, Default)]
pub(crate) struct Permissions {
    /// The mode that the user's configuration sets.
    pub(crate) mode: Option<(Mode, ConfigFile)>,
    /// The modes that the files of the project ask for. They count only if they are stricter, unless they are trusted.
    pub(crate) project_modes: Vec<(Mode, ConfigFile)>,
    pub(crate) rules: Vec<(Rule, ConfigFile)>,
    /// Rules of the project that are not in force.
    pub(crate) ignored: Vec<(Rule, ConfigFile)>,
    /// Files above the directory that are not read, because they are of other users.
    pub(crate) of_others: Vec<PathBuf>,
}

/// The file that a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    pub(crate) trust: Trust,
}

/// The trust of the user in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The user wrote it, or accepted it.
    Full,
    /// It may restrict, and nothing else.
    OnlyStricter,
}

impl Permissions {
    /// Reads the configuration for tools that work in `directory`.
    pub(crate) fn read(directory: Option<&Path>) -> Result<Self, Failure> {
        let mut permissions = Permissions::default();
        if let Some(path) = user_file() {
            refuse_within_reach(&path, directory)?;
            if let Some(text) = read_file(&path)? {
                let source = ConfigFile { path, trust: Trust::Full };
                for Section { project, mode, rules } in parse(&source.path, &text)?.sections {
                    let Some(prefix) = prefix_in(project.as_deref(), directory) else { continue };
                    permissions.mode = mode.map(|mode| (mode, source.clone())).or(permissions.mode);
                    permissions
                        .rules
                        .extend(rules.into_iter().map(|rule| (rule.in_directory(&prefix), source.clone())));
                }
            }
        }
        let found = directory.map(|directory| ProjectFiles::find(directory, PROJECT_FILE)).unwrap_or_default();
        let trusted = TrustedFiles::read()?;
        permissions.of_others = found.of_others;
        for (path, text) in found.files {
            let text = text?;
            let trust = if trusted.has(&path, &text) { Trust::Full } else { Trust::OnlyStricter };
            let source = ConfigFile { trust, path };
            // The other values are read with `Settings`.
            let ConfigContent { sections, gc, settings: _ } = parse(&source.path, &text)?;
            if gc.is_some() {
                return Err(only_for_users(&source.path, "gc"));
            }
            if sections.iter().any(|section| section.project.is_some()) {
                return Err(only_for_users(&source.path, "projects"));
            }
            let prefix = prefix_in(source.path.parent(), directory).unwrap_or_default();
            permissions
                .project_modes
                .extend(sections.iter().filter_map(|section| Some((section.mode?, source.clone()))));
            for rule in sections.into_iter().flat_map(|section| section.rules) {
                let is_in_force = trust == Trust::Full || rule.permission() != Permission::Allow;
                let list = if is_in_force { &mut permissions.rules } else { &mut permissions.ignored };
                list.push((rule.in_directory(&prefix), source.clone()));
            }
        }
        Ok(permissions)
    }

    /// Returns the mode that is in force where no option chooses one. `default` is the mode without any configuration.
    pub(crate) fn mode_or(&self, default: Mode) -> Mode {
        let mut mode = self.mode.as_ref().map_or(default, |(mode, _)| *mode);
        // The outermost file first: what an inner one says is about less.
        for (project, source) in self.project_modes.iter().rev() {
            if source.trust == Trust::Full || *project < mode {
                mode = *project;
            }
        }
        mode
    }

    /// Says which files were not read because they are of other users.
    pub(crate) fn warn_of_others(&self) {
        for path in &self.of_others {
            output::warning(&format!("{} is ignored: another user owns it", output::path(path)));
        }
    }

    /// Says which rules are not in force, or have no effect.
    pub(crate) fn warn(&self, sandbox: &Sandbox) {
        self.warn_of_others();
        warn_without_effect(&self.rules, sandbox.directory());
        let hides = |rule: &Rule| rule.permission() == Permission::Deny && rule.to_string().starts_with("deny read ");
        if sandbox.uri().starts_with("local:") && self.rules.iter().any(|(rule, _)| hides(rule)) {
            output::warning("commands without isolation can read files that a rule forbids to read");
        }
        if let Some((_, source)) = self.ignored.first() {
            let rules = count(self.ignored.len() as u64, "rule");
            let path = output::path(&source.path);
            output::note(&format!("{path} allows {rules}, not in force; `rath config` shows them"));
        }
    }
}

/// Returns the rules of `rath gc` in the user's configuration.
pub(crate) fn gc_rules() -> Result<GcRules, Failure> {
    let Some(path) = user_file() else { return Ok(GcRules::default()) };
    let text = read_file(&path)?.unwrap_or_default();
    Ok(parse(&path, &text)?.gc.unwrap_or_default())
}

/// Returns the user's configuration file, whether or not it exists.
pub(crate) fn user_file() -> Option<PathBuf> {
    config_directory().map(|directory| directory.join("config.toml"))
}

/// Returns the directory of the user's configuration.
fn config_directory() -> Option<PathBuf> {
    let variable = if cfg!(windows) { "APPDATA" } else { "XDG_CONFIG_HOME" };
    let named = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::home_dir().filter(|home| home.is_absolute() && home.is_dir());
    Some(named.or_else(|| home().map(|home| home.join(".config")))?.join("rath"))
}

/// The files of the project that a directory belongs to.
#[derive(Default)]
struct ProjectFiles {
    /// The files and their texts, the innermost first. A text is a failure if the file cannot be read.
    files: Vec<(PathBuf, Result<String, Failure>)>,
    /// The files that are not read, because they are of other users.
    of_others: Vec<PathBuf>,
}

impl ProjectFiles {
    /// Finds the files of this name in a directory, and in those above it up to the repository. An inner file does not hide an outer one.
    fn find(directory: &Path, name: &str) -> Self {
        let directory = canonical(directory);
        let mut found = ProjectFiles::default();
        for above in directory.ancestors() {
            let path = above.join(name);
            if is_of_others(&path, &directory) {
                found.of_others.push(path);
            } else {
                found.files.extend(read_file(&path).transpose().map(|text| (path, text)));
            }
            // A project ends at its repository.
            if above.join(".git").exists() {
                break;
            }
        }
        found
    }
}

/// Returns the path of a directory below that of a project; none if it is not in there.
fn prefix_in(project: Option<&Path>, directory: Option<&Path>) -> Option<String> {
    let Some(project) = project else { return Some(String::new()) };
    let inside = canonical(directory?).strip_prefix(canonical(project)).ok()?.to_owned();
    Some(inside.to_string_lossy().into_owned())
}

fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

/// Reads a file; none if there is none.
pub(crate) fn read_file(path: &Path) -> Result<Option<String>, Failure> {
    let cannot = |why: String| {
        let hint = "mend it, or move it away";
        Failure::new(format!("cannot read the configuration {}: {why}", output::path(path)), hint)
    };
    // A pipe would wait for a writer.
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.kind() == io::ErrorKind::NotADirectory => {
            return Ok(None);
        }
        Err(error) => return Err(cannot(error.to_string())),
        Ok(metadata) if !metadata.is_file() => return Err(cannot("it is not a file".to_owned())),
        Ok(_) => {}
    }
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|error| cannot(error.to_string()))?;
    file.take(MAX_CONFIG_BYTES + 1).read_to_string(&mut text).map_err(|error| cannot(error.to_string()))?;
    if text.len() as u64 > MAX_CONFIG_BYTES {
        return Err(cannot("it has more than 1 MiB".to_owned()));
    }
    Ok(Some(text))
}

/// Says which rules have no effect because their path begins at the root of the machine, or leads through a link: a rule that
/// allows has to fit the path without links.
fn warn_without_effect(rules: &[(Rule, ConfigFile)], directory: Option<&Path>) {
    let Some(directory) = directory.map(canonical) else { return };
    for (rule, source) in rules {
        let text = rule.to_string();
        let path = text.split_once(" read /").or_else(|| text.split_once(" write /")).map(|(_, path)| path);
        if path.is_some_and(|path| Path::new("/").join(path.trim_start_matches('/')).starts_with(&directory)) {
            let from = output::path(&source.path);
            let message = format!("`{}` in {from} fits nothing: `/` is the top of the directory", one_line(&text));
            output::warning(&message);
        }
        let path = text.split_once(" read ").or_else(|| text.split_once(" write ")).map_or("", |(_, path)| path);
        // Up to the first name that is a pattern.
        let is_allowing = rule.permission() == Permission::Allow;
        let names = path
            .split('/')
            .filter(|name| is_allowing && !name.is_empty())
            .take_while(|name| !name.contains(['*', '?', '[', '\\']));
        let mut above = directory.clone();
        for name in names.take(path.trim_matches('/').matches('/').count()) {
            above.push(name);
            if above.is_symlink() {
                let (from, link) = (output::path(&source.path), output::path(&above));
                let message = format!("`{}` in {from} fits nothing: {link} is a link", one_line(&text));
                output::warning(&message);
                break;
            }
        }
    }
}

/// Fails if tools could write the user's configuration, and so give themselves permissions.
fn refuse_within_reach(path: &Path, directory: Option<&Path>) -> Result<(), Failure> {
    let Some(directory) = directory else { return Ok(()) };
    let home = std::env::home_dir().unwrap_or_default();
    if home_file_within_reach(path, &home, Path::new(".config/rath"), directory) {
        let message =
            format!("tools could write your configuration {}, which is in their directory", output::path(path));
        return Err(Failure::new(message, "work in another directory, or set XDG_CONFIG_HOME to one outside of it"));
    }
    Ok(())
}

/// Adds rules for the project in `directory` to the user's configuration, and returns the file.
pub(crate) fn add_rules(directory: &Path, rules: &[Rule]) -> Result<PathBuf, Failure> {
    let path = user_file().ok_or_else(|| Failure::new("your home directory is not known", "set HOME"))?;
    let text = read_file(&path)?.unwrap_or_default();
    parse(&path, &text)?;
    let project = canonical(directory);
    let unnamed = || Failure::new("the name of the directory is not Unicode", "add the rule by hand");
    let project = project.to_str().ok_or_else(unnamed)?;
    let mut document: DocumentMut = text.parse().map_err(|_| wrong(&path, "it changed while it was read"))?;
    let not_section = || wrong(&path, "`projects` is not made of sections");
    let implicit = || {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    };
    let projects = document.entry("projects").or_insert_with(implicit).as_table_like_mut().ok_or_else(not_section)?;
    let section = projects.entry(project).or_insert(Item::Table(Table::new()));
    let section = section.as_table_like_mut().ok_or_else(not_section)?;
    let list = section.entry("allow").or_insert(Item::Value(Value::Array(Array::new())));
    let list = list.as_array_mut().ok_or_else(|| wrong(&path, "`allow` is not a list of rules"))?;
    for rule in rules {
        let text = rule.to_string();
        let text = text.strip_prefix("allow ").unwrap_or(&text);
        if list.iter().all(|known| known.as_str() != Some(text)) {
            let mut value = Value::from(text);
            value.decor_mut().set_prefix("\n  ");
            list.push_formatted(value);
        }
    }
    list.set_trailing("\n");
    list.set_trailing_comma(true);
    write_file(&path, &document.to_string())?;
    Ok(path)
}

/// Replaces a file of the user's configuration.
fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    replace_file(path, text, |temporary| fs::File::create(temporary))
}

/// Replaces a file of the user's configuration that only the user can read.
pub(crate) fn write_private_file(path: &Path, text: &str) -> Result<(), Failure> {
    replace_file(path, text, create_private)
}

fn replace_file(path: &Path, text: &str, create: fn(&Path) -> io::Result<fs::File>) -> Result<(), Failure> {
    let write = || -> io::Result<()> {
        // A link is followed: people keep their configuration elsewhere and link it.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let directory = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory)?;
        let temporary = path.with_extension(format!("{}.new", std::process::id()));
        create(&temporary)?.write_all(text.as_bytes())?;
        fs::rename(&temporary, &path).inspect_err(|_| _ = fs::remove_file(&temporary))
    };
    write().map_err(|error| {
        let message = format!("cannot write {}: {error}", output::path(path));
        Failure::new(message, "look at the permissions of the directory")
    })
}

/// Accepts the present content of files of a project; without names, that of the innermost of each kind. Says which, and what is in
/// them.
///
/// All files are checked before the first one is accepted.
pub(crate) fn trust_files(named: &[PathBuf]) -> Result<(), Failure> {
    let paths = match named {
        [] => innermost_files(Path::new(".")),
        named => named.iter().map(|path| project_file(path)).collect::<Result<_, _>>()?,
    };
    if paths.is_empty() {
        let message = format!("there is no {PROJECT_FILE} or {} in this directory or above it", mcp::PROJECT_FILE);
        return Err(Failure::new(message, "`rath config show` shows what is in force"));
    }
    let mut checked = Vec::new();
    for path in paths {
        let missing = || Failure::new(format!("there is no {}", output::path(&path)), "look at the name");
        let text = read_file(&path)?.ok_or_else(missing)?;
        let values = match path.ends_with(mcp::PROJECT_FILE) {
            true => McpFile::proposed(&path, &text)?.outline()?,
            false => parse(&path, &text)?.describe(),
        };
        checked.push((path, text, values));
    }
    for (path, text, values) in checked {
        accept(&path, &text)?;
        output::message!("accepted {}", output::path(&path));
        for (name, value) in values {
            output::message!("  {}: {}", one_line(&name), one_line(&value));
        }
    }
    Ok(())
}

/// Returns the command with which the user accepts files, from the current directory.
pub(crate) fn trust_command<'a>(files: impl IntoIterator<Item = &'a Path>) -> String {
    let (innermost, current) = (innermost_files(Path::new(".")), canonical(Path::new(".")));
    let mut files: Vec<_> = files.into_iter().collect();
    files.dedup();
    let names = match files.iter().all(|file| innermost.iter().any(|path| path == file)) {
        true => Vec::new(),
        false => files.iter().map(|file| file.strip_prefix(&current).unwrap_or(file)).collect(),
    };
    names.iter().fold("rath config trust".to_owned(), |command, name| {
        format!("{command} {}", output::quote(&name.display().to_string()))
    })
}

/// Returns the innermost file of each kind of the project that a directory belongs to.
fn innermost_files(directory: &Path) -> Vec<PathBuf> {
    let innermost = |name| ProjectFiles::find(directory, name).files.into_iter().next();
    [PROJECT_FILE, mcp::PROJECT_FILE].into_iter().filter_map(innermost).map(|(path, _)| path).collect()
}

/// Returns the whole path of a file that a project can have.
fn project_file(path: &Path) -> Result<PathBuf, Failure> {
    let is_known = |name: &&OsStr| [PROJECT_FILE, mcp::PROJECT_FILE].iter().any(|known| name == known);
    let Some(name) = path.file_name().filter(is_known) else {
        let message = format!("{} is not a file of a project", output::path(path));
        let hint = format!("name a file {PROJECT_FILE} or {}", mcp::PROJECT_FILE);
        return Err(Failure::new(message, hint).with_exit(Exit::Usage));
    };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let path = canonical(directory).join(name);
    if is_of_others(&path, Path::new(".")) {
        let message = format!("another user owns {}", output::path(&path));
        return Err(Failure::new(message, "it is never used; copy what it says to a file of your own"));
    }
    Ok(path)
}
