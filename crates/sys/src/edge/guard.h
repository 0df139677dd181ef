// The check of a guest's frames: it sends nothing in another's name. Decisions are those of
// crates/switch/src/filter.rs, which has the reasons and the RFCs; a test compares both.
//
// Functions return 0 for a frame that passes, or a reason and 1.

enum { ETHERNET = 14, IPV4 = 20, IPV6 = 40, UDP_HEADER = 8 };
enum { ICMP = 1, IGMP = 2, TCP = 6, UDP = 17, FRAGMENT = 44, AUTHENTICATION = 51, ICMPV6 = 58 };
enum { OSPF_PROTOCOL = 89, VRRP_PROTOCOL = 112 };
enum {
	ETH_P_IP = 0x0800,
	ETH_P_ARP = 0x0806,
	ETH_P_RARP = 0x8035,
	ETH_P_8021Q = 0x8100,
	ETH_P_IPV6 = 0x86dd,
	ETH_P_8021AD = 0x88a8,
};
// Bits of `roles`, as in rules.rs.
enum {
	MAY_DHCP_SERVER = 1,
	MAY_STATIONS = 1 << 1,
	MAY_GROUP_QUERIES = 1 << 2,
	MAY_VRRP = 1 << 3,
	MAY_HSRP = 1 << 4,
	MAY_OSPF = 1 << 5,
	MAY_REDIRECTS = 1 << 6,
	MAY_SOURCE_ROUTES = 1 << 7,
	MAY_TINY_FRAGMENTS = 1 << 8,
};
enum {
	LISTENER_QUERY = 130,
	ROUTER_SOLICITATION = 133,
	ROUTER_ADVERTISEMENT = 134,
	NEIGHBOUR_SOLICITATION = 135,
	NEIGHBOUR_ADVERTISEMENT = 136,
	REDIRECTION = 137,
};
// Longer chains of headers and of options are refused.
enum { EXTENSIONS = 9, OPTIONS = 32 };

struct ethernet {
	u8 to[6];
	u8 from[6];
	u16 type;
} __attribute__((packed));
struct ipv4_header {
	u8 version;
	u8 tos;
	u16 length;
	u16 id;
	u16 offset;
	u8 ttl;
	u8 protocol;
	u16 checksum;
	u32 source;
	u32 target;
};
struct ipv6_header {
	u16 version;
	u16 flow;
	u16 length;
	u8 next;
	u8 hops;
	struct ipv6 source;
	struct ipv6 target;
} __attribute__((packed, aligned(4)));
struct arp {
	u16 hardware;
	u16 protocol;
	u16 lengths;
	u16 operation;
	u8 sender[6];
	u8 sender_ip[4];
	u8 target[6];
	u8 target_ip[4];
};

INLINE int same_mac(const u8 *one, const u8 *other)
{
	const u16 *a = (const void *)one, *b = (const void *)other;

	return !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]));
}
INLINE u64 number_of(const u8 *station)
{
	const u16 *parts = (const void *)station;

	return (u64)parts[0] | (u64)parts[1] << 16 | (u64)parts[2] << 32;
}

INLINE int unless(const struct rules *rules, u32 role, u32 reason)
{
	return rules->roles & role ? 0 : (int)reason + 1;
}

APART int check_arp(const struct __sk_buff *skb, const struct rules *rules)
{
	struct arp arp;
	u32 ip;

	if (load_bytes(skb, ETHERNET, &arp, sizeof(arp)))
		return MALFORMED + 1;
	if (arp.hardware != be16(1) || arp.protocol != be16(ETH_P_IP) || arp.lengths != be16(0x0604))
		return MALFORMED + 1;
	__builtin_memcpy(&ip, arp.sender_ip, sizeof(ip));
	if (!same_mac(arp.sender, rules->mac) || (ip && !owns4(rules, ip)))
		return SPOOFED_ARP + 1;
	return 0;
}

