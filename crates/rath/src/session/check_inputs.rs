//! The files that a check depends on: its inputs, and the files to which links among them lead.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use rath_record::chunk::Tree;
use rath_record::view::covers;

use super::Session;
use super::versions::{self, Versions};
use crate::error::ErrorKind;
use crate::session::{Error, Result};
use crate::workspace::Mode;

/// The number of links that are followed for one path.
const MAX_LINKS: usize = 40;

impl Session {
    /// Returns the inputs of a check, with the links on the way to them and with the files to which links at them or below them lead. Fails if
    /// an input does not exist, or is a link to a file that is not compared: the check would never become stale.
    pub(crate) async fn follow_inputs(&self, inputs: &[String]) -> Result<Vec<String>> {
        let Some(tree) = self.tree().filter(|_| !inputs.is_empty()) else { return Ok(inputs.to_vec()) };
        let inputs = inputs.to_vec();
        let root = self.assigned_dir().and_then(|dir| Some(dir.sandbox().directory()?.to_owned()));
        let follow = move |_: &Session, versions: &Versions| TreeLinks::read(versions, &tree, root)?.follow(inputs);
        self.with_recorded_versions(follow).await
    }
}

/// The files of a tree, and the targets of its links.
struct TreeLinks {
    files: Vec<String>,
    targets: BTreeMap<String, String>,
    /// The directories with these files, by which absolute links may name them.
    roots: Vec<PathBuf>,
}

/// A path whose links were followed.
struct LinkTrail {
    /// The links on the way.
    links: Vec<String>,
    /// The path at the end; none if it is outside of the tree.
    end: Option<String>,
}

impl TreeLinks {
    fn read(versions: &Versions, tree: &Tree, root: Option<PathBuf>) -> Result<Self> {
        let id = versions::tree_id(tree)?;
        let (mut files, mut targets) = (Vec::new(), BTreeMap::new());
        for file in versions.files(tree)? {
            if file.mode == Mode::Link
                && let Some(target) = versions.objects().read(id, &file.path)?
            {
                targets.insert(file.path.clone(), String::from_utf8_lossy(&target).into_owned());
            }
            files.push(file.path);
        }
        let project = versions.project_dir().and_then(|directory| std::path::absolute(directory).ok());
        Ok(TreeLinks { files, targets, roots: root.into_iter().chain(project).collect() })
    }

    fn follow(&self, inputs: Vec<String>) -> Result<Vec<String>> {
        let mut followed: Vec<String> = Vec::new();
        for input in inputs {
            let LinkTrail { links, end } = self.lead_to(&input);
            let Some(end) = end.filter(|path| self.has(path)) else {
                return Err(if links.is_empty() { no_file(&input) } else { not_compared(&input) });
            };
            followed.push(input);
            for path in links.into_iter().chain([end.clone()]) {
                add(&mut followed, path);
            }
            self.add_below(&end, &mut followed);
        }
        Ok(followed)
    }

    /// Adds the files to which links below a path lead, and so on. A link out of the tree leads to a file that no check depends on.
    fn add_below(&self, path: &str, followed: &mut Vec<String>) {
        let mut rest = vec![path.to_owned()];
        while let Some(path) = rest.pop() {
            for link in self.targets.keys().filter(|link| covers(&path, link)) {
                let LinkTrail { links, end } = self.lead_to(link);
                for path in links.into_iter().chain(end) {
                    if self.has(&path) && add(followed, path.clone()) {
                        rest.push(path);
                    }
                }
            }
        }
    }

    /// Returns true if there is a file at a path, or below it.
    fn has(&self, path: &str) -> bool {
        self.files.iter().any(|file| covers(path, file))
    }

    /// Follows the links of a path, one name at a time.
    fn lead_to(&self, path: &str) -> LinkTrail {
        let (mut at, mut links) = (Vec::<String>::new(), Vec::new());
        let mut rest: VecDeque<String> = path.split('/').map(str::to_owned).collect();
        while let Some(name) = rest.pop_front() {
            match &*name {
                "" | "." => continue,
                ".." if at.pop().is_none() => return LinkTrail { links, end: None },
                ".." => continue,
                _ => at.push(name),
            }
            let here = at.join("/");
            let Some(target) = self.targets.get(&here) else { continue };
            links.push(here);
            at.pop();
            let inside = match target.starts_with('/') {
                true => {
                    at.clear();
                    self.roots.iter().find_map(|root| std::path::Path::new(target).strip_prefix(root).ok()?.to_str())
                }
                false => Some(target.as_str()),
            };
            let Some(inside) = inside.filter(|_| links.len() <= MAX_LINKS) else {
                return LinkTrail { links, end: None };
            };
            inside.split('/').rev().for_each(|name| rest.push_front(name.to_owned()));
        }
        LinkTrail { links, end: Some(at.join("/")) }
    }
}

/// Adds a path that no other covers. Returns false if one does.
fn add(followed: &mut Vec<String>, path: String) -> bool {
    let is_new = !followed.iter().any(|known| covers(known, &path));
    if is_new {
        followed.push(path);
    }
    is_new
}

fn no_file(input: &str) -> Error {
    Error::new(ErrorKind::Place, format_args!("there is no file `{input}` that the check could depend on"))
        .with_hint("paths are relative to the workspace; ignored files do not count")
}

fn not_compared(input: &str) -> Error {
    let message = format!("`{input}` is a link to a file that is not compared, so the check could not depend on it");
    Error::new(ErrorKind::Place, message).with_hint("name files of the workspace; ignored files do not count")
}
