//! Where a URL may lead that a server names, as opposed to one that the operator has configured.
//!
//! Not for: names and dialling (`dial`), which asks about every address a name has, and about the peer once more when it is
//! connected. Invariant: what is not known to be of the public network is not of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Which addresses may be dialled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Every one: the URL is the operator's choice.
    #[default]
    Any,
    /// Those of the public network.
    Public,
}

impl Reach {
    /// Says whether an address may be dialled.
    #[must_use]
    pub fn takes(self, address: IpAddr) -> bool {
        match (self, address) {
            (Self::Any, _) => true,
            (Self::Public, IpAddr::V4(address)) => is_public_v4(address),
            (Self::Public, IpAddr::V6(address)) => is_public_v6(address),
        }
    }
}

/// The blocks of IPv4 that are not of the public network, with the length of their prefix (IANA's special-purpose registry).
const SPECIAL_V4: [([u8; 4], u32); 15] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    // Link-local; clouds tell secrets there.
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    // Multicast, reserved and broadcast.
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];

/// The blocks of 2000::/3 that are not of the public network.
const SPECIAL_V6: [([u16; 2], u32); 4] = [
    // Teredo, ORCHID, benchmarks and the other protocol assignments.
    ([0x2001, 0x0000], 23),
    ([0x2001, 0x0db8], 32),
    // 6to4 carries an IPv4 address through whoever relays it.
    ([0x2002, 0x0000], 16),
    ([0x3fff, 0x0000], 20),
];

fn is_public_v4(address: Ipv4Addr) -> bool {
    let bits = address.to_bits();
    let within = |(block, length): &([u8; 4], u32)| (bits ^ u32::from_be_bytes(*block)) >> (32 - length) == 0;
    !SPECIAL_V4.iter().any(within)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(inner) = carried(address) {
        return is_public_v4(inner);
    }
    let [first, second, ..] = address.segments();
    let head = u32::from(first) << 16 | u32::from(second);
    let within = |(block, length): &([u16; 2], u32)| {
        let [high, low] = *block;
        (head ^ (u32::from(high) << 16 | u32::from(low))) >> (32 - length) == 0
    };
    // 2000::/3 is all that is given out; loopback, private, link-local and multicast addresses lie outside of it.
    first & 0xe000 == 0x2000 && !SPECIAL_V6.iter().any(within)
}

/// Returns the IPv4 address that an IPv6 address stands for: mapped, or behind the well-known prefix of NAT64.
fn carried(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let inner = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => inner(high, low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::Reach;

    const PRIVATE: &str = "\
        0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.127.255.255 127.0.0.1 127.255.255.254 169.254.169.254 \
        172.16.0.1 172.31.255.255 192.0.0.8 192.0.2.1 192.168.1.1 198.18.0.1 198.19.255.255 198.51.100.1 \
        203.0.113.1 224.0.0.1 239.255.255.255 255.255.255.255 :: ::1 ::127.0.0.1 ::ffff:127.0.0.1 \
        ::ffff:169.254.169.254 ::ffff:10.1.2.3 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::808:808 100::1 \
        2001::1 2001:0:5ef5:79fb::1 2001:db8::1 2002:7f00:1::1 3fff::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 \
        fec0::1 ff02::1";
    const PUBLIC: &str = "\
        1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 128.0.0.1 169.253.255.255 \
        169.255.0.1 172.15.255.255 172.32.0.1 192.0.1.1 192.167.255.255 198.17.255.255 198.20.0.1 \
        223.255.255.255 ::ffff:8.8.8.8 64:ff9b::808:808 2001:4860:4860::8888 2606:4700:4700::1111 \
        2a00:1450::1 2003::1 3ffe::1";

    /// [TRN-6]: addresses by their literals.
    #[test]
    fn public_addresses_are_told_from_others() {
        for text in PRIVATE.split_whitespace() {
            let address: IpAddr = text.parse().unwrap();
            assert!(!Reach::Public.takes(address), "{text}");
            assert!(Reach::Any.takes(address), "{text}");
        }
        for text in PUBLIC.split_whitespace() {
            assert!(Reach::Public.takes(text.parse().unwrap()), "{text}");
        }
    }
}
