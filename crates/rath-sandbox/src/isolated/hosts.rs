//! The hosts that commands may reach.

use std::net::{IpAddr, UdpSocket};

use crate::error::{Error, ErrorKind, Result};

/// A list of hosts, each with its ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllowedHosts(Vec<HostPattern>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct HostPattern {
    /// A name or an address; `*.example.com` stands for every name below `example.com`.
    host: String,
    /// None stands for the ports of HTTP and HTTPS.
    port: Option<u16>,
}

/// The addresses that may stand behind a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// The host was named as an address, or is `localhost`: any address.
    Any,
    /// The host was named in full: the internet and private networks, and not this machine.
    Network,
    /// The host fits a `*`: the internet.
    Internet,
}

const DEFAULT_PORTS: [u16; 2] = [443, 80];

impl AllowedHosts {
    /// Adds hosts such as `example.com`, `*.example.com` and `localhost:8080`.
    pub(crate) fn add(&mut self, host: &str) -> Result<()> {
        let pattern = HostPattern::parse(host).ok_or_else(|| {
            let wanted = "wanted a host such as `example.com`, `*.example.com` or `localhost:8080`";
            Error::new(ErrorKind::Config, format_args!("{wanted}, found `{host}`"))
        })?;
        if !self.0.contains(&pattern) {
            self.0.push(pattern);
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the hosts as they are written.
    pub(crate) fn names(&self) -> Vec<String> {
        let name = |pattern: &HostPattern| match pattern.port {
            Some(port) if pattern.host.contains(':') => format!("[{}]:{port}", pattern.host),
            Some(port) => format!("{}:{port}", pattern.host),
            None => pattern.host.clone(),
        };
        self.0.iter().map(name).collect()
    }

    /// Returns the addresses that a connection to a host may lead to; none if it is not allowed.
    pub(super) fn reach(&self, host: &str, port: u16) -> Option<Reach> {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let fitting = self.0.iter().filter(|pattern| pattern.fits(&host, port));
        let reach = fitting.map(|pattern| match pattern.host.starts_with('*') {
            true => Reach::Internet,
            false if host == "localhost" || host.parse::<IpAddr>().is_ok() => Reach::Any,
            false => Reach::Network,
        });
        reach.min_by_key(|reach| *reach as u8)
    }
}

impl HostPattern {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_end_matches('.').to_ascii_lowercase();
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            // Only an address stands in brackets, and nothing but a port behind them.
            Some((address, _)) if address.parse::<std::net::Ipv6Addr>().is_err() => return None,
            Some((address, "")) => (address, None),
            Some((address, port)) => (address, Some(port.strip_prefix(':')?)),
            None if text.parse::<IpAddr>().is_ok() => (text.as_str(), None),
            None => text.rsplit_once(':').map_or((text.as_str(), None), |(host, port)| (host, Some(port))),
        };
        let port =
            port.map(|port| port.parse().ok().filter(|port| *port != 0)).map_or(Some(None), |it| it.map(Some))?;
        let name = host.strip_prefix("*.").unwrap_or(host);
        let is_label = |label: &str| {
            !label.is_empty() && label.chars().all(|it| it.is_ascii_alphanumeric() || it == '-' || it == '_')
        };
        // A single word is more likely a mistake (`network=yes`) than a host, unless a port says so.
        let is_name = name.contains('.') || host == "localhost" || port.is_some();
        // `127.1` and `2130706433` are addresses to a resolver.
        let is_number = name.rsplit('.').next().is_some_and(|last| last.starts_with(|it: char| it.is_ascii_digit()));
        let is_name = is_name && !is_number;
        let is_valid = host.parse::<IpAddr>().is_ok() || (name.len() < 254 && name.split('.').all(is_label) && is_name);
        is_valid.then(|| HostPattern { host: host.to_owned(), port })
    }

    fn fits(&self, host: &str, port: u16) -> bool {
        let fits_port = self.port.map_or(DEFAULT_PORTS.contains(&port), |wanted| wanted == port);
        let same_address =
            || self.host.parse::<IpAddr>().ok().zip(host.parse::<IpAddr>().ok()).is_some_and(|(a, b)| a == b);
        let below = |end: &str| host.ends_with(end) && host.parse::<IpAddr>().is_err();
        let fits_host = self.host == host || same_address() || self.host.strip_prefix('*').is_some_and(below);
        fits_port && fits_host
    }
}

