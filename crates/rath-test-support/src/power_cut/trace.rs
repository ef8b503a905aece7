//! Running a program below strace, and reading its log.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::process::program;

/// A system call of the program.
#[derive(Debug)]
pub(super) struct SysCall {
    pub(super) name: String,
    arguments: Vec<String>,
    pub(super) result: i64,
}

/// The calls that change files, and those by which files are named.
const CALLS: &str = "open,openat,openat2,creat,close,dup,dup2,dup3,fcntl,lseek,write,writev,pwrite64,pwritev,pwritev2,ftruncate,\
                     truncate,fallocate,copy_file_range,sendfile,fsync,fdatasync,sync,syncfs,mkdir,mkdirat,rmdir,unlink,\
                     unlinkat,rename,renameat,renameat2,link,linkat,symlink,symlinkat";

/// Runs a program to its end and returns its calls. Returns `None` if there is no strace, or if it may not trace.
pub(super) fn run(command: &Command, log: &Path) -> Option<Vec<SysCall>> {
    let can_trace =
        program("strace").args(["-o", "/dev/null", "true"]).output().is_ok_and(|output| output.status.success());
    if !can_trace {
        return None;
    }
    let mut strace = program("strace");
    strace.args(["-f", "-xx", "-s", "16777216", "-e"]).arg(format!("trace={CALLS}")).arg("-o").arg(log);
    strace.arg(command.get_program()).args(command.get_args()).current_dir("/");
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => strace.env(name, value),
            None => strace.env_remove(name),
        };
    }
    let output = strace.stdout(Stdio::null()).output().expect("strace runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let log = std::fs::read_to_string(log).expect("a log");
    Some(parse(&log))
}

/// Parses a log. A call that was interrupted by that of another thread counts from its end, because what it did may not be
/// durable if the other call synced it.
///
/// Two calls count from their beginning: another thread may get the number of a descriptor before its close returns, and may use
/// a directory before the call returns that makes it.
fn parse(log: &str) -> Vec<SysCall> {
    // The text so far of each interrupted call, and its place among the calls if it counts from its beginning.
    let mut unfinished: HashMap<&str, (&str, Option<usize>)> = HashMap::new();
    let mut calls: Vec<Option<SysCall>> = Vec::new();
    for line in log.lines() {
        let Some((process, text)) = line.split_once(' ') else { continue };
        let text = text.trim_start();
        if let Some(begun) = text.strip_suffix(" <unfinished ...>") {
            let counts_from_beginning = ["close(", "mkdir(", "mkdirat("].iter().any(|name| begun.starts_with(name));
            let place = counts_from_beginning.then_some(calls.len());
            calls.extend(place.map(|_| None));
            unfinished.insert(process, (begun, place));
        } else if let Some(rest) = text.strip_prefix("<... ") {
            let (_, rest) = rest.split_once(" resumed>").expect("the end of a call");
            let (begun, place) = unfinished.remove(process).expect("the beginning of a call");
            let call = parse_call(&format!("{begun}{rest}"));
            match place {
                Some(place) => calls[place] = call,
                None => calls.push(call),
            }
        } else {
            calls.push(parse_call(text));
        }
    }
    calls.into_iter().flatten().collect()
}

fn parse_call(text: &str) -> Option<SysCall> {
    let (name, rest) = text.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(" = ")?;
    let arguments = arguments.trim_end().strip_suffix(')')?;
    let result = result.split(' ').next()?.parse().ok()?;
    // Texts have no comma: every byte is written as a number.
    let arguments = arguments.split(", ").map(str::to_owned).collect();
    Some(SysCall { name: name.to_owned(), arguments, result })
}

impl SysCall {
    pub(super) fn argument(&self, nth: usize) -> &str {
        self.arguments.get(nth).map_or("", String::as_str)
    }

    pub(super) fn last(&self) -> &str {
        self.arguments.last().map_or("", String::as_str)
    }

    /// Returns the bytes of an argument.
    pub(super) fn text(&self, nth: usize) -> Vec<u8> {
        decode(self.argument(nth))
    }

    /// Returns all bytes that the call passes, of one buffer or of several.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.arguments.iter().flat_map(|argument| decode(argument)).collect()
    }
}

/// Decodes the bytes between quotes.
fn decode(argument: &str) -> Vec<u8> {
    let text = argument.split('"').nth(1).unwrap_or_default();
    assert!(!argument.ends_with("..."), "strace cut a text off");
    let (digits, _) = text.as_bytes().as_chunks::<4>();
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("a digit") as u8;
    digits.iter().map(|[_, _, high, low]| digit(*high) << 4 | digit(*low)).collect()
}
