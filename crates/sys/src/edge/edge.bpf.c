// The data path on the interfaces of a host: what a guest may send, the marks of its frames, and the
// times at which they leave. ../edge.rs loads it, and `scripts/bpf` makes edge.bpf.o of it.
//
// from_guest runs where a guest's frame enters the host (ingress of the host's end of its
// interface): it drops what is spoofed and writes the tag. to_guest and to_uplink run at the egress
// of the last device, since bridges, redirects and namespaces clear departure times: they charge the
// frame to its guest's buckets and write its departure time, by which `fq` sends it. All three leave
// the rest to the programs and filters behind them, except for frames that pass the bridge directly.
//
// Frames to destinations with buckets of their own have two stages: from_guest sends them into one end of
// a pair of interfaces, the splitter, where to_splitter gives them the departure time of their
// destination's bucket. At the other end from_splitter sends them on to where they came from. So they
// arrive at the uplink when their destination may have them, and a message to an idle destination does
// not wait behind what waits for another one.
//
// Read tables.h for the maps, bucket.h for the buckets, guard.h and chosen.h for the check, ways.h for ways
// past the bridge, lateness.h for the measurement.

#include "kernel.h"
#include "tables.h"
#include "bucket.h"
#include "chosen.h"
#include "guard.h"
#include "ways.h"
#include "described.h"
#include "lateness.h"

// What a tag changes in a header of IPv4: its second byte, and the checksum.
struct start4 {
	u16 version;
	u16 others[4];
	u16 checksum;
};