impl Reach {
    /// Returns true if a host may stand for this address now: the addresses of this machine change.
    pub(super) fn includes(self, address: IpAddr) -> bool {
        match (self, network_of(address)) {
            (Reach::Any, _) => true,
            (_, AddressKind::Local) | (Reach::Internet, AddressKind::Private) => false,
            (Reach::Network | Reach::Internet, _) => !is_own(address),
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum AddressKind {
    Internet,
    Private,
    /// This machine, its neighbours on one cable, and services of a cloud for it; or no address of a host.
    Local,
}

/// Returns true if an address is one of this machine, on any of its interfaces: only then can a socket be bound to it.
///
/// The kernel says more than a list of interfaces, which lacks local routes. Where it lets sockets be bound to any address
/// (`ip_nonlocal_bind`), every address counts as one of this machine.
fn is_own(address: IpAddr) -> bool {
    // No other program is in the way of a port that the kernel chooses.
    UdpSocket::bind((address.to_canonical(), 0)).is_ok()
}

fn network_of(address: IpAddr) -> AddressKind {
    let address = match address {
        IpAddr::V4(address) => address,
        IpAddr::V6(address) => {
            let segments = address.segments();
            // Addresses that stand for one of version 4: mapped, by NAT64, by 6to4.
            let embedded = match segments {
                [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some((high, low)),
                [0x2002, high, low, ..] => Some((high, low)),
                _ => None,
            };
            match embedded {
                Some((high, low)) => ((u32::from(high) << 16) | u32::from(low)).into(),
                None if segments[0] & 0xfe00 == 0xfc00 => return AddressKind::Private,
                None if segments[0] & 0xe000 == 0x2000 => return AddressKind::Internet,
                None => return AddressKind::Local,
            }
        }
    };
    match address.octets() {
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => AddressKind::Private,
        [0 | 127 | 224..=255, ..] | [169, 254, ..] | [192, 0, 0, _] | [198, 18 | 19, ..] => AddressKind::Local,
        _ => AddressKind::Internet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(list: &str) -> AllowedHosts {
        let mut hosts = AllowedHosts::default();
        list.split(' ').for_each(|host| hosts.add(host).expect(host));
        hosts
    }

    #[test]
    fn a_host_is_reached_only_if_it_was_named() {
        let allowed = hosts("example.com *.example.org localhost:8080 127.0.0.1:9 [::1]:9 api.test:8443");
        for (host, port, expected) in [
            ("example.com", 443, Some(Reach::Network)),
            ("EXAMPLE.com.", 80, Some(Reach::Network)),
            ("example.com", 22, None),
            ("www.example.com", 443, None),
            ("badexample.com", 443, None),
            ("example.com.evil.test", 443, None),
            ("a.example.org", 443, Some(Reach::Internet)),
            ("a.b.example.org", 443, Some(Reach::Internet)),
            ("example.org", 443, None),
            ("localhost", 8080, Some(Reach::Any)),
            ("localhost", 443, None),
            ("127.0.0.1", 9, Some(Reach::Any)),
            ("::1", 9, Some(Reach::Any)),
            ("0:0:0:0:0:0:0:1", 9, Some(Reach::Any)),
            ("127.0.0.1", 8080, None),
            ("api.test", 8443, Some(Reach::Network)),
            ("api.test", 443, None),
        ] {
            assert_eq!(allowed.reach(host, port), expected, "{host}:{port}");
        }
        for wrong in [
            "",
            "a b",
            "http://a",
            "a/b",
            "*",
            "a:0",
            "a:x",
            "a:99999",
            "*.*.a",
            "a..b",
            ":80",
            "[::1",
            "yes",
            "[127.0.0.1].example.com",
            "[a.com]",
            "[::1]x",
            "[::1].a.com",
            "[127.0.0.1]",
            "3221225986:80",
            "127.1:80",
            "0x7f.1",
        ] {
            assert!(AllowedHosts::default().add(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            allowed.names().join(" "),
            "example.com *.example.org localhost:8080 127.0.0.1:9 [::1]:9 api.test:8443"
        );
    }

    #[test]
    fn a_name_does_not_lead_to_this_machine() {
        for (address, network, internet) in [
            ("1.1.1.1", true, true),
            ("2606:4700::1", true, true),
            ("10.1.2.3", true, false),
            ("192.168.0.1", true, false),
            ("172.20.0.1", true, false),
            ("100.64.0.1", true, false),
            ("fd00::1", true, false),
            ("::ffff:10.0.0.1", true, false),
            ("127.0.0.1", false, false),
            ("0.0.0.0", false, false),
            ("169.254.169.254", false, false),
            ("::1", false, false),
            ("::", false, false),
            ("fe80::1", false, false),
            ("::ffff:127.0.0.1", false, false),
            ("64:ff9b::7f00:1", false, false),
            ("2002:7f00:1::", false, false),
            ("224.0.0.1", false, false),
            ("255.255.255.255", false, false),
        ] {
            let address: IpAddr = address.parse().expect("an address");
            assert!(Reach::Any.includes(address));
            assert_eq!(Reach::Network.includes(address), network, "{address}");
            assert_eq!(Reach::Internet.includes(address), internet, "{address}");
        }
        // The address that this machine sends from. Nothing is sent.
        for (from, to) in
            [("0.0.0.0:0", "198.51.100.1:9"), ("[::]:0", "[2001:db8::1]:9"), ("127.0.0.1:0", "127.0.0.1:9")]
        {
            let socket = std::net::UdpSocket::bind(from).and_then(|socket| socket.connect(to).map(|()| socket));
            let Ok(own) = socket.and_then(|socket| socket.local_addr()) else { continue };
            let own = own.ip();
            assert!(Reach::Any.includes(own));
            assert!(!Reach::Network.includes(own) && !Reach::Internet.includes(own), "{own}");
            if let IpAddr::V4(own) = own {
                assert!(!Reach::Network.includes(own.to_ipv6_mapped().into()), "{own}");
            }
        }
    }
}
