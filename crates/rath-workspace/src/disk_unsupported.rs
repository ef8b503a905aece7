//! The disk module for platforms other than Unix: no directory can be opened, so no other call is ever made.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::dir::Stat;
use crate::error::{Error, ErrorKind, Result};
use crate::listing::Listing;

/// A type without values: nothing is ever opened.
#[derive(Debug)]
pub(crate) enum Handle {}

pub(crate) const CAN_SHARE_BLOCKS: bool = false;

/// Fails: versions of directories need Unix.
pub(crate) fn check_platform() -> Result<()> {
    Err(Error::new(ErrorKind::Directory, message()))
}

fn message() -> String {
    format!("versions of a directory need Unix; this is {}", std::env::consts::OS)
}

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, message())
}

/// Returns true: files are compared on Unix only.
pub fn is_same_file(_file: &File, _path: &Path) -> bool {
    true
}

pub(crate) fn path_from_bytes(bytes: &[u8]) -> PathBuf {
    String::from_utf8_lossy(bytes).into_owned().into()
}

/// Opens a file for reading.
pub(crate) fn open_without_waiting(path: &Path) -> io::Result<File> {
    File::open(path)
}

pub(crate) fn open_root(_path: &Path) -> io::Result<Handle> {
    Err(unsupported())
}

pub(crate) fn read_at(_file: &File, _buffer: &mut [u8], _offset: u64) -> io::Result<usize> {
    Err(unsupported())
}

pub(crate) fn write_all_at(_file: &File, _bytes: &[u8], _offset: u64) -> io::Result<()> {
    Err(unsupported())
}

pub(crate) fn sync_file_system(_folder: &Path) -> io::Result<()> {
    Err(unsupported())
}

pub(crate) fn can_store_layers(_directory: &Path) -> bool {
    false
}

pub(crate) fn can_share_blocks(_directory: &Path) -> bool {
    false
}

pub(crate) fn is_gone(_error: &io::Error) -> bool {
    false
}

pub(crate) fn is_denied(_error: &io::Error) -> bool {
    false
}

pub(crate) fn file_clock_now() -> i64 {
    0
}

pub(crate) fn wait_for_tick() {}

pub(crate) fn open_dir(dir: &Handle, _name: &[u8]) -> io::Result<Handle> {
    match *dir {}
}

pub(crate) fn open_path(root: &Handle, _path: &[u8]) -> io::Result<Handle> {
    match *root {}
}

pub(crate) fn open_file(dir: &Handle, _name: &[u8]) -> io::Result<Handle> {
    match *dir {}
}

pub(crate) fn open_plain_file(path: &Path) -> io::Result<std::fs::File> {
    std::fs::File::open(path)
}

pub(crate) fn create_file(dir: &Handle, _name: &[u8], _executable: bool) -> io::Result<Handle> {
    match *dir {}
}

pub(crate) fn create_dir(dir: &Handle, _name: &[u8]) -> io::Result<()> {
    match *dir {}
}

pub(crate) fn create_link(dir: &Handle, _name: &[u8], _target: &[u8]) -> io::Result<()> {
    match *dir {}
}

pub(crate) fn read_link(dir: &Handle, _name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    match *dir {}
}

pub(crate) fn rename(from: (&Handle, &[u8]), _to: (&Handle, &[u8])) -> io::Result<()> {
    match *from.0 {}
}

pub(crate) fn rename_new(from: (&Handle, &[u8]), _to: (&Handle, &[u8])) -> io::Result<()> {
    match *from.0 {}
}

pub(crate) fn exchange(one: (&Handle, &[u8]), _other: (&Handle, &[u8])) -> io::Result<bool> {
    match *one.0 {}
}

pub(crate) fn remove_file(dir: &Handle, _name: &[u8]) -> io::Result<()> {
    match *dir {}
}

pub(crate) fn remove_dir(dir: &Handle, _name: &[u8]) -> io::Result<()> {
    match *dir {}
}

pub(crate) fn list(dir: &Handle, _listing: &mut Listing) -> io::Result<()> {
    match *dir {}
}

pub(crate) fn stat(dir: &Handle, _name: &[u8]) -> io::Result<Stat> {
    match *dir {}
}

pub(crate) fn stat_open(file: &Handle) -> io::Result<Stat> {
    match *file {}
}

pub(crate) fn set_mode(file: &Handle, _mode: u32) -> io::Result<()> {
    match *file {}
}

pub(crate) fn set_modified(file: &Handle, _nanos: i64) -> io::Result<()> {
    match *file {}
}

pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    std::fs::remove_dir_all(path)
}

pub(crate) fn add_mode(_path: &Path, _bits: u32) -> io::Result<()> {
    Ok(())
}

pub(crate) fn make_accessible(dir: &Handle, _name: &[u8]) -> io::Result<()> {
    match *dir {}
}

pub(crate) fn rewind(file: &Handle) -> io::Result<()> {
    match *file {}
}

pub(crate) fn truncate(file: &Handle) -> io::Result<()> {
    match *file {}
}

pub(crate) fn read_all(file: &Handle, _content: &mut Vec<u8>, _max: u64) -> io::Result<()> {
    match *file {}
}

pub(crate) fn sync_content(file: &Handle) -> io::Result<()> {
    match *file {}
}

pub(crate) fn write_all(file: &Handle, _bytes: &[u8]) -> io::Result<()> {
    match *file {}
}

pub(crate) fn share_blocks(source: &Handle, _file: &Handle) -> bool {
    match *source {}
}
