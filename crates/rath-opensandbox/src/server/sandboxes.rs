//! The interface of the server for sandboxes: creating, finding, renewing and removing them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rath_sandbox::{Error, ErrorKind, Result};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Server;
use crate::http::{Request, one_line};
use crate::settings::{Access, NetworkPolicy, Settings, is_id};
use crate::time::rfc3339;

/// The name under which a sandbox is known to rath, among its metadata on the server.
const NAME_LABEL: &str = "rath-name";
/// The port of the interface for commands and files in a sandbox.
const EXECD_PORT: u16 = 44_772;
/// The time in which a sandbox has to be created: an image may have to be fetched first.
const CREATE_TIMEOUT: Duration = Duration::from_secs(300);
/// The most sandboxes of one name that are looked at.
const MAX_LISTED: usize = 20;
/// The most bytes of the address of a sandbox.
const MAX_ENDPOINT_BYTES: usize = 2_048;

/// A sandbox, as the server describes it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SandboxInfo {
    pub(crate) id: String,
    pub(crate) status: Status,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
}

/// The state of a sandbox, as the server describes it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Status {
    state: String,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    message: Option<String>,
}

#[derive(Deserialize)]
struct List {
    items: Vec<SandboxInfo>,
}

#[derive(Deserialize)]
struct Endpoint {
    endpoint: String,
    #[serde(default)]
    headers: Option<BTreeMap<String, String>>,
}

/// The state of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Paused,
    /// On the way from one state to another.
    Changing,
    /// It will not run again.
    Ended,
}

/// The failure to create a sandbox.
#[derive(Debug)]
pub(crate) enum CreateFailure {
    /// No sandbox was created.
    Refused(Error),
    /// There may be a sandbox.
    Unknown(Error),
}

/// The address of the interface for commands and files in a sandbox, and the headers for it.
#[derive(Clone)]
pub(crate) struct Execd {
    pub(crate) base: Url,
    pub(crate) headers: HeaderMap,
}

impl Server {
    /// Creates a sandbox under a name.
    ///
    /// If the answer is lost, the sandbox is looked for by its name: none is created twice.
    pub(crate) async fn create(&self, name: &str, settings: &Settings) -> Result<SandboxInfo, CreateFailure> {
        let mut body = json!({
            "image": {"uri": settings.image},
            "timeout": settings.timeout.as_secs(),
            "entrypoint": ["tail", "-f", "/dev/null"],
            "resourceLimits": settings.limits,
            "metadata": {NAME_LABEL: name},
        });
        if !settings.entrypoint.is_empty() {
            body["entrypoint"] = json!(settings.entrypoint);
        }
        if settings.limits.is_empty() {
            body["resourceLimits"] = json!({"cpu": "1", "memory": "1Gi"});
        }
        if !settings.env.is_empty() {
            body["env"] = json!(settings.env);
        }
        if let NetworkPolicy::Only(hosts) = &settings.network {
            let rules: Vec<Value> = hosts.iter().map(|host| json!({"action": "allow", "target": host})).collect();
            body["networkPolicy"] = json!({"defaultAction": "deny", "egress": rules});
        }
        let request = self.request(Method::POST, &["sandboxes"]).map_err(CreateFailure::Refused)?;
        let mut request = request.json(&body);
        request.timeout = CREATE_TIMEOUT;
        let unknown = match self.clients.send(request).await {
            Ok(reply) if reply.is_success() => match reply.json().and_then(|created| self.checked(created)) {
                Ok(created) => return Ok(created),
                Err(unreadable) => unreadable,
            },
            Ok(reply) if reply.status < 500 => {
                return Err(CreateFailure::Refused(self.refused("a sandbox cannot be created", &reply)));
            }
            Ok(reply) => self.refused("a sandbox cannot be created", &reply),
            Err(no_reply) if no_reply.was_not_sent => return Err(CreateFailure::Refused(self.unreachable(&no_reply))),
            Err(no_reply) => self.unreachable(&no_reply),
        };
        self.find(name).await.ok().flatten().ok_or(CreateFailure::Unknown(unknown))
    }

    /// Returns the sandbox with a name, if there is one that has not ended.
    pub(crate) async fn find(&self, name: &str) -> Result<Option<SandboxInfo>> {
        Ok(self.list(name).await?.into_iter().next())
    }

