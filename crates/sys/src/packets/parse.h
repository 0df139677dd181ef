// The headers of a frame: guests' bytes, of which nothing is believed. All are read by
// probe_read, which cannot fault, and only as far as the linear part of the frame goes.

// A connection, as seen from the guest. IPv4 addresses are mapped into IPv6 (RFC 4291, 2.5.5.2).
struct key {
	u32 guest[4];
	u32 peer[4];
	u16 guest_port;
	u16 peer_port;
	u32 slot;
} __attribute__((aligned(8)));

// What a segment of TCP says. `tcp` is 0 for anything else.
struct segment {
	u32 seq;
	u32 ack;
	// Bytes of data that it carries.
	u32 payload;
	u16 window;
	u8 flags;
	u8 tcp;
};

enum { IN, OUT, DIRECTIONS };
enum { FIN = 1, SYN = 2, RST = 4, ACK = 16 };

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88a8
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define VLAN_TAGS 2
#define EXTENSIONS 6

INLINE u16 be16(u16 from)
{
	return __builtin_bswap16(from);
}
INLINE u32 be32(u32 from)
{
	return __builtin_bswap32(from);
}

// The rest of a frame: from where to where it can be read, and how long it claims to be.
struct cursor {
	const u8 *at;
	u32 linear;
	u32 rest;
};

// Reads the next `size` bytes, and does not pass them.
INLINE int peek(const struct cursor *cursor, void *to, u32 size)
{
	return cursor->linear >= size && probe_read(to, size, cursor->at) == 0;
}
INLINE int skip(struct cursor *cursor, u32 size)
{
	if (cursor->linear < size || cursor->rest < size)
		return 0;
	cursor->at += size;
	cursor->linear -= size;
	cursor->rest -= size;
	return 1;
}

struct ipv4 {
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
struct ipv6 {
	u32 version;
	u16 length;
	u8 next;
	u8 hops;
	u32 source[4];
	u32 target[4];
};
struct tcp {
	u16 source;
	u16 target;
	u32 seq;
	u32 ack;
	u8 offset;
	u8 flags;
	u16 window;
};

// Both headers of a segment without options of IP, which most are.
struct ipv4_tcp {
	struct ipv4 ip;
	struct tcp tcp;
};

// Stands at a header of IPv4; passes it, and returns the protocol behind it, or 0 if there are no
// ports. What it read behind that header already is in `head`, and `ahead` says so.
INLINE u8 parse_ipv4(struct cursor *cursor, struct key *key, int out, struct ipv4_tcp *head,
		     int *ahead)
{
	const struct ipv4 *ip = &head->ip;

	*ahead = peek(cursor, head, sizeof(*head));
	if (!*ahead && !peek(cursor, head, sizeof(*ip)))
		return 0;
	u32 size = (ip->version & 15) * 4, total = be16(ip->length);

	if (ip->version >> 4 != 4 || size < sizeof(*ip))
		return 0;
	u32 *source = out ? key->guest : key->peer, *target = out ? key->peer : key->guest;

	source[2] = target[2] = be32(0xffff);
	source[3] = ip->source;
	target[3] = ip->target;
	*ahead = *ahead && size == sizeof(*ip);
	// A length of 0 is that of a packet longer than 64 KiB, as the kernel has them. What is behind
	// the packet fills a short frame up.
	if (total && total < cursor->rest)
		cursor->rest = total;
	// More fragments, or not the first one.
	if (ip->offset & be16(0x3fff))
		return 0;
	return skip(cursor, size) ? ip->protocol : 0;
}

// As parse_ipv4; passes extension headers (RFC 8200), of which there may be a few.
INLINE u8 parse_ipv6(struct cursor *cursor, struct key *key, int out)
{
	struct ipv6 ip;

	if (!peek(cursor, &ip, sizeof(ip)))
		return 0;
	u32 total = be16(ip.length);

	if ((ip.version & be32(0xf0000000)) != be32(0x60000000))
		return 0;
	__builtin_memcpy(out ? key->guest : key->peer, ip.source, sizeof(ip.source));
	__builtin_memcpy(out ? key->peer : key->guest, ip.target, sizeof(ip.target));
	if (!skip(cursor, sizeof(ip)))
		return 0;
	if (total && total < cursor->rest)
		cursor->rest = total;
	u8 next = ip.next;

	for (int i = 0; i < EXTENSIONS; i++) {
		u8 head[2];

		// Hop by hop, routing, destination.
		if (next != 0 && next != 43 && next != 60)
			return next;
		if (!peek(cursor, head, sizeof(head)) || !skip(cursor, 8 + head[1] * 8))
			return 0;
		next = head[0];
	}
	return 0;
}

// Fills in a key and a segment; `cursor` stands behind the header of Ethernet, and `type` is what
// that said. Returns 0 if it is not IP.
INLINE int parse(struct cursor *cursor, u16 type, int out, struct key *key, struct segment *segment)
{
	for (int i = 0; i < VLAN_TAGS; i++) {
		u16 tag[2];

		if (type != be16(ETH_P_8021Q) && type != be16(ETH_P_8021AD))
			break;
		if (!peek(cursor, tag, sizeof(tag)) || !skip(cursor, sizeof(tag)))
			return 0;
		type = tag[1];
	}
	struct ipv4_tcp head;
	struct tcp *tcp = &head.tcp;
	int ahead = 0;
	u8 protocol;

	if (type == be16(ETH_P_IP))
		protocol = parse_ipv4(cursor, key, out, &head, &ahead);
	else if (type == be16(ETH_P_IPV6))
		protocol = parse_ipv6(cursor, key, out);
	else
		return 0;
	if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP)
		return 1;
	if (protocol == IPPROTO_UDP) {
		if (!ahead && !peek(cursor, tcp, 4))
			return 1;
	} else if (!ahead && !peek(cursor, tcp, sizeof(*tcp))) {
		return 1;
	}
	key->guest_port = be16(out ? tcp->source : tcp->target);
	key->peer_port = be16(out ? tcp->target : tcp->source);
	u32 size = (tcp->offset >> 4) * 4;

