//! The settings of a container, and the URI that names them.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rath_sandbox::backend::{DEFAULT_MAX_OUTPUT_BYTES, Limits, UriOptions, UriWriter, absolute};
use rath_sandbox::{Error, ErrorKind, Network, Result};

/// The settings of a container.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) image: String,
    pub(crate) directory: PathBuf,
    /// The path at which commands see the directory, if it is not the directory's own.
    pub(crate) seen_at: Option<PathBuf>,
    pub(crate) network: Network,
    pub(crate) git: GitAccess,
    pub(crate) limits: Limits,
    /// The number of processors, in thousandths.
    pub(crate) milli_cpus: Option<u64>,
    pub(crate) hidden: Vec<PathBuf>,
    /// Hidden paths that are not part of the URI. Sandboxes in other directories share them.
    pub(crate) kept_out: Arc<Mutex<Vec<PathBuf>>>,
    /// The directory for temporary files.
    pub(crate) staging: Arc<Mutex<Option<PathBuf>>>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) max_output_bytes: u64,
    /// The socket of the engine, if it is not looked for.
    pub(crate) socket: Option<PathBuf>,
    /// The time that the engine is given for an answer.
    pub(crate) engine_timeout: Duration,
    /// The time for which a container waits for its session after the process has died.
    pub(crate) kept_after_crash: Duration,
}

/// The access of commands to the `.git` of the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GitAccess {
    ReadOnly,
    Writable,
}

/// The options of a `container:` URI.
const OPTIONS: &[&str] =
    &["directory", "at", "network", "git", "memory", "processes", "cpu", "file_size", "cpu_time", "output", "hide"];
const NETWORK_VALUES: [(&str, Network); 2] = [("off", Network::Off), ("on", Network::On)];
const GIT_VALUES: [(&str, GitAccess); 2] = [("read-only", GitAccess::ReadOnly), ("write", GitAccess::Writable)];

const DEFAULT_ENGINE_TIMEOUT: Duration = Duration::from_secs(60);
const DEFAULT_KEPT_AFTER_CRASH: Duration = Duration::from_secs(60);
/// The longest name of an image in bytes.
const MAX_IMAGE_BYTES: usize = 512;

impl Options {
    pub(crate) fn new(image: String, directory: PathBuf) -> Self {
        Options {
            image,
            directory: absolute(directory),
            seen_at: None,
            network: Network::Off,
            git: GitAccess::ReadOnly,
            limits: Limits::default(),
            milli_cpus: None,
            hidden: Vec::new(),
            kept_out: Arc::default(),
            staging: Arc::default(),
            env: Vec::new(),
            max_output_bytes: DEFAULT_MAX_OUTPUT_BYTES,
            socket: None,
            engine_timeout: DEFAULT_ENGINE_TIMEOUT,
            kept_after_crash: DEFAULT_KEPT_AFTER_CRASH,
        }
    }

    /// Parses the part of a URI after `container:`.
    pub(crate) fn parse(rest: &str) -> Result<Self> {
        let image = rest.split_once('?').map_or(rest, |(image, _)| image);
        let parsed = UriOptions::parse("container", rest, OPTIONS)?;
        let directory = parsed.paths("directory").last().unwrap_or(Path::new("./")).to_owned();
        let mut options = Options::new(image.to_owned(), directory);
        options.check_image()?;
        options.seen_at = parsed.paths("at").last().map(PathBuf::from);
        options.network = parsed.word("network", &NETWORK_VALUES)?.unwrap_or(Network::Off);
        options.git = parsed.word("git", &GIT_VALUES)?.unwrap_or(GitAccess::ReadOnly);
        options.limits = parsed.limits()?;
        options.milli_cpus = parsed.parse_last("cpu", "a number of processors such as `2` or `0.5`", parse_cpus)?;
        options.max_output_bytes = parsed.bytes("output")?.unwrap_or(DEFAULT_MAX_OUTPUT_BYTES);
        options.hidden = parsed.paths("hide").map(PathBuf::from).collect();
        Ok(options)
    }