// Reverse ARP by which a monitor announces a guest that has moved.
APART int check_announcement(const struct __sk_buff *skb, const struct rules *rules)
{
	struct arp arp;
	u32 sender, target;

	if (load_bytes(skb, ETHERNET, &arp, sizeof(arp)))
		return ETHER_TYPE + 1;
	__builtin_memcpy(&sender, arp.sender_ip, sizeof(sender));
	__builtin_memcpy(&target, arp.target_ip, sizeof(target));
	if (arp.hardware != be16(1) || arp.protocol != be16(ETH_P_IP) ||
	    arp.lengths != be16(0x0604) || arp.operation != be16(3) || sender || target ||
	    !same_mac(arp.sender, rules->mac) || !same_mac(arp.target, rules->mac))
		return ETHER_TYPE + 1;
	return 0;
}

// A datagram of UDP with `len` bytes, to a port of DHCP clients or of HSRP's routers.
INLINE int check_udp(const struct __sk_buff *skb, const struct rules *rules, u32 at, u32 len,
		     u16 client, u16 hsrp)
{
	u16 ports[2];

	if (len < sizeof(ports) || load_bytes(skb, at, ports, sizeof(ports)))
		return 0;
	if (ports[1] == be16(client))
		return unless(rules, MAY_DHCP_SERVER, DHCP_SERVER);
	if (ports[1] == be16(hsrp))
		return unless(rules, MAY_HSRP, HSRP);
	return 0;
}
INLINE int check_protocol(const struct rules *rules, u8 protocol)
{
	if (protocol == OSPF_PROTOCOL)
		return unless(rules, MAY_OSPF, OSPF);
	if (protocol == VRRP_PROTOCOL)
		return unless(rules, MAY_VRRP, VRRP);
	return 0;
}

// What is behind a header of IPv4: `len` bytes at `at`.
INLINE int check_upper4(const struct __sk_buff *skb, const struct rules *rules, u8 protocol, u32 at,
			u32 len)
{
	u8 first;

	if (protocol == UDP)
		return check_udp(skb, rules, at, len, 68, 1985);
	if ((protocol == ICMP || protocol == IGMP) && len && !load_bytes(skb, at, &first, 1)) {
		if (protocol == ICMP && first == 5)
			return unless(rules, MAY_REDIRECTS, REDIRECT);
		if (protocol == IGMP && first == 0x11)
			return unless(rules, MAY_GROUP_QUERIES, GROUP_QUERY);
	}
	return check_protocol(rules, protocol);
}

// Whether a packet without a source comes from a DHCP client.
INLINE int is_dhcp_request(const struct __sk_buff *skb, const struct ipv4_header *ip, u32 at, u32 len)
{
	u16 udp[4];

	if (ip->protocol != UDP || ip->offset & be16(0x3fff) || len < sizeof(udp) ||
	    load_bytes(skb, at, udp, sizeof(udp)))
		return 0;
	u32 claimed = be16(udp[2]);

	return claimed >= sizeof(udp) && claimed <= len && udp[0] == be16(68) && udp[1] == be16(67);
}

// Looks for a source route among the options behind a header of IPv4.
ONCE int has_source_route(const struct __sk_buff *skb, u32 len)
{
	u32 at = 0;

	LOOP
	for (u32 i = 0; i < 40; i++) {
		u8 head[2] = {};

		if (at >= len || load_bytes(skb, ETHERNET + IPV4 + at, head, 1))
			return 0;
		if (head[0] == 131 || head[0] == 137)
			return 1;
		if (head[0] == 0)
			return 0;
		if (head[0] == 1) {
			at++;
			continue;
		}
		if (at + 2 > len || load_bytes(skb, ETHERNET + IPV4 + at, head, 2) || head[1] < 2)
			return 0;
		at += head[1];
	}
	return 0;
}

