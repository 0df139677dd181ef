// Queues of interfaces: whose frames were sent while another waited.

// A shorter wait is not noted with whom it was behind.
#define WAIT 20000

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
