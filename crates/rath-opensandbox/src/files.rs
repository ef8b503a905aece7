//! Reading, writing and listing files in a sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;

use rath_sandbox::{ByteRange, DirEntry, Error, ErrorKind, FileKind, RATH_DIR, Result};
use reqwest::header::{HeaderValue, RANGE};
use reqwest::{Method, Url};
use serde::Deserialize;

use super::command::{Script, run_script};
use super::http::{Reply, Request, one_line};
use super::remote::{Remote, RunningSandbox, UndoRequest, refused};
use super::upload::{Upload, upload};

/// The most bytes of one file that are read at once.
const MAX_READ_BYTES: u64 = 1 << 30;
/// The most bytes of the list of one directory.
const MAX_LIST_BYTES: usize = 64 << 20;
/// The permissions of a new file.
const NEW_FILE_MODE: u32 = 644;

/// A file, as the sandbox describes it.
#[derive(Clone, Debug, Deserialize)]
struct FileInfo {
    path: String,
    #[serde(default, rename = "type")]
    kind: String,
    size: u64,
    #[serde(default)]
    mode: u32,
}

impl FileInfo {
    fn file_kind(&self) -> FileKind {
        match self.kind.as_str() {
            "file" => FileKind::File,
            "directory" => FileKind::Directory,
            "symlink" => FileKind::Symlink,
            _ => FileKind::Other,
        }
    }

    fn entry(&self, name: &str) -> DirEntry {
        let kind = self.file_kind();
        // No mark: the times that the sandbox reports can be set by any command.
        DirEntry::new(name, kind, if kind == FileKind::File { self.size } else { 0 })
    }
}