    /// Removes all sandboxes with a name. None is no error.
    pub(crate) async fn remove(&self, name: &str) -> Result<()> {
        for found in self.list(name).await? {
            self.delete(&found.id).await?;
        }
        Ok(())
    }

    /// Returns the sandboxes with a name that have not ended.
    async fn list(&self, name: &str) -> Result<Vec<SandboxInfo>> {
        let url = {
            let mut url = self.url(&["sandboxes"])?;
            let filter = format!("{NAME_LABEL}={name}");
            url.query_pairs_mut().append_pair("metadata", &filter).append_pair("pageSize", &MAX_LISTED.to_string());
            url
        };
        let reply = self.read(|| Request::new(Method::GET, url.clone())).await?;
        if !reply.is_success() {
            return Err(self.refused("the sandboxes cannot be listed", &reply));
        }
        let has_name = |found: &SandboxInfo| {
            found.metadata.as_ref().is_some_and(|metadata| metadata.get(NAME_LABEL).is_some_and(|label| label == name))
        };
        let items = reply.json::<List>()?.items.into_iter();
        let found = items.filter(|found| has_name(found) && found.status.state() != State::Ended);
        found.map(|found| self.checked(found)).collect()
    }

    /// Returns the sandbox with an id, if there is one, and the time of the server's clock.
    pub(crate) async fn get(&self, id: &str) -> Result<Option<(SandboxInfo, SystemTime)>> {
        let url = self.url(&["sandboxes", id])?;
        let reply = self.read(|| Request::new(Method::GET, url.clone())).await?;
        match reply.is_missing() {
            true => Ok(None),
            false if reply.is_success() => {
                let now = reply.date.unwrap_or_else(SystemTime::now);
                Ok(Some((self.checked(reply.json()?)?, now)))
            }
            false => Err(self.refused("the state of the sandbox cannot be read", &reply)),
        }
    }

