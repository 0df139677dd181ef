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
// Read parse.h for headers, tables.h for what is kept, flow.h for TCP. `scripts/bpf` makes
// packets.bpf.o of this; ../packets.rs loads it.

#include "kernel.h"
#include "parse.h"
#include "tables.h"
#include "flow.h"

#define LOOPBACK 1
// A shorter wait is not noted with whom it was behind.
#define WAIT 20000
// A frame that was enqueued longer ago is not looked for.
#define ALIAS_AGE 10000000000

// No flow is sampled.
#define NONE ~0u

// Returns bits that a flow's hash may not have.
INLINE u32 sampling_mask(void)
{
	u32 zero = 0;
	u32 *mask = map_lookup(&sampling, &zero);

	return mask ? *mask : NONE;
}

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

INLINE int can_queue(const struct net_device *dev)
{
	const struct netdev_queue *tx = dev->_tx;

	if (!tx)
		return 0;
	const struct Qdisc *qdisc = tx->qdisc;

	return qdisc && qdisc->enqueue;
}

INLINE struct queue *queue_of(u32 ifindex)
{
	u32 at = ifindex & (QUEUES - 1);

	return map_lookup(&queues, &at);
}

INLINE void begin_queue(struct queue *queue, u32 ifindex)
{
	__builtin_memset(queue, 0, sizeof(*queue));
	queue->ifindex = ifindex;
}

