// How long frames of guests wait in the host, behind whose frames, and how their TCP fares. It only
// looks: nothing here changes a frame.
//
// A frame is known by the address of its sk_buff. A bridge, a router and a veth keep that. It is
// stamped where the host first sees it (netif_rx, netif_receive_skb), and of flows that the sampling
// chooses it is followed: into a queue (net_dev_queue), out of it to a driver (net_dev_start_xmit),
// out of a TAP's ring (consume_skb) or a backlog (netif_receive_skb in the guest's network
// namespace), or to where it is dropped (kfree_skb). A fresh sk_buff, and one that comes out of
// a veth, is received with skb_iif 0: so an address that is used again is told from one that is
// received twice.
//
// Read parse.h for headers, tables.h for what is kept, flow.h for TCP, window.h for its windows,
// queue.h for queues, alias.h
// for frames that are segmented. `scripts/bpf` makes
// packets.bpf.o of this; ../packets.rs loads it.

#include "kernel.h"
#include "parse.h"
#include "tables.h"
#include "window.h"
#include "flow.h"
#include "queue.h"
#include "alias.h"

#define LOOPBACK 1

INLINE void count_frame(u32 slot, u32 direction, u32 length)
{
	struct traffic *traffic = map_lookup(&traffics, &slot);

	if (!traffic)
		return;
	traffic->frames[direction]++;
	traffic->bytes[direction] += length;
}

// Whether a frame comes from a socket of the host itself, and was not received.
INLINE int is_local(const struct sk_buff *skb)
{
	if (skb->skb_iif)
		return 0;
	const struct sock *sk = skb->sk;

	if (!sk)
		return 0;
	u16 family = sk->__sk_common.skc_family;

	if (family != AF_INET && family != AF_INET6 && family != AF_PACKET)
		return 0;
	const struct net *net = sk->__sk_common.skc_net.net;

	return net && net->ns.inum == host_netns;
}

// Returns the stamp of a frame that is sent, or 0.
INLINE u64 known(const struct sk_buff *skb)
{
	u64 word = get_stamp(skb);

	if (word && is_local(skb)) {
		clear_stamp(skb);
		return 0;
	}
	return word;
}

// A guest's frame is received.
INLINE void follow_sent(struct sk_buff *skb, u32 guest, u32 state)
{
	u32 mask = mask_of(guest), slot = slot_of(guest);

	count_frame(slot, OUT, skb->len);
	if (mask == NONE) {
		set_stamp(skb, slot, state, 0);
		return;
	}
	struct key key = {};
	struct segment segment = {};
	int parsed = parse_received(skb, &key, &segment);

	key.slot = slot;
	u64 mix = hash(&key, seed);

	if (!parsed || (u32)mix & mask) {
		set_stamp(skb, slot, state, 0);
		return;
	}
	u64 now = ktime();

	set_stamp(skb, slot, state | FOLLOWED | TIMED, now);
	struct packet *packet = new_packet(skb, now, slot);

	if (!packet)
		return;
	if (segment.tcp) {
		struct part *part = &packet->sender;
		struct flow *flow = find_flow(&key, mix, now, &part->flow);

		if (flow) {
			part->born = flow->born;
			note_segment(flow, &segment, part, OUT, now, now);
			unlock(&flow->lock);
		}
	}
	unlock(&packet->lock);
}

// The host may see a frame for the first time. What costs least is asked first. To ask for the time
// costs more than all else here: of frames from outside it is known only while all flows are sampled.
INLINE void stamp(struct sk_buff *skb, u32 state)
{
	const struct net_device *dev = skb->dev;
	u32 ifindex = dev->ifindex, guest = guest_of(ifindex);

	if (guest == NO_SLOT) {
		const struct control *its = control();

		if (!its || !its->times_all) {
			if (!state && !skb->skb_iif)
				clear_stamp(skb);
			return;
		}
	}
	if (ifindex == LOOPBACK || skb->skb_iif || !in_host(dev))
		return;
	if (guest != NO_SLOT)
		follow_sent(skb, guest, state);
	else
		set_stamp(skb, NO_SLOT, state | TIMED, ktime());
}

// (struct sk_buff *skb)
SECTION("tp_btf/netif_rx") int on_backlog(u64 *context)
{
	stamp((void *)context[0], BACKLOG);
	return 0;
}

