//! Where a session's tools run.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};
use crate::sandbox::beneath::no_place;
use crate::sandbox::{Plain, Root, Sandbox};

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
        self.root().map(|_| ())
    }

    /// The sandbox that it is.
    pub(crate) fn sandbox(&self) -> Result<Sandbox, Error> {
        Ok(Sandbox::new(Plain::new(&self.0, self.root()?)))
    }

    /// The directory on this machine that it is.
    pub(crate) fn root(&self) -> Result<Root, Error> {
        Root::at(self.directory()?).map_err(|error| no_place(self, error))
    }

    fn directory(&self) -> Result<&Path, Error> {
        self.0.strip_prefix("local:").map(Path::new).ok_or_else(|| {
            let scheme = self.0.split(':').next().unwrap_or_default();
            Error::new(ErrorKind::Place, format_args!("unknown kind of place `{scheme}`; known: local"))
        })
    }
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