// RFC 1624: the complement of the sum of the complement, the old and the new word.
INLINE u16 amended(u16 checksum, u16 was, u16 fresh)
{
	u32 sum = (u16)~checksum + (u16)~was + fresh;

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

// Writes the DSCP of an IP packet; its ECN bits stay.
INLINE void tag(struct __sk_buff *skb, u32 dscp)
{
	u32 protocol = skb->protocol;

	if (protocol == be16(ETH_P_IP)) {
		struct start4 ip;

		if (load_bytes(skb, ETHERNET, &ip, sizeof(ip)))
			return;
		u16 fresh = be16((be16(ip.version) & ~0xfc) | dscp << 2);

		if (fresh == ip.version)
			return;
		ip.checksum = amended(ip.checksum, ip.version, fresh);
		ip.version = fresh;
		store_bytes(skb, ETHERNET, &ip, sizeof(ip), 0);
	} else if (protocol == be16(ETH_P_IPV6)) {
		u16 word;

		if (load_bytes(skb, ETHERNET, &word, sizeof(word)))
			return;
		u16 fresh = be16((be16(word) & ~0xfc0) | dscp << 6);

		if (fresh != word)
			store_bytes(skb, ETHERNET, &fresh, sizeof(fresh), BPF_F_RECOMPUTE_CSUM);
	}
}

// The slot of a guest whose frame passed from_guest, plus one. A guest may write anything there before, so
// each use compares the interface, too.
INLINE u32 slot_of(const struct __sk_buff *skb)
{
	// Both are read, since the verifier knows no offset that is computed.
	u32 tests = *(const volatile u32 *)&skb->cb[0], index = *(const volatile u32 *)&skb->tc_index;

	return ((clock_of_tests ? tests : index) & SLOT_BITS) - 1;
}

// Whether a destination of the guest has a bucket of its own.
INLINE int is_split(u32 slot, const u8 *station)
{
	struct line_key key = { .slot = slot };

	__builtin_memcpy(key.station, station, sizeof(key.station));
	return map_lookup(&lines, &key) != NULL;
}

// Sends a frame of a guest on. `station` is its destination. What comes back from the splitter has the
// interface as its mark, which no frame from outside of this namespace has.
INLINE int forward(struct __sk_buff *skb, u32 flags, u32 slot, const u8 *station, u32 mark, u32 mark_mask)
{
	u32 ifindex = skb->ifindex, zero = 0, first = skb->mark;

	skb->tc_index = slot + 1;
	if (unlikely(flags & IS_SPLIT)) {
		if (first == ifindex) {
			skb->mark = first = 0;
		} else if (is_split(slot, station)) {
			const u32 *target = map_lookup(&splitter, &zero);

			if (target && *target) {
				skb->mark = ifindex;
				return redirect(*target, 0);
			}
		}
	}
	if (mark_mask)
		skb->mark = (first & ~mark_mask) | mark;
	if (flags & IS_DIRECT) {
		u32 out = way_to(skb, slot, station);

		if (out)
			return redirect(out, 0);
	}
	return TC_ACT_UNSPEC;
}

// All frames that are not plain, and those of guests without a check.
ONCE int check_and_forward(struct __sk_buff *skb)
{
	u32 ifindex = skb->ifindex;
	const struct rules *rules = map_lookup(&guests, &ifindex);
	u8 station[6] __attribute__((aligned(2)));

	if (!rules)
		return TC_ACT_UNSPEC;
	if (rules->flags & GUARDS) {
		int verdict = check_any(skb, rules);

		if (verdict) {
			count_drop(ifindex, verdict - 1);
			return TC_ACT_SHOT;
		}
	}
	if (rules->flags & TAGS)
		tag(skb, rules->dscp);
	if (load_bytes(skb, 0, station, sizeof(station)))
		return TC_ACT_UNSPEC;
	return forward(skb, rules->flags, rules->slot, station, rules->mark, rules->mark_mask);
}

// Most frames: IPv4 without options and fragments, of TCP or UDP, from the first addresses of a guest that
// is checked.
SECTION("classifier") int from_guest(struct __sk_buff *skb)
{
	u32 ifindex = skb->ifindex, at = ifindex % PORTS;
	const struct port *port = map_lookup(&ports, &at);

	if (unlikely(!port || port->ifindex != ifindex))
		return check_and_forward(skb);
	u32 place = port->place;
	const struct plain *plain = map_lookup(&plains, &place);
	u8 *data = (void *)(u64)skb->data;
	struct ipv4_header *ip = (void *)(data + ETHERNET);

	if (unlikely(!plain || data + ETHERNET + IPV4 + 4 > (u8 *)(u64)skb->data_end ||
		     !is_plain(skb, data, plain)))
		return check_and_forward(skb);
	if (plain->flags & TAGS) {
		u16 was = *(u16 *)ip, fresh = be16((be16(was) & ~0xfc) | plain->dscp << 2);

		if (fresh != was) {
			ip->checksum = amended(ip->checksum, was, fresh);
			*(u16 *)ip = fresh;
		}
	}
	return forward(skb, plain->flags, place / 2, data, plain->mark, plain->mark_mask);
}

INLINE u64 now_of(const struct __sk_buff *skb)
{
	return clock_of_tests ? skb->tstamp : ktime();
}

// A side of a guest that follows the newest rules; NULL for one that does not, or of another guest.
INLINE struct side *known_side(u32 slot, u32 which, u32 ifindex)
{
	u32 place = slot * 2 + which;
	struct side *side = map_lookup(&sides, &place);
	const u32 *generation = map_lookup(&generations, &slot);

	if (likely(side && generation && side->ifindex == ifindex && side->generation == *generation))
		return side;
	return NULL;
}

INLINE struct side *renewed_side(const struct rules *rules, u32 which, u32 ifindex, u64 now)
{
	u32 place = rules->slot * 2 + which;
	struct side *side = map_lookup(&sides, &place);

	if (side)
		renew(side, rules, ifindex, which, now);
	return side;
}

// Charges the first `number` buckets of a side, and returns when the frame leaves; 0 if it may not.
INLINE u64 pass_side(u32 ifindex, struct side *side, u32 which, u32 number, u64 bytes, u64 now,
		     u64 arrival)
{
	u64 leaves = charge_chain(side, number, bytes, now, arrival, side->horizon);

	if (unlikely(!leaves))
		count_drop(ifindex, which == INWARD_SIDE ? INWARD_HORIZON : OUTWARD_HORIZON);
	return leaves;
}

INLINE void set_time(struct __sk_buff *skb, u64 leaves, u64 now)
{
	skb->tstamp = leaves > now ? leaves : 0;
}

INLINE struct side *sender_side(const struct __sk_buff *skb, u32 from)
{
	struct side *side = known_side(slot_of(skb), OUTWARD_SIDE, from);

	if (likely(side))
		return side;
	const struct rules *rules = map_lookup(&guests, &from);

	return rules ? renewed_side(rules, OUTWARD_SIDE, from, now_of(skb)) : NULL;
}

INLINE struct side *receiver_side(const struct __sk_buff *skb)
{
	u32 ifindex = skb->ifindex, at = ifindex % PORTS;
	const struct port *port = map_lookup(&ports, &at);

	if (likely(port && port->ifindex == ifindex)) {
		struct side *side = known_side(port->place / 2, INWARD_SIDE, ifindex);

		if (likely(side))
			return side;
	}
	const struct rules *rules = map_lookup(&guests, &ifindex);

	return rules ? renewed_side(rules, INWARD_SIDE, ifindex, now_of(skb)) : NULL;
}

// To a guest. Frames of another guest of this host have passed no uplink: their sender's limit holds
// here.
SECTION("classifier") int to_guest(struct __sk_buff *skb)
{
	u32 ifindex = skb->ifindex, from = skb->ingress_ifindex;
	struct side *sender = from ? sender_side(skb, from) : NULL;
	struct side *receiver = receiver_side(skb);
	u64 now = 0, leaves = 0, bytes = 0;

	if (sender && sender->buckets[LIMIT].shape.rate) {
		now = leaves = now_of(skb);
		bytes = wire_bytes(skb);
		leaves = pass_side(from, sender, OUTWARD_SIDE, 1, bytes, now, now);
		if (!leaves)
			return TC_ACT_SHOT;
	}
	if (receiver && receiver->buckets[0].shape.rate) {
		if (!now) {
			now = leaves = now_of(skb);
			bytes = wire_bytes(skb);
		}
		leaves = pass_side(ifindex, receiver, INWARD_SIDE, 1, bytes, now, leaves);
		if (!leaves)
			return TC_ACT_SHOT;
	}
	if (now || from)
		set_time(skb, leaves, now);
	if (unlikely(skb->tc_index & ASKS_WAY))
		learn_way(skb);
	if (from && receiver && receiver->flags & IS_DIRECT && !sender && lacks_way_back(skb, receiver->slot))
		learn_back(skb);
	return TC_ACT_UNSPEC;
}

// The guest that a frame came from, by its first interface, or by its mark.
INLINE const struct rules *sender_of(const struct __sk_buff *skb, u32 *from)
{
	const struct rules *rules = map_lookup(&guests, from);

	if (rules || !skb->mark)
		return rules;
	u32 ifindex = skb->ifindex;
	const struct uplink *uplink = map_lookup(&uplinks, &ifindex);

	if (!uplink || !uplink->mark)
		return NULL;
	u32 mark = skb->mark & uplink->mark;
	const u32 *guest = map_lookup(&marks, &mark);

	if (!guest)
		return NULL;
	*from = *guest;
	return map_lookup(&guests, from);
}

INLINE void set_priority(struct __sk_buff *skb, u32 pcp)
{
	u16 protocol = skb->vlan_proto, tag = skb->vlan_tci;
	u16 fresh = (tag & 0x1fff) | pcp << 13;

	if (fresh != tag && !vlan_pop(skb))
		vlan_push(skb, protocol, fresh);
}

// To the outside. The host's own sockets pace their frames themselves.
SECTION("classifier") int to_uplink(struct __sk_buff *skb)
{
	u32 from = skb->ingress_ifindex;

	if (!from)
		return TC_ACT_UNSPEC;
	struct side *side = known_side(slot_of(skb), OUTWARD_SIDE, from);

	if (unlikely(!side)) {
		const struct rules *rules = sender_of(skb, &from);

		if (rules)
			side = renewed_side(rules, OUTWARD_SIDE, from, now_of(skb));
		if (!side) {
			skb->tstamp = 0;
			return TC_ACT_UNSPEC;
		}
	}
	u32 flags = side->flags;

	if (unlikely(flags & HAS_PCP && skb->vlan_present))
		set_priority(skb, side->pcp);
	if (!(flags & WAITS)) {
		skb->tstamp = 0;
		return TC_ACT_UNSPEC;
	}
	u64 bytes = wire_bytes(skb);

	// It would leave whole, and exceed every burst that was admitted.
	if (unlikely(side->longest && bytes > side->longest)) {
		count_drop(from, LONG_PACKET);
		return TC_ACT_SHOT;
	}
	u64 now = now_of(skb);
	u64 leaves = pass_side(from, side, OUTWARD_SIDE, 3, bytes, now, now);

	if (!leaves)
		return TC_ACT_SHOT;
	set_time(skb, leaves, now);
	return TC_ACT_UNSPEC;
}

// The shape of a line at a time: without grants once nothing renews them.
INLINE const struct shape *shape_of(const struct line *line, u64 now)
{
	u32 zero = 0;
	const struct lease *held = map_lookup(&lease, &zero);

	if (likely(!held || !line->alone.rate || now <= held->until))
		return &line->shape;
	// Of equal rates that without a loan.
	if (now > held->pledged || line->alone.rate <= line->shape.rate)
		return &line->alone;
	return &line->shape;
}

// Charges the bucket of a destination, if it has one, and notes when the frame passes it. Returns if that is beyond
// the horizon.
INLINE int pass_line(u32 slot, const u8 *station, u64 bytes, u64 *line_at)
{
	struct line_key key = { .slot = slot };

	__builtin_memcpy(key.station, station, sizeof(key.station));
	const struct line *line = map_lookup(&lines, &key);

	if (!line)
		return 0;
	u32 place = line->place;
	struct line_side *side = map_lookup(&line_sides, &place);

	if (!side)
		return 0;
	u64 now = ktime();

	*line_at = charge_line(side, shape_of(line, now), bytes, now, line->horizon);
	return !*line_at;
}

// To the outside through the qdisc of queue.bpf.c, which charges the guest's buckets. All frames are described.
SECTION("classifier") int to_queue(struct __sk_buff *skb)
{
	u8 *data = (void *)(u64)skb->data;
	u32 from = skb->ingress_ifindex, who = 0;
	u64 bytes = wire_bytes(skb), line_at = 0;
	struct side *side = NULL;
	int is_whole = data + ETHERNET <= (u8 *)(u64)skb->data_end;

	if (from) {
		skb->tstamp = 0;
		side = known_side(slot_of(skb), OUTWARD_SIDE, from);
		if (unlikely(!side)) {
			const struct rules *rules = sender_of(skb, &from);

			if (rules)
				side = renewed_side(rules, OUTWARD_SIDE, from, ktime());
		}
	}
	if (side && side->flags & WAITS) {
		who = side->slot + 1;
		if (unlikely(side->longest && bytes > side->longest)) {
			count_drop(from, LONG_PACKET);
			return TC_ACT_SHOT;
		}
		if (side->flags & HAS_LINES && is_whole && pass_line(side->slot, data, bytes, &line_at)) {
			count_drop(from, OUTWARD_HORIZON);
			return TC_ACT_SHOT;
		}
	} else if (likely(is_whole)) {
		who = (u32)(number_of(data) * 0x9e3779b97f4a7c15ULL >> (64 - HASH_BITS)) << HASH_SHIFT;
	}
	// The last use of the frame's data: a tag moves it.
	if (side && unlikely(side->flags & HAS_PCP && skb->vlan_present))
		set_priority(skb, side->pcp);
	skb->cb[0] = DESCRIBED;
	skb->cb[1] = who;
	skb->cb[2] = line_at;
	skb->cb[3] = line_at >> 32;
	skb->cb[4] = bytes;
	return TC_ACT_UNSPEC;
}

// Into the splitter: to a destination with a bucket. The host's own frames have nothing to do there.
SECTION("classifier") int to_splitter(struct __sk_buff *skb)
{
	struct line_key key = { .slot = slot_of(skb) };
	u32 from = skb->mark;

	if (!from || load_bytes(skb, 0, key.station, sizeof(key.station)))
		return TC_ACT_SHOT;
	const struct line *line = map_lookup(&lines, &key);

	if (!line) {
		skb->tstamp = 0;
		return TC_ACT_UNSPEC;
	}
	u32 place = line->place;
	struct line_side *side = map_lookup(&line_sides, &place);

	if (!side)
		return TC_ACT_SHOT;
	u64 bytes = wire_bytes(skb), now = now_of(skb);
	u64 leaves = charge_line(side, shape_of(line, now), bytes, now, line->horizon);

	if (!leaves) {
		count_drop(from, OUTWARD_HORIZON);
		return TC_ACT_SHOT;
	}
	set_time(skb, leaves, now);
	return TC_ACT_UNSPEC;
}

// Userspace runs it when the rate of a destination has changed: the bucket fills at the former rate until now.
// The key is behind the Ethernet header.
SECTION("classifier") int settle_line(struct __sk_buff *skb)
{
	struct line_key key = {};

	if (load_bytes(skb, ETHERNET, &key, sizeof(key)))
		return TC_ACT_SHOT;
	const struct line *line = map_lookup(&lines, &key);

	if (!line)
		return TC_ACT_SHOT;
	u32 place = line->place;
	struct line_side *side = map_lookup(&line_sides, &place);

	if (!side)
		return TC_ACT_SHOT;
	u64 now = now_of(skb);

	settle(side, shape_of(line, now), now);
	return TC_ACT_UNSPEC;
}

// Out of the splitter: in again where the frame came from.
SECTION("classifier") int from_splitter(struct __sk_buff *skb)
{
	return skb->mark ? redirect(skb->mark, BPF_F_INGRESS) : TC_ACT_SHOT;
}
