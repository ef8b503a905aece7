//! Where a session's tools run.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use crate::error::{Error, ErrorKind};

/// Where a session's tools run: the URI of a sandbox, `local:./` for one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place(String);

impl Place {
    /// A directory on this machine; the current one if nothing is named.
    pub fn local(directory: impl AsRef<str>) -> Self {
        let directory = Some(directory.as_ref()).filter(|directory| !directory.is_empty()).unwrap_or("./");
        Place(format!("local:{directory}"))
    }

    /// A place as it stands in a record, which may have been written by others.
    pub(crate) fn recorded(uri: &str) -> Self {
        Place(uri.to_owned())
    }

    /// The URI.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether tools can run there.
    pub fn check(&self) -> Result<(), Error> {
        self.open_local().map(|_| ())
    }

    /// The directory on this machine that it is.
    pub(crate) fn open_local(&self) -> Result<Local, Error> {
        let Some(directory) = self.0.strip_prefix("local:") else {
            let scheme = self.0.split(':').next().unwrap_or_default();
            return Err(Error::new(ErrorKind::Place, format_args!("unknown kind of place `{scheme}`; known: local")));
        };
        let root = Path::new(directory).canonicalize().map_err(|error| {
            Error::new(ErrorKind::Place, format_args!("cannot work in `{self}`: {error}"))
                .with_hint("the directory has to be there")
                .because(error)
        })?;
        Ok(Local { root })
    }
}

/// A directory on this machine.
pub(crate) struct Local {
    root: PathBuf,
}

/// How many links are followed for one path.
const LINKS_MOST: usize = 40;

impl Local {
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The one file that a path means, whatever links lead there; none where it lies outside.
    ///
    /// What is not there yet may be named too, a link to nothing included: it would be made where the link leads.
    pub(crate) fn resolve(&self, path: &str) -> Option<PathBuf> {
        let mut at = self.root.clone();
        let mut left = parts(Path::new(path));
        let mut links = 0;
        while let Some(part) = left.pop_front() {
            match part {
                Part::Root => at = PathBuf::from("/"),
                Part::Up => _ = at.pop(),
                Part::Down(name) => {
                    at.push(name);
                    if let Ok(target) = at.read_link() {
                        links += 1;
                        if links > LINKS_MOST {
                            return None;
                        }
                        at.pop();
                        for part in parts(&target).into_iter().rev() {
                            left.push_front(part);
                        }
                    }
                }
            }
        }
        at.starts_with(&self.root).then_some(at)
    }

    /// The same, relative to the directory, as a name to compare.
    pub(crate) fn name(&self, path: &str) -> Option<String> {
        let resolved = self.resolve(path)?;
        let inside = resolved.strip_prefix(&self.root).ok()?;
        Some(inside.to_string_lossy().into_owned())
    }
}

enum Part {
    Root,
    Up,
    Down(OsString),
}

fn parts(path: &Path) -> VecDeque<Part> {
    let part = |part| match part {
        Component::RootDir | Component::Prefix(_) => Some(Part::Root),
        Component::ParentDir => Some(Part::Up),
        Component::CurDir => None,
        Component::Normal(name) => Some(Part::Down(name.to_owned())),
    };
    path.components().filter_map(part).collect()
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(uri: &str) -> Result<Self, PlaceError> {
        match uri.split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme) && !rest.is_empty() && !rest.contains(char::is_control) => {
                Ok(Place(uri.to_owned()))
            }
            _ => Err(PlaceError { found: uri.to_owned() }),
        }
    }
}

fn is_scheme(scheme: &str) -> bool {
    scheme.starts_with(|c: char| c.is_ascii_lowercase())
        && scheme.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '+' | '-' | '.'))
}

/// What was found where a place was wanted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("wanted a place such as `local:./`, found `{found}`")]
pub struct PlaceError {
    found: String,
}

impl From<PlaceError> for Error {
    fn from(error: PlaceError) -> Self {
        Error::new(ErrorKind::Place, &error).with_hint("write the kind of sandbox, a colon, and where: `local:./`")
    }
}
