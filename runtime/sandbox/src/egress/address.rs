//! Classification of addresses and names as public or not.
//!
//! Based on the IANA special-purpose registries (<https://www.iana.org/assignments/iana-ipv4-special-registry>,
//! <https://www.iana.org/assignments/iana-ipv6-special-registry>,
//! <https://www.iana.org/assignments/special-use-domain-names>). IPv6 is allow-listed: only global unicast is public.
//! Forms with an embedded IPv4 address (mapped, translated, NAT64, 6to4, Teredo) are never public, whatever they embed:
//! no public server is reachable only by them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Reachability class of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The public internet.
    Public,
    /// This machine or a private network; requires a grant that says so.
    Private,
    /// A service that issues credentials to any local client; requires a grant for exactly this host, not a pattern.
    Metadata,
    /// Not a valid destination of a request.
    Nowhere,
}

/// Returns `true` for an address of the public internet, and `false` for one of a private network, of this machine, or
/// with a special purpose.
pub fn is_public_address(ip: IpAddr) -> bool {
    reach(ip) == Reach::Public
}

/// Classifies `ip`.
pub(crate) fn reach(ip: IpAddr) -> Reach {
    match ip {
        IpAddr::V4(ip) => reach_v4(ip),
        IpAddr::V6(ip) => reach_v6(ip),
    }
}

fn reach_v4(ip: Ipv4Addr) -> Reach {
    match ip.octets() {
        // Alibaba Cloud, Oracle Cloud and Azure; the others are link-local.
        [100, 100, 100, 200] | [192, 0, 0, 192] | [168, 63, 129, 16] | [169, 254, ..] => Reach::Metadata,
        // "This network", multicast, reserved, broadcast.
        [0, ..] | [224..=255, ..] => Reach::Nowhere,
        [10, ..]
        | [100, 64..=127, ..]
        | [127, ..]
        | [172, 16..=31, ..]
        | [192, 0, 0, _]
        | [192, 0, 2, _]
        | [192, 88, 99, _]
        | [192, 168, ..]
        | [198, 18..=19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => Reach::Private,
        _ => Reach::Public,
    }
}

fn reach_v6(ip: Ipv6Addr) -> Reach {
    let embedded = |a: u16, b: u16| {
        let [a, b] = [a.to_be_bytes(), b.to_be_bytes()];
        not_public(reach_v4(Ipv4Addr::new(a[0], a[1], b[0], b[1])))
    };
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] | [0xff00..=0xffff, ..] => Reach::Nowhere,
        [0, 0, 0, 0, 0, 0, 0, 1] => Reach::Private,
        // Mapped (RFC 4291), translated (RFC 2765), compatible, NAT64 (RFC 6052).
        [0, 0, 0, 0, 0, 0xffff, a, b]
        | [0, 0, 0, 0, 0xffff, 0, a, b]
        | [0, 0, 0, 0, 0, 0, a, b]
        | [0x64, 0xff9b, 0, 0, 0, 0, a, b] => embedded(a, b),
        // 6to4 (RFC 3056).
        [0x2002, a, b, ..] => embedded(a, b),
        // Amazon's metadata service; link-local.
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] | [0xfe80..=0xfebf, ..] => Reach::Metadata,
        // IETF protocol assignments (Teredo, benchmarking, ORCHID), documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Reach::Private,
        [0x2000..=0x3fff, ..] => Reach::Public,
        _ => Reach::Private,
    }
}

fn not_public(reach: Reach) -> Reach {
    match reach {
        Reach::Public => Reach::Private,
        other => other,
    }
}

/// Returns `true` for the name (lower case, without trailing dot) of a service that issues credentials to programs of a cloud.
pub(crate) fn is_metadata_name(name: &str) -> bool {
    const NAMES: [&str; 8] = [
        "instance-data",
        "instance-data.ec2.internal",
        "metadata",
        "metadata.azure.internal",
        "metadata.goog",
        "metadata.google.internal",
        "metadata.internal",
        "metadata.tencentyun.com",
    ];
    NAMES.contains(&name)
}

