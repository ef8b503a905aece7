//! The settings of a sandbox, and its URI.

use std::collections::BTreeMap;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rath_sandbox::backend::DEFAULT_MAX_OUTPUT_BYTES;
use rath_sandbox::{Error, ErrorKind, Result};

/// The scheme of the URIs.
pub(crate) const SCHEME: &str = "opensandbox";

/// The directory that a sandbox works in, unless another one is set.
const DEFAULT_WORKDIR: &str = "/workspace";

/// The time after which the server removes a sandbox that is not used, unless another one is set.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1_800);

/// The shortest time that servers accept.
const MIN_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest URI, image and value of an option that is read, in bytes.
const MAX_URI_BYTES: usize = 16 << 10;

/// The options of a URI.
const OPTIONS: &str = "name, id, workdir, entrypoint, cpu, memory, gpu, network, host, timeout, output, keep, access";

/// The sandbox on the server that is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It is created at the first use, under this name.
    New(String),
    /// It was created under this name before.
    Known(String),
    /// The user created it; this is the id that the server gave it.
    Foreign(String),
}

/// The network access of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum NetworkPolicy {
    /// That which the server gives.
    #[default]
    OfServer,
    /// These hosts only; none if the list is empty.
    Only(Vec<String>),
}

/// The way to the interface for commands and files in a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Access {
    /// At the address that the server names.
    #[default]
    Direct,
    /// Through the server.
    ThroughServer,
}

/// The settings of a sandbox.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) image: String,
    pub(crate) origin: Origin,
    pub(crate) entrypoint: Vec<String>,
    /// Not part of the URI: a value may be a secret.
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) limits: BTreeMap<&'static str, String>,
    pub(crate) network: NetworkPolicy,
    pub(crate) workdir: String,
    pub(crate) timeout: Duration,
    pub(crate) max_output_bytes: u64,
    pub(crate) keep: bool,
    pub(crate) access: Access,
}

impl Settings {
    pub(crate) fn new(image: String, origin: Origin) -> Self {
        Settings {
            image,
            origin,
            entrypoint: Vec::new(),
            env: BTreeMap::new(),
            limits: BTreeMap::new(),
            network: NetworkPolicy::default(),
            workdir: DEFAULT_WORKDIR.to_owned(),
            timeout: DEFAULT_TIMEOUT,
            max_output_bytes: DEFAULT_MAX_OUTPUT_BYTES,
            keep: false,
            access: Access::default(),
        }
    }

    /// Parses the part of a URI after `opensandbox:`.
    pub(crate) fn parse(rest: &str) -> Result<Self> {
        if rest.len() > MAX_URI_BYTES {
            return Err(wrong(format_args!("the URI has more than {MAX_URI_BYTES} bytes")));
        }
        let (image, options) = rest.split_once('?').unwrap_or((rest, ""));
        let mut settings = Settings::new(decode(image), Origin::New(new_name()));
        let (mut hosts, mut network) = (Vec::new(), None);
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = decode(value);
            let wanted = |what: &str| wrong(format_args!("wanted {what} as `{name}`, found `{value}`"));
            let words = |yes: &str, no: &str| match &*value {
                value if value == yes => Ok(true),
                value if value == no => Ok(false),
                _ => Err(wanted(&format!("{yes} or {no}"))),
            };
            match name {
                "name" => {
                    settings.origin =
                        Origin::Known(is_name(&value).then(|| value.clone()).ok_or_else(|| wanted("a name"))?);
                }
                "id" => {
                    settings.origin =
                        Origin::Foreign(is_id(&value).then(|| value.clone()).ok_or_else(|| wanted("an id"))?);
                }
                "workdir" => settings.workdir = value,
                "entrypoint" => settings.entrypoint.push(value),
                "cpu" => _ = settings.limits.insert("cpu", value),
                "memory" => _ = settings.limits.insert("memory", value),
                "gpu" => _ = settings.limits.insert("gpu", value),
                "network" => network = Some(words("on", "off")?),
                "host" => hosts.push(value),
                "timeout" => {
                    let seconds = value.strip_suffix('s').and_then(|seconds| seconds.parse().ok());
                    settings.timeout = Duration::from_secs(seconds.ok_or_else(|| wanted("seconds such as `600s`"))?);
                }
                "output" => settings.max_output_bytes = value.parse().map_err(|_| wanted("a number of bytes"))?,
                "keep" => settings.keep = words("on", "off")?,
                "access" => {
                    settings.access = if words("server", "direct")? { Access::ThroughServer } else { Access::Direct };
                }
                _ => return Err(wrong(format_args!("unknown option `{name}`; known: {OPTIONS}"))),
            }
        }
        settings.network = match (network, hosts) {
            (Some(true) | None, hosts) if hosts.is_empty() => NetworkPolicy::OfServer,
            (Some(true), _) => return Err(wrong("`network=on` and `host` contradict each other")),
            (_, hosts) => NetworkPolicy::Only(hosts),
        };
        settings.check()?;
        Ok(settings)
    }

    /// Fails on settings that no server can have.
    pub(crate) fn check(&self) -> Result<()> {
        let is_foreign = matches!(self.origin, Origin::Foreign(_));
        if self.image.is_empty() && !is_foreign {
            return Err(
                wrong("no image is named").with_hint("write the image after the colon: `opensandbox:python:3.13`")
            );
        }
        let names = self.workdir.strip_prefix("~/").or_else(|| self.workdir.strip_prefix('/')).unwrap_or_default();
        let is_path = !names.is_empty() && names.split('/').all(|name| !matches!(name, "" | "." | ".."));
        if !is_path || self.workdir.chars().any(char::is_control) {
            let message =
                format!("wanted an absolute path or one that begins with `~/` as `workdir`, found `{}`", self.workdir);
            return Err(wrong(message));
        }
        if self.timeout < MIN_TIMEOUT || self.timeout > Duration::from_secs(366 * 24 * 3600) {
            return Err(wrong(format_args!("wanted a timeout of {} seconds to a year", MIN_TIMEOUT.as_secs())));
        }
        Ok(())
    }

    /// Returns the URI that opens the same sandbox again.
    pub(crate) fn uri(&self) -> String {
        let mut uri = format!("{SCHEME}:{}", encode(&self.image));
        let mut separator = '?';
        let mut option = |name: &str, value: &str| {
            uri.push_str(&format!("{separator}{name}={}", encode(value)));
            separator = '&';
        };
        match &self.origin {
            Origin::New(name) | Origin::Known(name) => option("name", name),
            Origin::Foreign(id) => option("id", id),
        }
        if self.workdir != DEFAULT_WORKDIR {
            option("workdir", &self.workdir);
        }
        self.entrypoint.iter().for_each(|word| option("entrypoint", word));
        self.limits.iter().for_each(|(name, value)| option(name, value));
        if let NetworkPolicy::Only(hosts) = &self.network {
            option("network", "off");
            hosts.iter().for_each(|host| option("host", host));
        }
        if self.timeout != DEFAULT_TIMEOUT {
            option("timeout", &format!("{}s", self.timeout.as_secs()));
        }
        if self.max_output_bytes != DEFAULT_MAX_OUTPUT_BYTES {
            option("output", &self.max_output_bytes.to_string());
        }
        if self.keep {
            option("keep", "on");
        }
        if self.access == Access::ThroughServer {
            option("access", "server");
        }
        uri
    }
}