APART int check4(const struct __sk_buff *skb, const struct rules *rules)
{
	struct ipv4_header ip;

	if (load_bytes(skb, ETHERNET, &ip, sizeof(ip)))
		return MALFORMED + 1;
	u32 header = (ip.version & 15) * 4, total = be16(ip.length), behind = skb->len - ETHERNET;

	// A length of 0 is that of a packet beyond 64 KiB, as the kernel has them.
	if (!total && skb->gso_size)
		total = behind;
	if (ip.version >> 4 != 4 || header < IPV4 || header > total || total > behind)
		return MALFORMED + 1;
	u32 at = ETHERNET + header, len = total - header;

	if (!ip.source) {
		if (!is_dhcp_request(skb, &ip, at, len))
			return SPOOFED_IP + 1;
	} else if (!owns4(rules, ip.source)) {
		return SPOOFED_IP + 1;
	}
	if (header > IPV4 && !(rules->roles & MAY_SOURCE_ROUTES) &&
	    has_source_route(skb, header - IPV4))
		return SOURCE_ROUTE + 1;
	u32 fragment = be16(ip.offset) & 0x3fff, offset = fragment & 0x1fff;

	if (fragment) {
		if (ip.protocol == TCP && ((!offset && len < 16) || offset == 1))
			return unless(rules, MAY_TINY_FRAGMENTS, TINY_FRAGMENT);
		if (ip.protocol == UDP && !offset && len < UDP_HEADER)
			return HIDDEN_HEADERS + 1;
		if (offset)
			return 0;
	}
	return ip.protocol == TCP ? 0 : check_upper4(skb, rules, ip.protocol, at, len);
}

// The rest of a packet of IPv6: its next protocol, where it is, and its bytes.
struct rest {
	u32 protocol;
	u32 at;
	u32 len;
};

INLINE int is_extension(u32 protocol)
{
	return protocol == 0 || protocol == 43 || protocol == 60 || protocol == 135 ||
	       protocol == 139 || protocol == 140;
}

// A `rest` as one number, which is not 0, and back.
INLINE u64 packed(const struct rest *rest)
{
	return (rest->protocol & 0xff) | (u64)(rest->at & 0xffffff) << 8 | (u64)rest->len << 32;
}

INLINE struct rest unpacked(u64 from)
{
	struct rest rest = { .protocol = from & 0xff, .at = from >> 8 & 0xffffff, .len = from >> 32 };

	return rest;
}

// Passes extension headers, up to one of a fragment. Returns 0 for more than are known.
ONCE u64 behind_extensions(const struct __sk_buff *skb, u64 from)
{
	struct rest rest = unpacked(from);

	LOOP
	for (u32 i = 0; i < EXTENSIONS; i++) {
		u32 unit = is_extension(rest.protocol) ? 8 : 4;
		u8 head[2];

		if (unit == 4 && rest.protocol != AUTHENTICATION)
			return packed(&rest);
		if (rest.len < sizeof(head) || load_bytes(skb, rest.at, head, sizeof(head)))
			return 0;
		u32 size = head[1] * unit + 8;

		if (size > rest.len)
			return 0;
		rest.protocol = head[0];
		rest.at += size;
		rest.len -= size;
	}
	return 0;
}

INLINE int pass_extensions(const struct __sk_buff *skb, struct rest *rest)
{
	u64 behind = behind_extensions(skb, packed(rest));

	*rest = unpacked(behind);
	return behind != 0;
}

// Whether all options of neighbour discovery that name a station name the guest's.
ONCE int names_itself(const struct __sk_buff *skb, u64 mac, u32 at, u32 len)
{
	LOOP
	for (u32 i = 0; i < OPTIONS; i++) {
		u8 head[2], found[6] __attribute__((aligned(2)));

		if (len < sizeof(head))
			return 1;
		if (load_bytes(skb, at, head, sizeof(head)))
			return 0;
		u32 size = head[1] * 8;

		if (!size || size > len)
			return 0;
		if ((head[0] == 1 || head[0] == 2) &&
		    (load_bytes(skb, at + 2, found, sizeof(found)) || number_of(found) != mac))
			return 0;
		at += size;
		len -= size;
	}
	return 0;
}