    /// Moves the end of a sandbox to so long from now, by the clock of the server. None if there is no such sandbox.
    pub(crate) async fn renew(&self, id: &str, timeout: Duration) -> Result<Option<()>> {
        let Some((_, now)) = self.get(id).await? else { return Ok(None) };
        let end = now.checked_add(timeout).and_then(|end| end.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        let request = self.request(Method::POST, &["sandboxes", id, "renew-expiration"])?;
        let reply = self.send(request.json(&json!({"expiresAt": rfc3339(end.as_secs())}))).await?;
        match reply.is_success() {
            true => Ok(Some(())),
            false => Err(self.refused("the time of the sandbox cannot be renewed", &reply)),
        }
    }

    /// Pauses or resumes a sandbox.
    pub(crate) async fn change(&self, id: &str, change: &str) -> Result<()> {
        let reply = self.send(self.request(Method::POST, &["sandboxes", id, change])?).await?;
        if reply.is_success() { Ok(()) } else { Err(self.refused(format_args!("cannot {change} the sandbox"), &reply)) }
    }

    /// Removes a sandbox. One that is gone already is no error.
    pub(crate) async fn delete(&self, id: &str) -> Result<()> {
        // A second removal changes nothing more.
        let url = self.url(&["sandboxes", id])?;
        let reply = self.read(|| Request::new(Method::DELETE, url.clone())).await?;
        match reply.is_success() || reply.is_missing() {
            true => Ok(()),
            false => Err(self.refused("the sandbox cannot be removed", &reply)),
        }
    }

    /// Returns the interface for commands and files in a sandbox.
    pub(crate) async fn execd(&self, id: &str, access: Access) -> Result<Execd> {
        let mut url = self.url(&["sandboxes", id, "endpoints", &EXECD_PORT.to_string()])?;
        if access == Access::ThroughServer {
            url.query_pairs_mut().append_pair("use_server_proxy", "true");
        }
        let reply = self.read(|| Request::new(Method::GET, url.clone())).await?;
        if !reply.is_success() {
            return Err(self.refused("the sandbox has no address for commands and files", &reply));
        }
        let Endpoint { endpoint, headers: named } = reply.json()?;
        let unusable = || {
            let message = format!("the server names `{}` as the address of the sandbox", one_line(&endpoint));
            Error::new(ErrorKind::Io, message)
        };
        if endpoint.len() > MAX_ENDPOINT_BYTES {
            return Err(unusable());
        }
        // The address comes without a scheme.
        let base = Url::parse(&format!("{}://{endpoint}", self.base.scheme())).map_err(|_| unusable())?;
        let is_plain = base.username().is_empty() && base.password().is_none() && base.query().is_none();
        if !is_plain || base.fragment().is_some() || !base.has_host() {
            return Err(unusable());
        }
        let mut headers = HeaderMap::new();
        for (name, value) in named.unwrap_or_default() {
            let name = HeaderName::try_from(name).map_err(|_| unusable())?;
            let mut value = HeaderValue::try_from(value).map_err(|_| unusable())?;
            value.set_sensitive(true);
            // Those that decide where a request goes and how it is read are not the server's to choose.
            let is_of_protocol = ["host", "connection", "upgrade", "te", "expect"].contains(&name.as_str())
                || ["content-", "transfer-", "proxy-"].iter().any(|prefix| name.as_str().starts_with(prefix));
            if is_of_protocol {
                return Err(unusable());
            }
            headers.insert(name, value);
        }
        // The key goes to the server alone: what runs in a sandbox could read it.
        let is_server = base.host_str() == self.base.host_str()
            && base.port_or_known_default() == self.base.port_or_known_default();
        if access == Access::ThroughServer && is_server {
            self.add_key(&mut headers)?;
        }
        Ok(Execd { base, headers })
    }

    /// Returns a description whose id can be a part of a path.
    fn checked(&self, described: SandboxInfo) -> Result<SandboxInfo> {
        if is_id(&described.id) {
            return Ok(described);
        }
        let message = format!("the server names `{}` as the id of a sandbox", one_line(&described.id));
        Err(Error::new(ErrorKind::Io, message))
    }
}

impl Status {
    pub(crate) fn state(&self) -> State {
        match self.state.as_str() {
            "Running" => State::Running,
            "Paused" => State::Paused,
            "Terminated" | "Failed" | "Stopping" => State::Ended,
            _ => State::Changing,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&self.state))?;
        let more = [&self.reason, &self.message].into_iter().flatten();
        more.filter(|text| !text.is_empty()).try_for_each(|text| write!(f, ", {}", one_line(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{KEY_HEADER, OpenSandboxServer};
    use super::*;
    use crate::settings::{Origin, new_name};

    /// The images of the interface for commands are in no registry of packages, so on a real server only sandboxes are tried.
    #[tokio::test]
    #[ignore = "needs a running opensandbox-server: OPEN_SANDBOX_DOMAIN, OPEN_SANDBOX_API_KEY, and an image in RATH_OPENSANDBOX_IMAGE"]
    async fn sandboxes_of_a_real_server_are_made_found_and_removed() {
        let image = std::env::var("RATH_OPENSANDBOX_IMAGE").expect("an image");
        let server = OpenSandboxServer::from_env().open().expect("a server");
        let name = new_name();
        let mut settings = Settings::new(image, Origin::New(name.clone()));
        settings.env.insert("A".to_owned(), "1".to_owned());
        assert!(server.find(&name).await.expect("listed").is_none());
        let made = server.create(&name, &settings).await.expect("created");
        let found = server.find(&name).await.expect("listed").expect("it is there");
        assert_eq!(found.id, made.id);
        let state = async || server.get(&made.id).await.expect("read").map(|(described, _)| described.status.state());
        let wait_for = async |wanted| {
            for _ in 0..100 {
                if state().await == Some(wanted) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            panic!("it is not {wanted:?}: {:?}", state().await);
        };
        wait_for(State::Running).await;
        server.renew(&made.id, Duration::from_secs(600)).await.expect("renewed").expect("it is there");
        server.change(&made.id, "pause").await.expect("paused");
        wait_for(State::Paused).await;
        server.change(&made.id, "resume").await.expect("resumed");
        wait_for(State::Running).await;
        for access in [Access::Direct, Access::ThroughServer] {
            let execd = server.execd(&made.id, access).await.expect("an address");
            assert_eq!(execd.headers.contains_key(KEY_HEADER), access == Access::ThroughServer, "{}", execd.base);
        }
        server.delete(&made.id).await.expect("removed");
        assert!(server.get(&made.id).await.expect("read").is_none());
        assert!(server.find(&name).await.expect("listed").is_none());
        server.delete(&made.id).await.expect("a second removal is no error");
    }
}
