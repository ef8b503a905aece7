//! Parts of a prompt and of a run: images, options of the model, and the check of its result.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use rath::chunk::{Image, Verdict};
use rath::prelude::*;
use rath::record::draw::printable;
use serde_json::Value;

use crate::output::{self, Exit, Failure};

/// The largest image that is read, in bytes. Providers refuse larger ones.
const MAX_IMAGE_BYTES: u64 = 20 << 20;

/// The options that add images to a prompt.
#[derive(clap::Args)]
pub(crate) struct ImageArgs {
    /// An image that the model sees with the prompt: PNG, JPEG, GIF or WebP; may be repeated
    #[arg(long, value_name = "FILE")]
    image: Vec<PathBuf>,
}

/// The option that tests the result of a run.
#[derive(clap::Args)]
pub(crate) struct CheckArg {
    /// A command, as for `sh -c`, that is run as a check when the agent is done; if it fails, the exit code is 1
    #[arg(long, value_name = "COMMAND")]
    check: Option<String>,
}

impl ImageArgs {
    /// Reads the images.
    pub(crate) fn read(&self) -> Result<Vec<Image>, Failure> {
        self.image.iter().map(|path| read_image(path)).collect()
    }
}

/// Reads an image.
pub(crate) fn read_image(path: &Path) -> Result<Image, Failure> {
    let fail = |why: String| {
        let message = format!("cannot use the image {}: {why}", output::path(path));
        Failure::new(message, "name a file with a PNG, JPEG, GIF or WebP").with_exit(Exit::Usage)
    };
    let metadata = path.metadata().map_err(|error| fail(error.to_string()))?;
    if !metadata.is_file() {
        return Err(fail("it is not a file".to_owned()));
    }
    if metadata.len() > MAX_IMAGE_BYTES {
        return Err(fail("it has more than 20 MiB".to_owned()));
    }
    let bytes = std::fs::read(path).map_err(|error| fail(error.to_string()))?;
    let media_type = media_type(&bytes).ok_or_else(|| fail("it is of another kind".to_owned()))?;
    Ok(Image::new(media_type, bytes))
}

/// Returns the media type of an image by its first bytes.
fn media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// Reads `NAME=VALUE`. A value that is no JSON is a text.
pub(crate) fn parse_option(text: &str) -> Result<(String, Value), String> {
    let wanted = || format!("wanted NAME=VALUE, such as temperature=0.2, found `{text}`");
    let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wanted)?;
    Ok((name.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| Value::from(value))))
}

impl CheckArg {
    pub(crate) fn is_given(&self) -> bool {
        self.check.is_some()
    }

    /// Runs the check on the files of a session, says what came of it, and returns the exit code.
    pub(crate) async fn run(&self, session: Option<&mut Session>) -> Result<Exit, Failure> {
        let (Some(command), Some(session)) = (&self.check, session) else { return Ok(Exit::Success) };
        let verdict = session.check(command, &[]).await?;
        let checks = rath::view::checks(session.as_record());
        // What a check printed explains why it failed.
        let printed =
            checks.list.get(command.as_str()).and_then(|check| check.checked.output.as_str()).unwrap_or_default();
        let (word, exit) = match verdict {
            Verdict::Passed => ("passed", Exit::Success),
            Verdict::Failed => ("failed", Exit::Failure),
            _ => ("could not run", Exit::Failure),
        };
        if exit != Exit::Success && !printed.is_empty() {
            output::message!("{}", printable(printed.trim_end()));
        }
        output::message!("check {}: {word}", output::quote(command));
        Ok(exit)
    }
}

/// The largest schema of answers, in bytes: it is a part of each request.
const MAX_SCHEMA_BYTES: u64 = 64 * 1024;

/// Reads a JSON schema from a file.
pub(crate) fn read_schema(path: &Path) -> Result<Value, Failure> {
    // A pipe would wait for a writer.
    let metadata = fs::metadata(path).map_err(|error| wrong_schema(path, &error.to_string()))?;
    if !metadata.is_file() {
        return Err(wrong_schema(path, "it is not a file"));
    }
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|error| wrong_schema(path, &error.to_string()))?;
    let read = file.take(MAX_SCHEMA_BYTES + 1).read_to_string(&mut text);
    read.map_err(|error| wrong_schema(path, &error.to_string()))?;
    if text.len() as u64 > MAX_SCHEMA_BYTES {
        return Err(wrong_schema(path, "it has more than 64 KiB"));
    }
    serde_json::from_str(&text).map_err(|error| wrong_schema(path, &format!("it is not JSON: {error}")))
}

/// Returns the failure of a command whose schema cannot be used.
pub(crate) fn wrong_schema(path: &Path, why: &str) -> Failure {
    let message = format!("cannot use the schema {}: {why}", output::path(path));
    let hint = "a file such as {\"type\": \"object\", \"required\": [\"name\"]} is one";
    Failure::new(message, hint).with_exit(Exit::Usage)
}
