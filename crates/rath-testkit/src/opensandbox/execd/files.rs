//! The files of a sandbox.

use std::fs::{self, File, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::super::{StatusAndBody, is_within, lock, modified, respond};
use super::Execd;
use crate::body::{Kind, Member, wrong_member};
use crate::http::{HttpAnswer, HttpRequest};

const METADATA: &[Member] = &[
    ("path", Kind::Name, true),
    ("owner", Kind::Text, false),
    ("group", Kind::Text, false),
    ("mode", Kind::Number(0), false),
];

impl Execd {
    /// Returns the path that a request names.
    fn path(&self, path: &str) -> Result<PathBuf, String> {
        let path = Path::new(path);
        match path.is_absolute() && is_within(&self.home, path) {
            true => Ok(path.to_owned()),
            false => Err(format!("the path {} is not in the sandbox", path.display())),
        }
    }

    fn paths(&self, request: &HttpRequest) -> Result<Vec<(String, PathBuf)>, String> {
        let paths = request.all("path").map(|path| Ok((path.to_owned(), self.path(path)?)));
        let paths = paths.collect::<Result<Vec<_>, String>>()?;
        if paths.is_empty() { Err("`path` is missing".to_owned()) } else { Ok(paths) }
    }

    pub(super) fn upload(&self, request: &HttpRequest) -> Result<StatusAndBody, String> {
        let kind = request.header("content-type").unwrap_or_default();
        let boundary = kind.strip_prefix("multipart/form-data").and_then(|rest| rest.split_once("boundary="));
        let boundary = boundary.ok_or_else(|| format!("the content type is {kind}"))?.1.trim_matches('"');
        let parts = parts(&request.body, boundary)?;
        if parts.is_empty() || parts.len() % 2 != 0 {
            return Err(format!("there are {} parts", parts.len()));
        }
        for pair in parts.chunks(2) {
            let [metadata, file] = pair else { return Err("a part is missing".to_owned()) };
            for (part, name) in [(metadata, "metadata"), (file, "file")] {
                if !part.head.contains(&format!("name=\"{name}\"")) || !part.head.contains("filename=") {
                    return Err(format!("wanted the file `{name}`, found the part {}", part.head));
                }
            }
            let metadata: Value = serde_json::from_slice(metadata.body).map_err(|error| error.to_string())?;
            if let Some(wrong) = wrong_member(&metadata, METADATA) {
                return Err(wrong);
            }
            let path = self.path(metadata["path"].as_str().unwrap_or_default())?;
            if let Some(directory) = path.parent() {
                if !path.starts_with(&self.home) {
                    lock(&self.directories).push(directory.to_owned());
                }
                if let Err(error) = fs::create_dir_all(directory).and_then(|()| fs::write(&path, file.body)) {
                    return Ok((500, Some(json!({"code": "RUNTIME_ERROR", "message": error.to_string()}))));
                }
            }
            // The octal digits are read as a decimal number.
            let mode = metadata["mode"].as_u64().unwrap_or_default().to_string();
            let mode = u32::from_str_radix(&mode, 8).map_err(|_| format!("`mode` is {mode}"))?;
            if mode != 0 {
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map_err(|error| error.to_string())?;
            }
        }
        Ok((200, None))
    }

    pub(super) fn info(&self, request: &HttpRequest) -> Result<StatusAndBody, String> {
        let mut infos = serde_json::Map::new();
        for (name, path) in self.paths(request)? {
            match fs::symlink_metadata(&path) {
                Ok(metadata) => _ = infos.insert(name, describe(&path, &metadata)),
                Err(error) => return Ok(file_error(&error)),
            }
        }
        Ok((200, Some(Value::Object(infos))))
    }

    pub(super) fn download(&self, request: &HttpRequest, answer: &mut HttpAnswer<'_>) -> Result<(), String> {
        let [(_, path)] = &self.paths(request)?[..] else { return Err("wanted one path".to_owned()) };
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) => {
                respond(answer, file_error(&error));
                return Ok(());
            }
        };
        let size = file.metadata().map_err(|error| error.to_string())?.len();
        let range = match request.header("range") {
            None => None,
            Some(range) => {
                let bounds = range.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
                let (first, last) = bounds.ok_or_else(|| format!("the range is {range}"))?;
                let first: u64 = first.parse().map_err(|_| format!("the range is {range}"))?;
                let last: u64 = if last.is_empty() {
                    u64::MAX
                } else {
                    last.parse().map_err(|_| format!("the range is {range}"))?
                };
                (first <= last).then_some(()).ok_or_else(|| format!("the range is {range}"))?;
                Some((first, last.min(size.saturating_sub(1)))).filter(|(first, _)| *first < size)
            }
        };
        let mut content = Vec::new();
        let (first, last) = range.unwrap_or((0, size.saturating_sub(1)));
        let read =
            file.seek(SeekFrom::Start(first)).and_then(|_| file.take(last - first + 1).read_to_end(&mut content));
        read.map_err(|error| error.to_string())?;
        let kind = ("content-type", "application/octet-stream");
        match range {
            Some((first, last)) => {
                answer.whole(206, &[kind, ("content-range", &format!("bytes {first}-{last}/{size}"))], &content);
            }
            None => answer.whole(200, &[kind], &content),
        }
        Ok(())
    }

    pub(super) fn remove(&self, request: &HttpRequest) -> Result<StatusAndBody, String> {
        for (_, path) in self.paths(request)? {
            match fs::metadata(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Ok(metadata) if metadata.is_dir() => {
                    return Ok((500, Some(json!({"code": "RUNTIME_ERROR", "message": "path is a directory"}))));
                }
                _ => _ = fs::remove_file(&path),
            }
        }
        Ok((200, None))
    }

    pub(super) fn list(&self, request: &HttpRequest) -> Result<StatusAndBody, String> {
        let [(_, path)] = &self.paths(request)?[..] else { return Err("wanted one path".to_owned()) };
        if request.all("depth").any(|depth| depth != "1") {
            return Err("only one level is played here".to_owned());
        }
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Ok((400, Some(json!({"code": "INVALID_REQUEST", "message": "path is not a directory"})))),
            Err(error) => return Ok(file_error(&error)),
        }
        let entries = fs::read_dir(path).map_err(|error| error.to_string())?.flatten();
        let entries = entries.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)));
        let mut entries: Vec<_> = entries.collect();
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        let list = entries.iter().map(|(path, metadata)| describe(path, metadata)).collect();
        Ok((200, Some(Value::Array(list))))
    }

    pub(super) fn make_dirs(&self, request: &HttpRequest) -> Result<StatusAndBody, String> {
        let value: Value = serde_json::from_slice(&request.body).map_err(|error| error.to_string())?;
        for path in value.as_object().ok_or("wanted an object")?.keys() {
            fs::create_dir_all(self.path(path)?).map_err(|error| error.to_string())?;
        }
        Ok((200, None))
    }
}