/// Returns a name that no other sandbox has.
pub(crate) fn new_name() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}

/// Returns true for a name that [`new_name`] may have returned: servers take it as the value of a label.
fn is_name(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns true for an id that can be a part of a path.
pub(crate) fn is_id(id: &str) -> bool {
    (1..=128).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && !id.starts_with('.')
}

fn wrong(message: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Config, format_args!("a sandbox of the kind `{SCHEME}`: {message}"))
}

/// Escapes all characters but those of image names and paths.
fn encode(text: &str) -> String {
    const OTHERS: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/').remove(b':').remove(b'@');
    utf8_percent_encode(text, OTHERS).to_string()
}

/// Decodes escapes. A percent sign without two digits stands for itself.
fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_opens_the_same_sandbox_again() {
        let name = "0198f0c2d3e4475ab6c7d8e9f0a1b2c3";
        for (uri, again) in [
            ("python:3.13", format!("python:3.13?name={name}")),
            (
                "reg.example:5000/a/b@sha256:00ff?workdir=~/w",
                format!("reg.example:5000/a/b@sha256:00ff?name={name}&workdir=~/w"),
            ),
            (
                "i?entrypoint=sh&entrypoint=-c&entrypoint=a%20b%26",
                format!("i?name={name}&entrypoint=sh&entrypoint=-c&entrypoint=a%20b%26"),
            ),
            ("i?memory=512Mi&cpu=500m&network=off", format!("i?name={name}&cpu=500m&memory=512Mi&network=off")),
            ("i?host=example.com&host=*.rs", format!("i?name={name}&network=off&host=example.com&host=%2A.rs")),
            (
                "i?timeout=60s&keep=on&access=server&output=9",
                format!("i?name={name}&timeout=60s&output=9&keep=on&access=server"),
            ),
            ("?id=21ab3af1-e107", "?id=21ab3af1-e107".to_owned()),
        ] {
            let mut settings = Settings::parse(uri).expect("valid");
            if let Origin::New(new) = &settings.origin {
                assert!(is_name(new), "{new}");
                settings.origin = Origin::New(name.to_owned());
            }
            assert_eq!(settings.uri(), format!("opensandbox:{again}"), "{uri}");
            let known = Settings::parse(&again).expect("it was just written");
            assert_eq!(known.uri(), format!("opensandbox:{again}"), "{uri}");
            assert!(!matches!(known.origin, Origin::New(_)), "what is recorded is not created again");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for uri in [
            "",
            "i?x=1",
            "i?workdir=/",
            "i?workdir=a",
            "i?workdir=/a/../b",
            "i?workdir=~",
            "i?timeout=59s",
            "i?timeout=9",
            "i?network=maybe",
            "i?network=on&host=a",
            "i?name=x",
            "?id=../x",
            "?id=a/b",
            "?name=0198f0c2d3e4475ab6c7d8e9f0a1b2c3",
        ] {
            let error = Settings::parse(uri).expect_err(uri);
            assert_eq!(error.kind(), ErrorKind::Config, "{uri}: {error}");
        }
        assert!(Settings::parse(&"i".repeat(MAX_URI_BYTES + 1)).is_err());
    }
}
