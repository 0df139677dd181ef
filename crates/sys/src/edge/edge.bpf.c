// The data path on the interfaces of a host: what a guest may send, the marks of its frames, and the
// times at which they leave. ../edge.rs loads it, and `scripts/bpf` makes edge.bpf.o of it.
//
// from_guest runs where a guest's frame enters the host (ingress of the host's end of its
// interface): it drops what is spoofed and writes the tag. to_guest and to_uplink run at the egress
// of the last device, since bridges, redirects and namespaces clear departure times: they charge the
// frame to its guest's buckets and write its departure time, by which `fq` sends it. All three leave
// the rest to the programs and filters behind them.
//
// Read tables.h for the maps, bucket.h for the buckets, guard.h and chosen.h for the check,
// lateness.h for the measurement.

#include "kernel.h"
#include "tables.h"
#include "bucket.h"
#include "chosen.h"
#include "guard.h"
#include "lateness.h"

// What a tag changes in a header of IPv4: its second byte, and the checksum.
struct start4 {
	u16 version;
	u16 others[4];
	u16 checksum;
};

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
		// RFC 1624: the complement of the sum of the complement, the old and the new word.
		u32 sum = (u16)~ip.checksum + (u16)~ip.version + fresh;

		sum = (sum & 0xffff) + (sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		ip.checksum = ~sum;
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

SECTION("classifier") int from_guest(struct __sk_buff *skb)
{
	u32 ifindex = skb->ifindex;
	const struct rules *rules = map_lookup(&guests, &ifindex);

	if (!rules)
		return TC_ACT_UNSPEC;
	if (rules->flags & GUARDS && !is_plain(skb, rules)) {
		int verdict = check_any(skb, rules);

		if (verdict) {
			count_drop(ifindex, verdict - 1);
			return TC_ACT_SHOT;
		}
	}
	if (rules->mark_mask)
		skb->mark = (skb->mark & ~rules->mark_mask) | rules->mark;
	if (rules->flags & TAGS)
		tag(skb, rules->dscp);
	return TC_ACT_UNSPEC;
}

INLINE u64 now_of(const struct __sk_buff *skb)
{
	return clock_of_tests ? skb->tstamp : ktime();
}

// Charges the first `number` buckets of a side, and returns when the frame leaves; 0 if it may not.
INLINE u64 pass_side(u32 ifindex, const struct rules *rules, u32 which, u32 number, u64 bytes,
		     u64 now, u64 arrival)
{
	const struct shape *shapes = which == INWARD_SIDE ? &rules->shapes[INWARD] : rules->shapes;
	u32 place = rules->slot * 2 + which;
	struct side *side = map_lookup(&sides, &place);

	if (!side)
		return arrival;
	u64 leaves = charge_chain(side, shapes, number, bytes, now, arrival, rules->horizon);

	if (!leaves)
		count_drop(ifindex, which == INWARD_SIDE ? INWARD_HORIZON : OUTWARD_HORIZON);
	return leaves;
}

INLINE void set_time(struct __sk_buff *skb, u64 leaves, u64 now)
{
	skb->tstamp = leaves > now ? leaves : 0;
}

// To a guest. Frames of another guest of this host have passed no uplink: their sender's limit holds
// here.
SECTION("classifier") int to_guest(struct __sk_buff *skb)
{
	u32 ifindex = skb->ifindex, from = skb->ingress_ifindex;
	const struct rules *rules = map_lookup(&guests, &ifindex);
	const struct rules *sender = from ? map_lookup(&guests, &from) : NULL;
	u64 now = 0, leaves = 0, bytes = 0;

	if (sender && sender->shapes[LIMIT].rate) {
		now = leaves = now_of(skb);
		bytes = wire_bytes(skb);
		leaves = pass_side(from, sender, OUTWARD_SIDE, 1, bytes, now, now);
		if (!leaves)
			return TC_ACT_SHOT;
	}
	if (rules && rules->shapes[INWARD].rate) {
		if (!now) {
			now = leaves = now_of(skb);
			bytes = wire_bytes(skb);
		}
		leaves = pass_side(ifindex, rules, INWARD_SIDE, 1, bytes, now, leaves);
		if (!leaves)
			return TC_ACT_SHOT;
	}
	if (now || from)
		set_time(skb, leaves, now);
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
	const struct rules *rules = sender_of(skb, &from);

	if (!rules) {
		skb->tstamp = 0;
		return TC_ACT_UNSPEC;
	}
	if (rules->flags & HAS_PCP && skb->vlan_present)
		set_priority(skb, rules->pcp);
	if (!(rules->shapes[LIMIT].rate | rules->shapes[GUARANTEE].rate)) {
		skb->tstamp = 0;
		return TC_ACT_UNSPEC;
	}
	u64 bytes = wire_bytes(skb);

	// It would leave whole, and exceed every burst that was admitted.
	if (rules->longest && bytes > rules->longest) {
		count_drop(from, LONG_PACKET);
		return TC_ACT_SHOT;
	}
	u64 now = now_of(skb);
	u64 leaves = pass_side(from, rules, OUTWARD_SIDE, 3, bytes, now, now);

	if (!leaves)
		return TC_ACT_SHOT;
	set_time(skb, leaves, now);
	return TC_ACT_UNSPEC;
}