// A message of ICMPv6 behind all headers.
APART int check_discovery(const struct __sk_buff *skb, const struct rules *rules,
			  const struct rest *rest, u32 from_nobody)
{
	u32 ifindex = skb->ifindex, at = rest->at, len = rest->len, options = 24;
	struct ipv6 target = {};
	u8 kind;

	if (!len || load_bytes(skb, at, &kind, 1))
		return 0;
	if (kind == ROUTER_ADVERTISEMENT)
		return ROUTER_CLAIM + 1;
	if (kind == REDIRECTION)
		return unless(rules, MAY_REDIRECTS, REDIRECT);
	if (kind == LISTENER_QUERY)
		return unless(rules, MAY_GROUP_QUERIES, GROUP_QUERY);
	if (kind == ROUTER_SOLICITATION)
		options = 8;
	else if (kind != NEIGHBOUR_SOLICITATION && kind != NEIGHBOUR_ADVERTISEMENT)
		return 0;
	int is_advertisement = kind == NEIGHBOUR_ADVERTISEMENT;
	int is_probe = kind == NEIGHBOUR_SOLICITATION && from_nobody;

	if (is_advertisement || is_probe) {
		if (len < 24 || load_bytes(skb, at + 8, &target, sizeof(target)))
			return 0;
	}
	if (is_probe) {
		if (owns6(rules, &target) || is_open(rules, &target))
			return has6(rules, ifindex, &target, SPOOFED_NEIGHBOUR);
		u32 other = holder(&target);

		return other && other != ifindex ? SPOOFED_NEIGHBOUR + 1 : 0;
	}
	u32 reason = is_advertisement ? SPOOFED_NEIGHBOUR : SPOOFED_SOLICITATION;

	if (!(rules->roles & MAY_STATIONS) && len > options &&
	    !names_itself(skb, number_of(rules->mac), at + options, len - options))
		return reason + 1;
	return is_advertisement ? has6(rules, ifindex, &target, SPOOFED_NEIGHBOUR) : 0;
}

APART int check_fragment6(const struct __sk_buff *skb, const struct rules *rules, struct rest *rest)
{
	u8 header[8], kind;
	u16 offset;

	if (rest->len < sizeof(header) || load_bytes(skb, rest->at, header, sizeof(header)))
		return HIDDEN_HEADERS + 1;
	offset = (u16)header[2] << 8 | header[3];
	if (is_extension(header[0]) || header[0] == FRAGMENT)
		return HIDDEN_HEADERS + 1;
	if (offset >> 3)
		return 0;
	rest->protocol = header[0];
	rest->at += sizeof(header);
	rest->len -= sizeof(header);
	if (!pass_extensions(skb, rest))
		return HIDDEN_HEADERS + 1;
	u32 protocol = rest->protocol, at = rest->at, len = rest->len;

	if (protocol == FRAGMENT)
		return HIDDEN_HEADERS + 1;
	if (protocol == TCP) {
		u8 size;

		if (len < 20 || load_bytes(skb, at + 12, &size, 1))
			return HIDDEN_HEADERS + 1;
		return size >> 4 < 5 || (size >> 4) * 4U > len ? HIDDEN_HEADERS + 1 : 0;
	}
	if (protocol == UDP) {
		if (len < UDP_HEADER)
			return HIDDEN_HEADERS + 1;
		return check_udp(skb, rules, at, len, 546, 2029);
	}
	if (protocol == ICMPV6) {
		if (len < 4 || load_bytes(skb, at, &kind, 1))
			return HIDDEN_HEADERS + 1;
		if (kind >= ROUTER_SOLICITATION && kind <= REDIRECTION)
			return FRAGMENTED_DISCOVERY + 1;
		return kind == LISTENER_QUERY ? unless(rules, MAY_GROUP_QUERIES, GROUP_QUERY) : 0;
	}
	return check_protocol(rules, protocol);
}