/// A part of a form.
struct Part<'a> {
    head: String,
    body: &'a [u8],
}

/// Splits a form into its parts.
fn parts<'a>(body: &'a [u8], boundary: &str) -> Result<Vec<Part<'a>>, String> {
    let (mut parts, marker) = (Vec::new(), format!("--{boundary}"));
    let find = |text: &[u8], wanted: &[u8]| text.windows(wanted.len()).position(|window| window == wanted);
    let mut rest = body.strip_prefix(marker.as_bytes()).ok_or("the form has no beginning")?;
    while let Some(part) = rest.strip_prefix(b"\r\n") {
        let head = find(part, b"\r\n\r\n").ok_or("a part has no head")?;
        let content = &part[head + 4..];
        let end = find(content, format!("\r\n{marker}").as_bytes()).ok_or("a part has no end")?;
        parts.push(Part { head: String::from_utf8_lossy(&part[..head]).into_owned(), body: &content[..end] });
        rest = &content[end + 2 + marker.len()..];
    }
    if rest.starts_with(b"--") { Ok(parts) } else { Err("the form has no end".to_owned()) }
}

fn file_error(error: &std::io::Error) -> StatusAndBody {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            (404, Some(json!({"code": "FILE_NOT_FOUND", "message": format!("file not found. {error}")})))
        }
        _ => {
            let message = format!("error accessing file: {}", error.to_string().to_lowercase());
            (500, Some(json!({"code": "RUNTIME_ERROR", "message": message})))
        }
    }
}

fn describe(path: &Path, metadata: &Metadata) -> Value {
    let kind = match metadata.file_type() {
        kind if kind.is_symlink() => "symlink",
        kind if kind.is_dir() => "directory",
        kind if kind.is_file() => "file",
        _ => "other",
    };
    let mode: u32 = format!("{:o}", metadata.mode() & 0o777).parse().unwrap_or_default();
    let time = modified(metadata);
    json!({
        "path": path, "type": kind, "size": metadata.len(), "modified_at": time, "created_at": time,
        "owner": "root", "group": "root", "mode": mode,
    })
}
