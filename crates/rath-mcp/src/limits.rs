//! The limits for servers.

use std::time::Duration;

/// The limits for servers: everything that comes from one is bounded.
///
/// ```
/// use std::time::Duration;
///
/// use rath_mcp::Limits;
///
/// let limits = Limits { call: Duration::from_secs(600), ..Limits::default() };
/// assert_eq!(limits.start, Duration::from_secs(60));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The time from the start of a server until both sides have agreed on a version of the protocol.
    pub start: Duration,
    /// The time for a call of a tool.
    pub call: Duration,
    /// The time for any other request, such as a list of tools.
    pub request: Duration,
    /// The bytes of one message of a server. A server that sends more is ended. A message of more than 262,144 values is an error, however
    /// few bytes it has.
    pub message_bytes: usize,
    /// The tools, resources or prompts that one server may list. Further ones are left out.
    pub list_items: usize,
    /// The starts of a server within ten minutes. One that has ended or failed as often is left alone until they are over.
    pub starts: usize,
}

impl Default for Limits {
    /// Returns a minute to start, two minutes for a call, half a minute for other requests, 16 MiB, 256 items and 5 starts.
    fn default() -> Self {
        let [start, call, request] = [60, 120, 30].map(Duration::from_secs);
        Limits { start, call, request, message_bytes: 16 << 20, list_items: 256, starts: 5 }
    }
}