/// Returns `true` if a DNS name (lower case, without trailing dot) can belong to the public internet. Names of a single
/// label, names reserved for local use and names that container and cloud platforms use for their own services cannot.
pub(crate) fn is_public_name(name: &str) -> bool {
    const LOCAL: [&str; 22] = [
        "alt",
        "arpa",
        "cluster",
        "consul",
        "corp",
        "docker",
        "home",
        "internal",
        "intranet",
        "invalid",
        "k8s",
        "lan",
        "local",
        "localdomain",
        "localhost",
        "lxd",
        "mail",
        "onion",
        "private",
        "svc",
        "test",
        "workgroup",
    ];
    name.rsplit_once('.')
        .is_some_and(|(_, last)| !LOCAL.contains(&last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        for (ip, is_public) in [
            ("8.8.8.8", true),
            ("2606:4700::1111", true),
            ("10.0.0.1", false),
            ("127.0.0.1", false),
            ("169.254.169.254", false),
            ("0.0.0.0", false),
            ("fd00::1", false),
        ] {
            assert_eq!(is_public_address(ip.parse().unwrap()), is_public, "{ip}");
        }
    }

    #[test]
    fn special_ranges_end_where_the_registry_says() {
        for (first, last, expected) in [
            ("0.0.0.0", "0.255.255.255", Reach::Nowhere),
            ("10.0.0.0", "10.255.255.255", Reach::Private),
            ("100.64.0.0", "100.127.255.255", Reach::Private),
            ("127.0.0.0", "127.255.255.255", Reach::Private),
            ("169.254.0.0", "169.254.255.255", Reach::Metadata),
            ("172.16.0.0", "172.31.255.255", Reach::Private),
            ("192.0.0.0", "192.0.0.255", Reach::Private),
            ("192.0.2.0", "192.0.2.255", Reach::Private),
            ("192.88.99.0", "192.88.99.255", Reach::Private),
            ("192.168.0.0", "192.168.255.255", Reach::Private),
            ("198.18.0.0", "198.19.255.255", Reach::Private),
            ("198.51.100.0", "198.51.100.255", Reach::Private),
            ("203.0.113.0", "203.0.113.255", Reach::Private),
            ("224.0.0.0", "255.255.255.255", Reach::Nowhere),
        ] {
            let (first, last): (Ipv4Addr, Ipv4Addr) = (first.parse().unwrap(), last.parse().unwrap());
            assert_eq!(reach_v4(first), expected, "{first}");
            assert_eq!(reach_v4(last), expected, "{last}");
            if let Some(before) = u32::from(first).checked_sub(1) {
                assert_ne!(reach_v4(before.into()), expected, "before {first}");
            }
            if let Some(after) = u32::from(last).checked_add(1) {
                assert_ne!(reach_v4(after.into()), expected, "after {last}");
            }
        }
    }

    #[test]
    fn embedded_ipv4_address_does_not_make_an_ipv6_one_public() {
        for form in ["::ffff:{}", "::ffff:0:{}", "::{}", "64:ff9b::{}", "64:ff9b:1::{}"] {
            for inner in ["127.0.0.1", "169.254.169.254", "8.8.8.8"] {
                let ip: IpAddr = form.replace("{}", inner).parse().unwrap();
                assert_ne!(reach(ip), Reach::Public, "{ip}");
            }
        }
        for (ip, expected) in [
            ("::ffff:169.254.169.254", Reach::Metadata),
            ("::ffff:0.0.0.0", Reach::Nowhere),
            ("2002:a9fe:a9fe::1", Reach::Metadata),
            ("2002:808:808::1", Reach::Private),
            ("fd00:ec2::254", Reach::Metadata),
            ("fe80::1", Reach::Metadata),
            ("fd00::1", Reach::Private),
            ("2001:0:a00:1::1", Reach::Private),
            ("2001:1ff::1", Reach::Private),
            ("2001:200::1", Reach::Public),
            ("2606:4700:4700::1111", Reach::Public),
            ("4000::1", Reach::Private),
        ] {
            assert_eq!(reach(ip.parse().unwrap()), expected, "{ip}");
        }
    }

    #[test]
    fn names_of_metadata_services_are_known() {
        assert!(is_metadata_name("metadata.google.internal") && is_metadata_name("metadata"));
        assert!(!is_metadata_name("metadata.example.com") && !is_metadata_name("google.internal"));
    }

    #[test]
    fn names_for_local_use_are_not_public() {
        for name in [
            "localhost",
            "foo.localhost",
            "metadata.google.internal",
            "gateway.docker.internal",
            "kubernetes.default.svc",
            "x.svc.cluster.local",
            "printer.local",
            "1.0.0.127.in-addr.arpa",
            "router.home.arpa",
            "intranet",
        ] {
            assert!(!is_public_name(name), "{name}");
        }
        for name in [
            "example.com",
            "internal.example.com",
            "localhost.example",
            "svc.dev",
        ] {
            assert!(is_public_name(name), "{name}");
        }
    }

    #[test]
    fn multicast_and_unspecified_ipv6_lead_nowhere() {
        for ip in ["::", "ff02::1", "ff0e::1", "ff00::", "ffff::1"] {
            assert_eq!(reach(ip.parse().unwrap()), Reach::Nowhere, "{ip}");
        }
    }
}