	if (protocol != IPPROTO_TCP || size < 20 || size > cursor->rest)
		return 1;
	segment->tcp = 1;
	segment->seq = be32(tcp->seq);
	segment->ack = be32(tcp->ack);
	segment->window = be16(tcp->window);
	segment->flags = tcp->flags;
	segment->payload = cursor->rest - size;
	return 1;
}

// The linear part of a frame, from where the kernel's own `data` is.
INLINE struct cursor cursor_of(const struct sk_buff *skb)
{
	u32 length = skb->len, paged = skb->data_len;
	struct cursor cursor = {
		.at = skb->data,
		.linear = paged < length ? length - paged : 0,
		.rest = length,
	};

	return cursor;
}

// A frame that an interface received: the kernel has passed the header of Ethernet.
INLINE int parse_received(const struct sk_buff *skb, struct key *key, struct segment *segment)
{
	struct cursor cursor = cursor_of(skb);

	return parse(&cursor, skb->protocol, 1, key, segment);
}

// A frame that an interface is to send.
INLINE int parse_sent(const struct sk_buff *skb, const struct net_device *dev, int out,
		      struct key *key, struct segment *segment)
{
	struct cursor cursor = cursor_of(skb);

	if (dev->type == ARPHRD_ETHER && !skip(&cursor, 14))
		return 0;
	return parse(&cursor, skb->protocol, out, key, segment);
}

INLINE u64 pair(u32 a, u32 b)
{
	return (u64)a << 32 | b;
}

// The same for both directions of a connection: a sum of products, since those need not wait for
// each other. Its words are put together as they were written, 32 bits each: a processor reads 64
// bits that it has just written in halves slowly.
INLINE u64 hash(const struct key *key, u64 seed)
{
	const u32 *guest = key->guest, *peer = key->peer;
	u64 sum = (pair(guest[0], peer[0]) ^ seed) * 0x9e3779b97f4a7c15 +
		  (pair(guest[1], peer[1]) ^ seed) * 0xbf58476d1ce4e5b9 +
		  (pair(guest[2], peer[2]) ^ seed) * 0x94d049bb133111eb +
		  (pair(guest[3], peer[3]) ^ seed) * 0xd6e8feb86659fd93 +
		  (pair((u32)key->guest_port << 16 | key->peer_port, key->slot) ^ seed) *
			  0xa0761d6478bd642f;

	sum ^= sum >> 32;
	sum *= 0xe7037ed1a0b428db;
	return sum ^ sum >> 32;
}