// A guest's frame is received.
INLINE void follow_sent(struct sk_buff *skb, u32 slot, u32 state)
{
	struct key key = {};
	struct segment segment = {};

	count_frame(slot, OUT, skb->len);
	u32 mask = sampling_mask();
	int parsed = mask != NONE && parse_received(skb, &key, &segment);

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

// The host sees a frame for the first time. To ask for the time costs more than all else here: of
// frames from outside it is known only while all flows are sampled.
INLINE void stamp(struct sk_buff *skb, u32 state)
{
	u32 slot = slot_of(skb->dev->ifindex);

	if (slot != NO_SLOT)
		follow_sent(skb, slot, state);
	else if (!sampling_mask())
		set_stamp(skb, NO_SLOT, state | TIMED, ktime());
	else if (!state)
		clear_stamp(skb);
}

INLINE int is_fresh(const struct sk_buff *skb)
{
	return !skb->skb_iif && skb->dev->ifindex != LOOPBACK;
}

// (struct sk_buff *skb)
SECTION("tp_btf/netif_rx") int on_backlog(u64 *context)
{
	struct sk_buff *skb = (void *)context[0];

	if (in_host(skb->dev) && is_fresh(skb))
		stamp(skb, BACKLOG);
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

	if (!in_host(skb->dev)) {
		take(skb);
		return 0;
	}
	if (!is_fresh(skb))
		return 0;
	u64 word = get_stamp(skb);

	if (stamp_state(word) & BACKLOG) {
		struct stamp *stamp = stamp_at(skb);

		if (stamp)
			stamp->word = word & ~((u64)BACKLOG << 8);
		return 0;
	}
	stamp(skb, 0);
	return 0;
}

// Begins to follow a frame that is sent to a guest, unless it is followed already, or its flow is
// not sampled. Returns it, locked.
INLINE struct packet *follow_received(struct sk_buff *skb, u32 slot, u64 word)
{
	struct key key = {};
	struct segment segment = {};
	u32 mask = sampling_mask();
	int followed = stamp_state(word) & FOLLOWED;
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

INLINE void enter_queue(struct packet *packet, const struct net_device *dev, u64 now)
{
	u32 ifindex = dev->ifindex;
	struct queue *queue = can_queue(dev) ? queue_of(ifindex) : NULL;

	packet->queued = now;
	packet->queue = 0;
	if (queue) {
		if (queue->ifindex != ifindex)
			begin_queue(queue, ifindex);
		packet->queue = ifindex;
		__builtin_memcpy(packet->before, queue->cells, sizeof(packet->before));
	}
}

// Returns how a frame is known after the kernel has segmented it, which gives its first segment a
// new sk_buff: by its addresses and its sequence number. Odd, as no address of an sk_buff is; 0 if
// it has none.
INLINE const void *alias_of(const struct sk_buff *skb, const struct net_device *dev)
{
	struct key key = {};
	struct segment segment = {};

	if (!parse_sent(skb, dev, 1, &key, &segment) || !segment.tcp)
		return NULL;
	return (const void *)(hash(&key, seed ^ segment.seq) | 1);
}

// When a frame with an alias was last enqueued.
static volatile u64 last_alias;

// Copies all that is known of a frame to another address; both are locked.
INLINE void copy_packet(struct packet *to, const struct packet *from)
{
	to->state = from->state;
	to->first = from->first;
	to->queued = from->queued;
	to->queue = from->queue;
	to->from = from->from;
	to->to = from->to;
	to->waited = from->waited;
	to->worst = from->worst;
	to->sender = from->sender;
	to->receiver = from->receiver;
	to->segment = from->segment;
	__builtin_memcpy(to->before, from->before, sizeof(to->before));
}

// A frame that the kernel may segment enters a queue.
INLINE void keep_alias(const struct sk_buff *skb, const struct net_device *dev,
		       const struct packet *packet, u64 now)
{
	struct skb_shared_info *shared = NULL;
	u16 size = 0;

	probe_read(&size, sizeof(size),
		   skb->head + skb->end + FIELD(shared, gso_size, BYTE_OFFSET));
	if (!size)
		return;
	const void *alias = alias_of(skb, dev);
	struct packet *other = alias ? new_packet(alias, packet->first, packet->from) : NULL;

	// The same place in the table: then the frame itself goes on.
	if (!other)
		return;
	copy_packet(other, packet);
	last_alias = now;
	unlock(&other->lock);
}

// A frame of which nothing is known leaves a queue: it may be a first segment. Returns its stamp.
INLINE u64 find_alias(const struct sk_buff *skb, const struct net_device *dev)
{
	u64 now = ktime();

	if (since(now, last_alias) > ALIAS_AGE)
		return 0;
	const void *alias = alias_of(skb, dev);
	struct packet *other = alias ? find_packet(alias) : NULL;

	if (!other)
		return 0;
	if (since(now, other->queued) < ALIAS_AGE) {
		struct packet *packet = new_packet(skb, other->first, other->from);

		if (packet) {
			copy_packet(packet, other);
			set_stamp(skb, other->from, FOLLOWED | TIMED, other->first);
			unlock(&packet->lock);
		}
	}
	other->skb = 0;
	unlock(&other->lock);
	return get_stamp(skb);
}

// (struct sk_buff *skb)
SECTION("tp_btf/net_dev_queue") int on_queue(u64 *context)
{
	struct sk_buff *skb = (void *)context[0];
	struct net_device *dev = skb->dev;
	u32 ifindex = dev->ifindex;

	if (ifindex == LOOPBACK || !in_host(dev))
		return 0;
	u32 slot = slot_of(ifindex);
	u64 word = known(skb);
	struct packet *packet;

	if (slot != NO_SLOT)
		packet = follow_received(skb, slot, word);
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

// Finds whose frames an interface sent while a frame waited in its queue.
INLINE void find_occupant(struct packet *packet, u64 wait, u32 ifindex)
{
	struct occupant found = { .wait = wait, .slot = NO_SLOT, .ifindex = ifindex };
	struct queue *queue = queue_of(ifindex);

	if (!queue || queue->ifindex != ifindex || packet->queue != ifindex)
		return;
	for (int i = 0; i < CELLS; i++) {
		u64 bytes = queue->cells[i].bytes;
		u32 slot = queue->cells[i].slot;

		if (slot == packet->before[i].slot && bytes >= packet->before[i].bytes)
			bytes -= packet->before[i].bytes;
		if (slot == packet->from) {
			found.own += bytes;
		} else if (bytes > found.bytes) {
			found.bytes = bytes;
			found.slot = slot;
		}
	}
	if (found.wait > packet->worst.wait)
		packet->worst = found;
}

INLINE void note_behind(const struct packet *packet, u32 slot, u32 direction)
{
	struct behind key = {
		.slot = slot,
		.direction = direction,
		.occupant = packet->worst.bytes ? packet->worst.slot : NO_SLOT + 1,
		.ifindex = packet->worst.ifindex,
	};
	struct delay *delay = map_lookup(&behinds, &key);

	if (delay) {
		ADD(delay->frames, 1);
		ADD(delay->wait, packet->worst.wait);
	} else {
		struct delay first = { .frames = 1, .wait = packet->worst.wait };

		map_update(&behinds, &key, &first, BPF_ANY);
	}
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
	if (part->timed && !flow->timed_at[IN])
		flow->timed_at[IN] = now;
	if (part->role)
		note_wait(flow, packet, IN);
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

// An interface that has a queue sends a frame.
INLINE void count_sent(u32 ifindex, u32 slot, u32 length)
{
	struct queue *queue = queue_of(ifindex);

	if (!queue)
		return;
	if (queue->ifindex != ifindex)
		begin_queue(queue, ifindex);
	struct cell *cell = &queue->cells[slot & (CELLS - 1)];

	if (cell->slot != slot) {
		cell->lead -= length;
		if (cell->lead > 0)
			return;
		cell->slot = slot;
		cell->bytes = 0;
		cell->lead = 0;
	}
	cell->bytes += length;
	if (cell->lead < 1 << 20)
		cell->lead += length;
}

// (const struct sk_buff *skb, const struct net_device *dev)
SECTION("tp_btf/net_dev_start_xmit") int on_start(u64 *context)
{
	struct sk_buff *skb = (void *)context[0];
	struct net_device *dev = (void *)context[1];
	u32 ifindex = dev->ifindex;

	if (ifindex == LOOPBACK || !in_host(dev))
		return 0;
	u32 slot = slot_of(ifindex), length = skb->len;
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
		count_sent(ifindex, word ? stamp_slot(word) : NO_SLOT, length);
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
	u32 slot = slot_of(dev->ifindex), from = word ? stamp_slot(word) : NO_SLOT;

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