/// Prints the path without links, if it is in the workspace.
const RESOLVE: &str = r#"
path=$2
link=0
while [ -L "$path" ]; do
    link=$((link + 1))
    [ $link -le 40 ] || exit 5
    target=$(readlink "$path"; echo x)
    target=${target%x}
    target=${target%?}
    case $target in /*) path=$target ;; *) path=${path%/*}/$target ;; esac
done
[ -e "$path" ] || exit 2
case $path in */..|*/.) directory=$path name= ;; *) directory=${path%/*} name=/${path##*/} ;; esac
directory=$(cd -P "${directory:-/}" && pwd -P) || exit 2
path=$directory$name
[ -d "$path" ] && path=$(cd -P "$path" && pwd -P)
case "$path/" in "$1"/*) printf '%s' "$path" | base64 | tr -d '\n'; echo ;; *) exit 4 ;; esac
"#;

/// Moves a new file to the place of an old one.
const REPLACE: &str = r#"
mkdir -p "${2%/*}" || exit 3
directory=$(cd -P "${2%/*}" && pwd -P) || exit 3
case "$directory/" in "$3"/*) ;; *) exit 4 ;; esac
[ -d "$2" ] && exit 5
mv -f "$1" "$2"
"#;

/// Removes a file, and the directories above it that are empty then.
const REMOVE: &str = r#"
directory=$(cd -P "${1%/*}" && pwd -P) || exit 3
case "$directory/" in "$2"/*) ;; *) exit 4 ;; esac
rm -f "$1" || exit 3
while [ "$directory" != "$2" ] && rmdir "$directory" 2>/dev/null; do
    directory=${directory%/*}
done
exit 0
"#;

/// Returns a path of the workspace with single separators, empty for the workspace itself. Fails on one that leads out, or to what
/// belongs to rath.
pub(crate) fn check_path(path: &str) -> Result<String> {
    let outside = || Error::new(ErrorKind::OutsideWorkspace, format_args!("`{path}` leads out of the workspace"));
    if path.starts_with('/') {
        return Err(outside());
    }
    if path.contains('\0') {
        return Err(Error::new(ErrorKind::Config, "a path contains a NUL byte"));
    }
    let mut names: Vec<&str> = Vec::new();
    for name in path.split('/').filter(|name| !matches!(*name, "" | ".")) {
        match name {
            // Not shortened: the directory before it may be a link.
            ".." => return Err(outside()),
            name if name.eq_ignore_ascii_case(RATH_DIR) => {
                return Err(Error::new(ErrorKind::OutsideWorkspace, format_args!("`{path}` belongs to rath")));
            }
            name => names.push(name),
        }
    }
    Ok(names.join("/"))
}

/// Reads a part of a file.
pub(crate) async fn read(remote: &Arc<Remote>, path: &str, range: ByteRange) -> Result<Vec<u8>> {
    let (attached, path) = (remote.attach().await?, check_path(path)?);
    let (real, info) = find(remote, &attached, &path).await?.ok_or_else(|| missing(&path))?;
    if info.file_kind() != FileKind::File {
        return Err(Error::new(ErrorKind::Io, format_args!("`{path}` is no file")));
    }
    let wanted = range.max_len.min(info.size.saturating_sub(range.offset));
    if wanted == 0 {
        return Ok(Vec::new());
    }
    if wanted > MAX_READ_BYTES {
        return Err(Error::new(ErrorKind::Io, format_args!("`{path}` has more than {MAX_READ_BYTES} bytes")));
    }
    let last = range.offset.saturating_add(wanted - 1);
    let url = with_paths(attached.url("files/download")?, [&real]);
    let header = HeaderValue::try_from(format!("bytes={}-{last}", range.offset));
    let header = header.map_err(|error| Error::new(ErrorKind::Io, "cannot read a file").because(error))?;
    let request = || {
        let mut request = Request::new(Method::GET, url.clone());
        request.headers = attached.headers();
        request.headers.insert(RANGE, header.clone());
        request.timeout = std::time::Duration::from_secs(300);
        request.max_bytes = usize::try_from(MAX_READ_BYTES).unwrap_or(usize::MAX);
        request
    };
    let reply = read_reply(remote, &attached, format!("`{path}` cannot be read"), request).await?;
    let mut content = match reply.status {
        // A server that knows no ranges sends all of it.
        200 => reply.body.into_iter().skip(usize::try_from(range.offset).unwrap_or(usize::MAX)).collect(),
        206 => reply.body,
        _ if reply.is_missing() => return Err(missing(&path)),
        // The file has become shorter.
        416 => Vec::new(),
        _ => return Err(refused(format_args!("`{path}` cannot be read"), &reply)),
    };
    content.truncate(usize::try_from(range.max_len).unwrap_or(usize::MAX));
    Ok(content)
}

/// Writes a file: under a temporary name in the workspace, which then becomes its name.
pub(crate) async fn write(remote: &Arc<Remote>, path: &str, content: &[u8]) -> Result<()> {
    let (attached, path) = (remote.attach_to_work().await?, check_path(path)?);
    if path.is_empty() {
        return Err(Error::new(ErrorKind::Io, "the workspace is no file"));
    }
    let (target, mode) = match find(remote, &attached, &path).await? {
        Some((_, info)) if info.file_kind() == FileKind::Directory => {
            return Err(Error::new(ErrorKind::Io, format_args!("`{path}` is a directory")));
        }
        Some((real, info)) => (real, if info.mode == 0 { NEW_FILE_MODE } else { info.mode }),
        None => (new_path(remote, &attached, &path).await?, NEW_FILE_MODE),
    };
    // No list shows this name.
    let temporary = format!("{}/.rath-{}.tmp", attached.root, super::settings::new_name());
    let mut removal = Request::new(Method::DELETE, with_paths(attached.url("files")?, [&temporary]));
    removal.headers = attached.headers();
    let removal = UndoRequest::new(remote, removal);
    upload(remote, &attached, &[Upload { path: &temporary, content, mode }]).await?;
    let script = Script { text: REPLACE, arguments: &[&temporary, &target, &attached.root] };
    match run_script(remote, &attached, script).await?.status {
        0 => {
            removal.cancel();
            Ok(())
        }
        4 => Err(outside(&path)),
        _ => Err(Error::new(ErrorKind::Io, format_args!("`{path}` cannot be written"))),
    }
}

/// Returns the absolute path of a new file, without the links in the directories that are there.
async fn new_path(remote: &Remote, attached: &RunningSandbox, path: &str) -> Result<String> {
    let mut above = path;
    while let Some((directory, _)) = above.rsplit_once('/') {
        above = directory;
        if let Some((real, info)) = find(remote, attached, above).await? {
            return match info.file_kind() {
                FileKind::Directory => Ok(format!("{real}{}", &path[above.len()..])),
                _ => Err(Error::new(ErrorKind::Io, format_args!("`{above}` is no directory"))),
            };
        }
    }
    Ok(attached.path(path))
}

/// Removes a file, and the directories above it that are empty then.
pub(crate) async fn remove(remote: &Arc<Remote>, path: &str) -> Result<()> {
    let (attached, path) = (remote.attach_to_work().await?, check_path(path)?);
    let infos = infos_of(remote, &attached, &path).await?;
    let info = infos.last().filter(|info| info.path == attached.path(&path)).ok_or_else(|| missing(&path))?;
    if path.is_empty() || info.file_kind() == FileKind::Directory {
        return Err(Error::new(ErrorKind::Io, format_args!("`{path}` is a directory")));
    }
    let script = Script { text: REMOVE, arguments: &[&attached.path(&path), &attached.root] };
    match run_script(remote, &attached, script).await?.status {
        0 => Ok(()),
        4 => Err(outside(&path)),
        _ => Err(Error::new(ErrorKind::Io, format_args!("`{path}` cannot be removed"))),
    }
}

/// Returns the entries of a directory, sorted by name.
pub(crate) async fn list(remote: &Arc<Remote>, path: &str) -> Result<Vec<DirEntry>> {
    let (attached, path) = (remote.attach().await?, check_path(path)?);
    let real = match path.is_empty() {
        true => attached.root.clone(),
        false => {
            let (real, info) = find(remote, &attached, &path).await?.ok_or_else(|| missing(&path))?;
            if info.file_kind() != FileKind::Directory {
                return Err(Error::new(ErrorKind::Io, format_args!("`{path}` is no directory")));
            }
            real
        }
    };
    let url = with_paths(attached.url("directories/list")?, [&real]);
    let request = || {
        let mut request = Request::new(Method::GET, url.clone());
        (request.headers, request.max_bytes) = (attached.headers(), MAX_LIST_BYTES);
        request
    };
    let reply = read_reply(remote, &attached, format!("`{path}` cannot be listed"), request).await?;
    if !reply.is_success() {
        return Err(refused(format_args!("`{path}` cannot be listed"), &reply));
    }
    let infos: Vec<FileInfo> = reply.json()?;
    let below = format!("{real}/");
    let mut entries = Vec::with_capacity(infos.len());
    for info in &infos {
        let name = info.path.strip_prefix(&below).filter(|name| !name.is_empty() && !name.contains('/'));
        let name = name.ok_or_else(|| {
            let message = format!("the list of `{path}` names `{}`", one_line(&info.path));
            Error::new(ErrorKind::Io, message)
        })?;
        let is_of_rath = path.is_empty() && name == RATH_DIR;
        if !is_of_rath && !rath_sandbox::is_temporary_name(name.as_ref()) {
            entries.push(info.entry(name));
        }
    }
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

/// Returns the file or directory at a path. Links are followed inside the workspace.
pub(crate) async fn stat(remote: &Arc<Remote>, path: &str) -> Result<Option<DirEntry>> {
    let (attached, path) = (remote.attach().await?, check_path(path)?);
    let name = path.rsplit('/').next().unwrap_or_default();
    Ok(find(remote, &attached, &path).await?.map(|(_, info)| info.entry(name)))
}

/// Returns the absolute path of a file without links, and its description.
async fn find(remote: &Remote, attached: &RunningSandbox, path: &str) -> Result<Option<(String, FileInfo)>> {
    let infos = infos_of(remote, attached, path).await?;
    let wanted = attached.path(path);
    let has_link = infos.iter().any(|info| info.file_kind() == FileKind::Symlink);
    if !has_link {
        let last = infos.into_iter().last().filter(|info| info.path == wanted);
        return Ok(last.map(|info| (wanted, info)));
    }
    let printed = run_script(remote, attached, Script { text: RESOLVE, arguments: &[&attached.root, &wanted] }).await?;
    let real = match (printed.status, &printed.decoded_lines()[..]) {
        (0, [real]) => real.clone(),
        (4, _) => return Err(outside(path)),
        // A link to nothing may lead out.
        _ if infos.last().is_some_and(|info| info.path == wanted) => {
            return Err(Error::new(ErrorKind::Io, format_args!("`{path}` is a link that leads to nothing")));
        }
        _ => return Ok(None),
    };
    let info = info(remote, attached, std::slice::from_ref(&real)).await?;
    Ok(info.and_then(|mut infos| infos.remove(&real)).map(|info| (real, info)))
}

/// Returns the descriptions of the directories on the way to a file and of the file itself, as far as there are some.
async fn infos_of(remote: &Remote, attached: &RunningSandbox, path: &str) -> Result<Vec<FileInfo>> {
    let mut paths = vec![attached.root.clone()];
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let above = paths.last().cloned().unwrap_or_default();
        paths.push(format!("{above}/{name}"));
    }
    loop {
        // One that is missing fails the request for all.
        if let Some(mut infos) = info(remote, attached, &paths).await? {
            let found = paths.iter().map_while(|path| infos.remove(path));
            return Ok(found.collect());
        }
        paths.pop();
        if paths.is_empty() {
            return Ok(Vec::new());
        }
    }
}

/// Returns the descriptions of files by path; none if one of them is missing. Links are not followed.
async fn info(
    remote: &Remote,
    attached: &RunningSandbox,
    paths: &[String],
) -> Result<Option<BTreeMap<String, FileInfo>>> {
    let url = with_paths(attached.url("files/info")?, paths);
    let request = || {
        let mut request = Request::new(Method::GET, url.clone());
        request.headers = attached.headers();
        request
    };
    let what = "a file cannot be looked at";
    let reply = read_reply(remote, attached, what.to_owned(), request).await?;
    match reply.status {
        _ if reply.is_missing() => Ok(None),
        _ if reply.is_success() => Ok(Some(reply.json()?)),
        // Below a file: as if it were missing.
        500 if reply.describe().contains("not a directory") => Ok(None),
        _ => Err(refused(what, &reply)),
    }
}

async fn read_reply(
    remote: &Remote,
    attached: &RunningSandbox,
    what: String,
    request: impl Fn() -> Request,
) -> Result<Reply> {
    match remote.server.clients.read(request).await {
        Ok(reply) => Ok(reply),
        Err(no_reply) => Err(remote.unreachable(attached, &what, &no_reply).await),
    }
}

fn with_paths<'a>(mut url: Url, paths: impl IntoIterator<Item = &'a String>) -> Url {
    paths.into_iter().for_each(|path| _ = url.query_pairs_mut().append_pair("path", path));
    url
}

fn missing(path: &str) -> Error {
    Error::new(ErrorKind::Io, format_args!("there is no file `{path}`"))
}

fn outside(path: &str) -> Error {
    Error::new(ErrorKind::OutsideWorkspace, format_args!("`{path}` leads out of the workspace"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_out() {
        for (path, wanted) in [
            ("", Some("")),
            (".", Some("")),
            ("a//b/./c/", Some("a/b/c")),
            ("..", None),
            ("a/../b", None),
            ("/a", None),
            (".rath/x", None),
            ("a/.RATH", None),
            ("a\0", None),
            (".rathx", Some(".rathx")),
        ] {
            assert_eq!(check_path(path).ok().as_deref(), wanted, "{path:?}");
        }
    }
}
