// Frames that the kernel segments.

// A frame that was enqueued longer ago is not looked for.
#define ALIAS_AGE 10000000000

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