// A frame for a guest was taken out of its ring, or of the backlog of its namespace.
INLINE void take(const void *skb)
{
	if (!(stamp_state(get_stamp(skb)) & FOLLOWED))
		return;
	struct packet *packet = find_packet(skb);

	if (!packet)
		return;
	if (packet->state == PACKET_RING) {
		u64 now = ktime();
		u32 slot = packet->to;
		struct meter *meter = map_lookup(&meters, &slot);

		if (meter)
			count(&meter->ring, since(now, packet->given));
		note_taken(&packet->receiver, now);
	}
	packet->skb = 0;
	clear_stamp(skb);
	unlock(&packet->lock);
}

// (struct sk_buff *skb)
SECTION("tp_btf/netif_receive_skb") int on_receive(u64 *context)
{
	struct sk_buff *skb = (void *)context[0];
	struct stamp *known = stamp_at(skb);

	if (known && known->skb == (u64)skb) {
		if (!in_host(skb->dev)) {
			take(skb);
			return 0;
		}
		u64 word = get_stamp(skb);

		if (!skb->skb_iif && stamp_state(word) & BACKLOG) {
			known->word = word & ~((u64)BACKLOG << 8);
			return 0;
		}
	}
	stamp(skb, 0);
	return 0;
}

// Begins to follow a frame that is sent to a guest, unless it is followed already, or its flow is
// not sampled. Returns it, locked.
INLINE struct packet *follow_received(struct sk_buff *skb, u32 guest, u64 word)
{
	u32 mask = mask_of(guest), slot = slot_of(guest);
	int followed = stamp_state(word) & FOLLOWED;

	if (!followed && mask == NONE)
		return NULL;
	struct key key = {};
	struct segment segment = {};
	int parsed = mask != NONE && parse_sent(skb, skb->dev, 0, &key, &segment);

	key.slot = slot;
	u64 mix = hash(&key, seed);
	int sampled = parsed && !((u32)mix & mask);

	if (!sampled && !followed)
		return NULL;
	u64 now = ktime();
	u64 first = stamp_time(word, now);
	u32 from = word ? stamp_slot(word) : NO_SLOT;

	if (!followed)
		set_stamp(skb, from, FOLLOWED | TIMED, first);
	struct packet *packet = followed ? find_packet(skb)
					 : new_packet(skb, first, from);

	if (!packet)
		return NULL;
	packet->to = slot;
	packet->segment = segment;
	packet->receiver.born = 0;
	if (sampled && segment.tcp) {
		struct flow *flow = find_flow(&key, mix, now, &packet->receiver.flow);

		if (flow) {
			packet->receiver.born = flow->born;
			unlock(&flow->lock);
		}
	}
	return packet;
}

// (struct sk_buff *skb)
SECTION("tp_btf/net_dev_queue") int on_queue(u64 *context)
{
	struct sk_buff *skb = (void *)context[0];
	struct net_device *dev = skb->dev;
	u32 ifindex = dev->ifindex;

	u32 guest = guest_of(ifindex);

	if (guest == NO_SLOT && !stamp_at(skb))
		return 0;
	if (ifindex == LOOPBACK || !in_host(dev))
		return 0;
	u64 word = known(skb);
	struct packet *packet;

	if (guest != NO_SLOT)
		packet = follow_received(skb, guest, word);
	else if (stamp_state(word) & FOLLOWED)
		packet = find_packet(skb);
	else
		return 0;
	if (!packet)
		return 0;
	u64 now = ktime();

	enter_queue(packet, dev, now);
	if (packet->sender.role || packet->sender.timed || packet->receiver.born)
		keep_alias(skb, dev, packet, now);
	unlock(&packet->lock);
	return 0;
}

// A followed frame passes the last queue in the host: in `direction`, as a guest sees it.
INLINE void count_passed(const struct packet *packet, u32 slot, u32 direction, u64 now)
{
	struct meter *meter = map_lookup(&meters, &slot);

	if (slot == NO_SLOT || !meter)
		return;
	count(&meter->queue[direction], packet->waited);
	count(&meter->host[direction], since(now, packet->first));
	if (packet->worst.wait >= WAIT)
		note_behind(packet, slot, direction);
}

INLINE void put_into_guest(struct packet *packet, u32 slot, u64 now)
{
	packet->given = now;
	packet->state = PACKET_RING;
	if (packet->to != slot || !packet->segment.tcp)
		return;
	struct part *part = &packet->receiver;
	struct flow *flow = flow_of(part);

	if (!flow)
		return;
	note_segment(flow, &packet->segment, part, IN, packet->first, now);
	if (part->timed & TIMES_TRIP && !flow->timed_at[IN])
		flow->timed_at[IN] = now;
	if (part->timed & FILLS_WINDOW)
		begin_hold(flow, OUT, now);
	if (part->role) {
		note_wait(flow, packet, IN);
		flow->neighbour = packet->from;
	}
	unlock(&flow->lock);
}