// Whether a packet may have no source: solicitations, and reports of multicast listeners.
INLINE int needs_no_source(const struct __sk_buff *skb, u32 next, u32 len)
{
	u8 head[2], kind;
	u32 at = ETHERNET + IPV6;

	if (next == ICMPV6)
		return len && !load_bytes(skb, at, &kind, 1) &&
		       (kind == ROUTER_SOLICITATION || kind == NEIGHBOUR_SOLICITATION);
	if (next || len < sizeof(head) || load_bytes(skb, at, head, sizeof(head)))
		return 0;
	u32 behind = (head[1] + 1) * 8;

	if (head[0] != ICMPV6 || behind >= len || load_bytes(skb, at + behind, &kind, 1))
		return 0;
	return kind == 131 || kind == 132 || kind == 143;
}

APART int check6(const struct __sk_buff *skb, const struct rules *rules)
{
	struct ipv6_header ip;
	u32 behind = skb->len - ETHERNET, from_nobody;

	if (load_bytes(skb, ETHERNET, &ip, sizeof(ip)))
		return MALFORMED + 1;
	u32 len = be16(ip.length);

	if (!len && skb->gso_size)
		len = behind - IPV6;
	if ((ip.version & be16(0xf000)) != be16(0x6000) || len + IPV6 > behind)
		return MALFORMED + 1;
	struct rest rest = { .protocol = ip.next, .at = ETHERNET + IPV6, .len = len };

	if (!pass_extensions(skb, &rest))
		return MALFORMED + 1;
	struct ipv6 source = ip.source;

	from_nobody = !(source.half[0] | source.half[1]);
	if (from_nobody) {
		if (!needs_no_source(skb, ip.next, len))
			return SPOOFED_IP + 1;
	} else {
		int verdict = has6(rules, skb->ifindex, &source, SPOOFED_IP);

		if (verdict)
			return verdict;
	}
	if (rest.protocol == FRAGMENT)
		return check_fragment6(skb, rules, &rest);
	if (rest.protocol == ICMPV6)
		return check_discovery(skb, rules, &rest, from_nobody);
	if (rest.protocol == UDP)
		return check_udp(skb, rules, rest.at, rest.len, 546, 2029);
	return check_protocol(rules, rest.protocol);
}

// Whether a frame is of TCP or UDP over IPv4, without options and fragments, and from the first addresses of
// its guest. Of `data` there are the headers up to the ports.
INLINE int is_plain(const struct __sk_buff *skb, const u8 *data, const struct plain *plain)
{
	const struct ipv4_header *ip = (const void *)(data + ETHERNET);
	u32 source = ip->source, total = be16(ip->length);

	// The MAC and the type at once.
	if (*(const u64 *)(data + 6) != plain->head || !(plain->flags & GUARDS))
		return 0;
	if (ip->version != 0x45 || ip->offset & be16(0x3fff) || skb->vlan_present)
		return 0;
	if (total < IPV4 + 4 || total > skb->len - ETHERNET)
		return 0;
	if ((source & plain->mask) != plain->address || !source)
		return 0;
	if (ip->protocol == TCP)
		return 1;
	u16 target = *(const u16 *)(data + ETHERNET + IPV4 + 2);

	return ip->protocol == UDP && target != be16(68) && target != be16(1985);
}

APART int check_any(const struct __sk_buff *skb, const struct rules *rules)
{
	struct ethernet ethernet;

	if (load_bytes(skb, 0, &ethernet, sizeof(ethernet)))
		return MALFORMED + 1;
	if (!same_mac(ethernet.from, rules->mac))
		return SPOOFED_MAC + 1;
	u16 type = be16(ethernet.type);

	if (skb->vlan_present || type == ETH_P_8021Q || type == ETH_P_8021AD)
		return VLAN_TAG + 1;
	if (type == ETH_P_IP)
		return check4(skb, rules);
	if (type == ETH_P_IPV6)
		return check6(skb, rules);
	if (type == ETH_P_ARP)
		return check_arp(skb, rules);
	if (type == ETH_P_RARP)
		return check_announcement(skb, rules);
	return ETHER_TYPE + 1;
}
