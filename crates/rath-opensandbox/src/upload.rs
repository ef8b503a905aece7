//! Writing files through the interface of a sandbox.

use rath_sandbox::{Error, ErrorKind, Result};
use reqwest::Method;
use reqwest::header::HeaderValue;
use serde_json::json;
use std::time::Duration;

use super::remote::{Remote, RunningSandbox, refused};

/// The time that an upload may take.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(300);

/// A file to be written.
pub(crate) struct Upload<'a> {
    /// The absolute path.
    pub(crate) path: &'a str,
    pub(crate) content: &'a [u8],
    /// The octal digits of the permissions, read as a decimal number.
    pub(crate) mode: u32,
}

/// Writes files in place: no other program may know their paths.
pub(crate) async fn upload(remote: &Remote, attached: &RunningSandbox, files: &[Upload<'_>]) -> Result<()> {
    let boundary = format!("rath-{}", super::settings::new_name());
    let mut body = Vec::with_capacity(files.iter().map(|file| file.content.len() + 512).sum());
    for Upload { path, content, mode } in files {
        let metadata = json!({"path": path, "mode": mode}).to_string();
        // Both parts are files, also the metadata.
        for (name, kind, content) in
            [("metadata", "application/json", metadata.as_bytes()), ("file", "application/octet-stream", content)]
        {
            let head = format!(
                "--{boundary}\r\ncontent-disposition: form-data; name=\"{name}\"; filename=\"{name}\"\r\ncontent-type: {kind}\r\n\r\n"
            );
            body.extend_from_slice(head.as_bytes());
            body.extend_from_slice(content);
            body.extend_from_slice(b"\r\n");
        }
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    let kind = HeaderValue::try_from(format!("multipart/form-data; boundary={boundary}"));
    let kind = kind.map_err(|error| Error::new(ErrorKind::Io, "cannot send a file").because(error))?;
    let mut request = attached.request(Method::POST, "files/upload")?;
    (request.body, request.timeout) = (Some((kind, body)), UPLOAD_TIMEOUT);
    match remote.server.clients.send(request).await {
        Ok(reply) if reply.is_success() => Ok(()),
        Ok(reply) => Err(refused("a file cannot be written", &reply)),
        Err(no_reply) => Err(remote.unreachable(attached, "a file cannot be written", &no_reply).await),
    }
}