// Whether no other interface of the host comes after this one.
INLINE int is_last(const struct net_device *dev)
{
	if (dev->dev.parent)
		return 1;
	const struct rtnl_link_ops *ops = dev->rtnl_link_ops;
	u32 kind = 0;

	if (!ops || probe_read(&kind, sizeof(kind), ops->kind))
		return 0;
	// veth, tun, netkit: another's network namespace, or a process, comes after them.
	return kind == 0x68746576 || kind == 0x006e7574 || kind == 0x6b74656e;
}

INLINE void leave(struct sk_buff *skb, const struct net_device *dev, u32 slot)
{
	struct packet *packet = find_packet(skb);

	if (!packet)
		return;
	u64 now = ktime();

	if (packet->queued) {
		u64 wait = since(now, packet->queued);

		packet->waited += wait;
		packet->queued = 0;
		find_occupant(packet, wait, dev->ifindex);
	}
	if (slot != NO_SLOT || is_last(dev)) {
		count_passed(packet, packet->from, OUT, now);
		note_left(packet, now);
		if (slot != NO_SLOT) {
			count_passed(packet, slot, IN, now);
			put_into_guest(packet, slot, now);
		} else {
			packet->skb = 0;
			clear_stamp(skb);
		}
	}
	unlock(&packet->lock);
}

// (const struct sk_buff *skb, const struct net_device *dev). Segments that a queue made of a frame have no
// stamp, and the same skb_iif: the interface that received it, unless a bridge of the host did after that.
SECTION("tp_btf/net_dev_start_xmit") int on_start(u64 *context)
{
	struct sk_buff *skb = (void *)context[0];
	struct net_device *dev = (void *)context[1];
	u32 ifindex = dev->ifindex;

	if (ifindex == LOOPBACK || !in_host(dev))
		return 0;
	u32 slot = slot_of(guest_of(ifindex)), length = skb->len;
	u64 word = known(skb);

	if (slot != NO_SLOT)
		count_frame(slot, IN, length);
	if (!word && last_alias && skb->skb_iif)
		word = find_alias(skb, dev);
	if (stamp_state(word) & FOLLOWED)
		leave(skb, dev, slot);
	else if (word && slot != NO_SLOT)
		clear_stamp(skb);
	if (can_queue(dev))
		count_sent(ifindex, word ? stamp_slot(word) : slot_of(guest_of(skb->skb_iif)), length);
	return 0;
}

// (struct sk_buff *skb, ...)
SECTION("tp_btf/consume_skb") int on_consume(u64 *context)
{
	take((const void *)context[0]);
	return 0;
}

INLINE void count_drop(u32 slot, u32 direction, u64 reason)
{
	struct drop key = { .slot = slot, .direction = direction, .reason = reason };
	u64 *number = map_lookup(&drops, &key), one = 1;

	if (number)
		ADD(*number, 1);
	else
		map_update(&drops, &key, &one, BPF_ANY);
}

INLINE void note_lost(const struct part *part)
{
	struct flow *flow = flow_of(part);

	if (!flow)
		return;
	flow->lost++;
	unlock(&flow->lock);
}

// (struct sk_buff *skb, void *location, enum skb_drop_reason reason, ...); the reason since
// Linux 5.17.
SECTION("tp_btf/kfree_skb") int on_drop(u64 *context)
{
	struct sk_buff *skb = (void *)context[0];
	struct trace_event_raw_kfree_skb *event = NULL;
	u64 word = known(skb), reason = context[1];
	struct net_device *dev = skb->dev;

	if (FIELD(event, reason, EXISTS))
		reason = (u32)context[2];
	if (!dev || !in_host(dev))
		return 0;
	u32 slot = slot_of(guest_of(dev->ifindex)), from = word ? stamp_slot(word) : NO_SLOT;

	if (from != NO_SLOT)
		count_drop(from, OUT, reason);
	if (slot != NO_SLOT && slot != from)
		count_drop(slot, IN, reason);
	if (!(stamp_state(word) & FOLLOWED))
		return 0;
	struct packet *packet = find_packet(skb);

	if (!packet)
		return 0;
	note_lost(&packet->sender);
	note_lost(&packet->receiver);
	packet->skb = 0;
	clear_stamp(skb);
	unlock(&packet->lock);
	return 0;
}