    /// Returns the URI of a sandbox with these settings.
    pub(crate) fn uri(&self) -> String {
        let mut writer = UriWriter::new("container", Path::new(&self.image));
        writer.path("directory", Some(&self.directory));
        writer.option("network", Some("on").filter(|_| self.network == Network::On));
        writer.option("git", Some("write").filter(|_| self.git == GitAccess::Writable));
        writer.limits(&self.limits);
        writer.option("cpu", self.milli_cpus.map(format_cpus));
        writer.option("output", Some(self.max_output_bytes).filter(|bytes| *bytes != DEFAULT_MAX_OUTPUT_BYTES));
        writer.paths("hide", &self.hidden);
        writer.path("at", self.seen_at.as_ref());
        writer.finish()
    }

    /// Fails if the name of the image is none: it is a part of a path in requests.
    pub(crate) fn check_image(&self) -> Result<()> {
        let is_plain = |char: char| char.is_ascii_alphanumeric() || "._-/:@".contains(char);
        let has_names = self.image.split('/').all(|name| name.starts_with(|char: char| char.is_ascii_alphanumeric()));
        if self.image.len() <= MAX_IMAGE_BYTES && self.image.chars().all(is_plain) && has_names {
            return Ok(());
        }
        let shown: String = self.image.chars().take(80).collect();
        let message =
            format!("wanted an image such as `docker.io/library/rust:1.95`, found `{}`", shown.escape_debug());
        let hint = "write `container:IMAGE`; other settings follow a `?`, as in `container:rust:1.95?network=on`";
        Err(Error::new(ErrorKind::Config, message).with_hint(hint))
    }

    pub(crate) fn kept_out(&self) -> Vec<PathBuf> {
        self.kept_out.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the path at which commands see the directory.
    pub(crate) fn seen_at(&self) -> &Path {
        self.seen_at.as_deref().unwrap_or(&self.directory)
    }
}

/// Parses a number of processors, such as `0.5`, to thousandths.
fn parse_cpus(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.len() <= 6 && text.bytes().all(|it| it.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || fraction.len() > 3 {
        return None;
    }
    let fraction = u64::from_str(&format!("{fraction:0<3}")).ok()?;
    let milli = u64::from_str(whole).ok()?.checked_mul(1000)? + fraction;
    // The kernel's smallest share is a hundredth.
    (milli >= 10).then_some(milli)
}

/// Formats thousandths of processors as a number.
fn format_cpus(milli: u64) -> String {
    let text = format!("{}.{:03}", milli / 1000, milli % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_a_uri() {
        let rows = [
            "container:rust:1.95?directory=/srv/app",
            "container:docker.io/library/rust@sha256:0a1b?directory=/a%26b%3F&network=on&git=write&memory=1g&processes=64\
             &file_size=2k&cpu_time=9s&cpu=0.5&output=1048576&hide=.env&hide=/srv/key&at=/work",
        ];
        for uri in rows {
            let parsed = Options::parse(uri.strip_prefix("container:").expect("the kind")).expect("it is valid");
            assert_eq!(parsed.uri(), uri);
        }
    }

    #[test]
    fn hostile_names_of_images_are_refused() {
        let long = "a".repeat(600);
        let rows =
            ["", "../x", "a/../b", "a//b", "a b", "a\nb", "a%2f", "a/.", "/a", "-a", "a#b", "ü", "\u{1b}[2J", &long];
        for image in rows {
            let error = Options::parse(image).expect_err(image);
            assert_eq!(error.kind(), ErrorKind::Config, "{image}");
            assert!(!error.message().contains('\u{1b}') && error.message().len() < 300, "{error}");
        }
    }

    #[test]
    fn processors_are_counted_in_thousandths() {
        for (text, milli) in [("2", 2000), ("0.5", 500), ("1.25", 1250), ("0.01", 10)] {
            assert_eq!(parse_cpus(text), Some(milli), "{text}");
            assert_eq!(format_cpus(milli), text);
        }
        for text in ["", "0", "-1", "1e3", "0.001", "1.2345", ".5", "9999999", "1.", "NaN", "+1"] {
            assert_eq!(parse_cpus(text), None, "{text}");
        }
    }
}
