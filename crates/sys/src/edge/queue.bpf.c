// The qdisc of an uplink, from Linux 6.16 on: guests' buckets are charged when frames depart, and not, as by
// departure times in `fq`, when they come. A host that is late sends no burst afterwards: its departures keep
// {B, S} and Bmax by the clock.
//
// A frame of a guest with buckets waits in its guest's queue, behind the bucket of its destination if that has one.
// A turn is the time at which the first frame of a guest's queue may leave, and the earliest one is served. All
// other frames are best effort: they leave when no turn is due, by fair queues with CoDel, a queue for each
// destination. `scripts/bpf` makes queue.bpf.o of it, queue.rs loads it once for each uplink. The maps of tables.h
// are those of the programs on interfaces; the others are the qdisc's own.

#include "kernel.h"
#include "tables.h"
#include "bucket.h"
#include "described.h"
#include "kfuncs.h"

enum { NET_XMIT_SUCCESS, NET_XMIT_DROP };
// Attempts of one call. After the last one the kernel calls again.
enum { ATTEMPTS = 4 };
// Frames that a qdisc holds, of all and of best effort.
enum { LIMIT_OF_ALL = 1 << 20, LIMIT_OF_BEST = 10240 };

struct frame {
	struct sk_buff KPTR *skb;
	u64 since;
	u32 bytes;
	u32 length;
	u32 slot;
	u32 unused;
	struct bpf_list_node node;
};
// A frame before the bucket of its destination.
struct waiting {
	u64 at;
	struct frame KPTR *frame;
	struct bpf_rb_node node;
};
struct turn {
	u64 at;
	u32 slot;
	u32 unused;
	struct bpf_rb_node node;
};
// While a guest has no frames its turn is kept here.
struct guest_queue {
	struct bpf_spin_lock lock;
	u32 frames;
	u64 bytes;
	struct bpf_list_head list CONTAINS(frame, node);
	struct turn KPTR *turn;
};
struct turns {
	struct bpf_spin_lock lock;
	u32 number;
	struct bpf_rb_root root CONTAINS(turn, node);
};
struct waits {
	struct bpf_spin_lock lock;
	u32 number;
	struct bpf_rb_root root CONTAINS(waiting, node);
};

// A frame before which nothing waits. Most frames leave at once, and need no memory here.
struct first {
	struct sk_buff KPTR *skb;
	u32 is_there;
	u32 bytes;
	// SLOTS or more for a frame of best effort.
	u32 slot;
	u32 unused;
};

#define OWN_ARRAY(name, number, value_type)                                                        \
	struct {                                                                                   \
		uint(type, BPF_MAP_TYPE_ARRAY);                                                    \
		uint(max_entries, number);                                                         \
		u32 *key;                                                                          \
		value_type *value;                                                                 \
	} name SECTION(".maps")

OWN_ARRAY(guest_queues, SLOTS, struct guest_queue);
OWN_ARRAY(all_turns, 1, struct turns);
OWN_ARRAY(all_waits, 1, struct waits);
OWN_ARRAY(firsts, 1, struct first);

static u8 turn_less(struct bpf_rb_node *left, const struct bpf_rb_node *right)
{
	return OF(left, struct turn, node)->at < OF(right, struct turn, node)->at;
}

static u8 waiting_less(struct bpf_rb_node *left, const struct bpf_rb_node *right)
{
	return OF(left, struct waiting, node)->at < OF(right, struct waiting, node)->at;
}

// When `bytes` more may leave at the earliest: by what a bucket owes, a whole number of nanoseconds. It charges
// nothing.
INLINE u64 earliest(struct side *side, u64 bytes, u64 now)
{
	u64 work = bytes * BYTE, leaves = now;

	spin_lock(&side->lock);
	for (u32 i = 0; i < 3; i++) {
		struct bucket bucket = side->buckets[i];

		if (bucket.shape.rate) {
			u64 at = charge(&bucket, work, now);

			leaves = at > leaves ? at : leaves;
		}
	}
	spin_unlock(&side->lock);
	return leaves;
}

// The wait of all that waits and `bytes` more. Unlike one packet, they need not wait until the bucket is full.
INLINE u64 backlog_ends(struct side *side, u64 bytes, u64 now)
{
	u64 work = bytes * BYTE, leaves = now;

	spin_lock(&side->lock);
	for (u32 i = 0; i < 3; i++) {
		struct bucket *bucket = &side->buckets[i];
		u64 rate = bucket->shape.rate, due = bucket->due;

		if (!rate)
			continue;
		due = due > now ? due : now;
		due += work / rate;
		if (due > leaves + bucket->shape.depth)
			leaves = due - bucket->shape.depth;
	}
	spin_unlock(&side->lock);
	return leaves;
}

// Charges a frame that leaves now, or returns when it may.
INLINE u64 depart(struct side *side, u64 bytes, u64 now, u64 since)
{
	u64 work = bytes * BYTE, leaves = now;
	u64 due[3] = {}, rest[3] = {};

	spin_lock(&side->lock);
	for (u32 i = 0; i < 3; i++) {
		struct bucket *bucket = &side->buckets[i];

		if (!bucket->shape.rate)
			continue;
		due[i] = bucket->due;
		rest[i] = bucket->rest;
		u64 at = charge(bucket, work, now);

		leaves = at > leaves ? at : leaves;
	}
	if (leaves > now) {
		for (u32 i = 0; i < 3; i++) {
			if (!side->buckets[i].shape.rate)
				continue;
			side->buckets[i].due = due[i];
			side->buckets[i].rest = rest[i];
		}
	} else {
		side->charged += bytes;
		side->delayed += since < now;
	}
	spin_unlock(&side->lock);
	return leaves;
}

INLINE struct turns *turns_of(void)
{
	u32 zero = 0;

	return map_lookup(&all_turns, &zero);
}

INLINE struct side *side_of(u32 slot)
{
	u32 place = slot * 2 + OUTWARD_SIDE;

	return map_lookup(&sides, &place);
}

INLINE void add_turn(struct turns *turns, struct turn *turn)
{
	turns->number++;
	spin_lock(&turns->lock);
	rbtree_add(&turns->root, &turn->node, turn_less);
	spin_unlock(&turns->lock);
}

// Gives a turn back to a guest without frames.
INLINE void park(struct guest_queue *queue, struct turn *turn)
{
	turn = kptr_xchg(&queue->turn, turn);
	if (turn)
		obj_drop(turn);
}

// Adds a frame to its guest's queue, behind all others or before them. It is dropped if there is no memory; returns
// if it was.
INLINE int add_to_guest(struct guest_queue *queue, struct frame *frame, u32 slot, u64 at, int is_first)
{
	struct turns *turns = turns_of();
	struct turn *turn = NULL;
	u32 bytes = frame->bytes;

	if (!turns) {
		obj_drop(frame);
		return 1;
	}
	if (!queue->frames) {
		turn = kptr_xchg(&queue->turn, NULL);
		if (!turn)
			turn = obj_new(struct turn);
		if (!turn) {
			obj_drop(frame);
			return 1;
		}
	}
	queue->frames++;
	queue->bytes += bytes;
	spin_lock(&queue->lock);
	if (is_first)
		push_front(&queue->list, &frame->node);
	else
		push_back(&queue->list, &frame->node);
	spin_unlock(&queue->lock);
	if (turn) {
		turn->slot = slot;
		turn->at = at;
		add_turn(turns, turn);
	}
	return 0;
}

INLINE u32 length_of(const struct sk_buff *skb)
{
	return ((const struct qdisc_skb_cb *)skb->cb)->pkt_len;
}

// A frame that was taken out of a queue is lost.
INLINE void count_lost(struct Qdisc *qdisc, u32 length)
{
	qdisc->q.qlen--;
	qdisc->qstats.backlog -= length;
	qdisc->qstats.drops++;
}

#include "best_effort.h"

// Before the bucket of the destination until `at`.
INLINE int add_waiting(struct frame *frame, u64 at)
{
	u32 zero = 0;
	struct waits *waits = map_lookup(&all_waits, &zero);
	struct waiting *waiting = waits ? obj_new(struct waiting) : NULL;

	if (!waits || !waiting) {
		if (waiting)
			obj_drop(waiting);
		obj_drop(frame);
		return 1;
	}
	waiting->at = at;
	frame = kptr_xchg(&waiting->frame, frame);
	if (frame)
		obj_drop(frame);
	waits->number++;
	spin_lock(&waits->lock);
	rbtree_add(&waits->root, &waiting->node, waiting_less);
	spin_unlock(&waits->lock);
	return 0;
}

// Whether frames are before buckets of destinations. Others to the same destination must not overtake them, also
// if their times have passed.
INLINE int anyone_waits(void)
{
	u32 zero = 0;
	const struct waits *waits = map_lookup(&all_waits, &zero);

	return waits && waits->number;
}

// What enqueue knows of a frame.
struct arrival {
	u32 slot;
	u32 hash;
	u32 bytes;
	u32 length;
	u64 line_at;
};

INLINE void read_arrival(const struct sk_buff *skb, struct arrival *arrival)
{
	const struct described *described = (void *)((const struct qdisc_skb_cb *)skb->cb)->data;
	u32 length = length_of(skb), who = 0;

	arrival->length = length;
	arrival->bytes = length + OVERHEAD;
	arrival->line_at = 0;
	if (likely(described->mark == DESCRIBED)) {
		who = described->who;
		arrival->bytes = described->bytes;
		arrival->line_at = described->line_at;
	}
	arrival->slot = (who & WHO_SLOT) - 1;
	arrival->hash = who >> HASH_SHIFT;
}

// Queues a frame; returns if it was lost.
INLINE int add(struct guest_queue *queue, struct frame *frame, const struct arrival *arrival, u64 at, u64 now)
{
	if (!queue)
		return add_to_best(frame, arrival->hash);
	if (arrival->line_at > now || (arrival->line_at && anyone_waits()))
		return add_waiting(frame, arrival->line_at);
	return add_to_guest(queue, frame, arrival->slot, at, 0);
}

// (struct sk_buff *skb, struct Qdisc *qdisc, struct bpf_sk_buff_ptr *dropped)
SECTION("classifier") int enqueue(u64 *arguments)
{
	struct sk_buff *skb = (void *)arguments[0];
	struct Qdisc *qdisc = (void *)arguments[1];
	struct bpf_sk_buff_ptr *dropped = (void *)arguments[2];
	struct arrival arrival;
	struct guest_queue *queue = NULL;
	struct first *first;
	u32 zero = 0, slot;

	read_arrival(skb, &arrival);
	slot = arrival.slot;
	first = map_lookup(&firsts, &zero);
	if (slot < SLOTS)
		queue = map_lookup(&guest_queues, &slot);
	if (likely(first && !first->is_there && !arrival.line_at) &&
	    (queue ? !queue->frames : slot >= SLOTS && is_best_empty())) {
		first->is_there = 1;
		first->bytes = arrival.bytes;
		first->slot = slot;
		skb = kptr_xchg(&first->skb, skb);
		if (skb)
			skb_drop(skb, dropped);
		qdisc->q.qlen++;
		qdisc->qstats.backlog += arrival.length;
		return NET_XMIT_SUCCESS;
	}
	u64 now = ktime(), at = now;

	if (qdisc->q.qlen >= qdisc->limit)
		goto drop;
	if (slot < SLOTS) {
		struct side *side = side_of(slot);

		if (!queue || !side)
			goto drop;
		if (queue->frames)
			at = backlog_ends(side, queue->bytes + arrival.bytes, now);
		else
			at = earliest(side, arrival.bytes, now);
		if (at > now + side->horizon) {
			count_drop(side->ifindex, OUTWARD_HORIZON);
			goto drop;
		}
	} else if (best_is_full()) {
		goto drop;
	}
	struct frame *frame = obj_new(struct frame);

	if (!frame)
		goto drop;
	frame->since = now;
	frame->bytes = arrival.bytes;
	frame->length = arrival.length;
	frame->slot = slot;
	skb = kptr_xchg(&frame->skb, skb);
	if (skb)
		skb_drop(skb, dropped);
	if (add(queue, frame, &arrival, at, now)) {
		qdisc->qstats.drops++;
		return NET_XMIT_DROP;
	}
	qdisc->q.qlen++;
	qdisc->qstats.backlog += arrival.length;
	return NET_XMIT_SUCCESS;
drop:
	qdisc->qstats.drops++;
	skb_drop(skb, dropped);
	return NET_XMIT_DROP;
}

// Takes the first frame that the bucket of its destination lets pass, and puts it behind its guest's others.
// Returns when the next one may pass, 0 for now, and NEVER if there is none.
#define NEVER (~0ULL)
APART u64 pass_on(struct Qdisc *qdisc, u64 now)
{
	u32 zero = 0;
	struct waits *waits = map_lookup(&all_waits, &zero);

	if (!waits || !waits->number)
		return NEVER;
	spin_lock(&waits->lock);
	struct bpf_rb_node *node = rbtree_first(&waits->root);

	if (!node) {
		spin_unlock(&waits->lock);
		return NEVER;
	}
	u64 at = OF(node, struct waiting, node)->at;

	if (at > now) {
		spin_unlock(&waits->lock);
		return at;
	}
	node = rbtree_remove(&waits->root, node);
	spin_unlock(&waits->lock);
	if (!node)
		return NEVER;
	waits->number--;
	struct waiting *waiting = OF(node, struct waiting, node);
	struct frame *frame = kptr_xchg(&waiting->frame, NULL);

	obj_drop(waiting);
	if (!frame)
		return 0;
	u32 slot = frame->slot, length = frame->length;
	struct guest_queue *queue = map_lookup(&guest_queues, &slot);
	int is_lost = 1;

	if (queue)
		is_lost = add_to_guest(queue, frame, slot, now, 0);
	else
		obj_drop(frame);
	if (is_lost)
		count_lost(qdisc, length);
	return 0;
}

// Takes the earliest turn. Returns when it is if it is not due, 0 if there is one in `found`, and NEVER if there
// is none.
INLINE u64 take_turn(struct turns *turns, u64 now, struct turn **found)
{
	if (!turns->number)
		return NEVER;
	spin_lock(&turns->lock);
	struct bpf_rb_node *node = rbtree_first(&turns->root);

	if (!node) {
		spin_unlock(&turns->lock);
		return NEVER;
	}
	u64 at = OF(node, struct turn, node)->at;

	if (at > now) {
		spin_unlock(&turns->lock);
		return at;
	}
	node = rbtree_remove(&turns->root, node);
	spin_unlock(&turns->lock);
	if (!node)
		return NEVER;
	turns->number--;
	*found = OF(node, struct turn, node);
	return 0;
}

// Serves a turn: takes the first frame of its guest if that may leave, and gives the turn to the next one.
INLINE struct frame *serve(struct turns *turns, struct turn *turn, u64 now)
{
	u32 slot = turn->slot, next_bytes = 0;
	u64 due = turn->at;
	struct guest_queue *queue = map_lookup(&guest_queues, &slot);
	struct side *side = side_of(slot);

	if (!queue || !side) {
		obj_drop(turn);
		return NULL;
	}
	spin_lock(&queue->lock);
	struct bpf_list_node *node = pop_front(&queue->list);
	struct bpf_list_node *next = node ? list_front(&queue->list) : NULL;

	if (next)
		next_bytes = OF(next, struct frame, node)->bytes;
	spin_unlock(&queue->lock);
	if (!node) {
		queue->frames = 0;
		queue->bytes = 0;
		park(queue, turn);
		return NULL;
	}
	struct frame *frame = OF(node, struct frame, node);
	u32 bytes = frame->bytes;
	u64 leaves = depart(side, bytes, now, frame->since);

	if (unlikely(leaves > now)) {
		spin_lock(&queue->lock);
		push_front(&queue->list, &frame->node);
		spin_unlock(&queue->lock);
		turn->at = leaves;
		add_turn(turns, turn);
		return NULL;
	}
	frame->since = due;
	queue->frames--;
	queue->bytes -= bytes;
	if (next_bytes) {
		turn->at = earliest(side, next_bytes, now);
		add_turn(turns, turn);
	} else {
		park(queue, turn);
	}
	return frame;
}

// A frame waited for its turn, and leaves so much later.
INLINE void count_late(u64 late)
{
	u32 zero = 0, bucket = 0;
	struct lateness *its = map_lookup(&lateness, &zero);

	if (!its)
		return;
	LOOP
	for (u64 micros = late >> 10; micros && bucket < LATE_BUCKETS - 1; micros >>= 1)
		bucket++;
	if (bucket < LATE_BUCKETS)
		its->buckets[bucket]++;
	if (late > its->max)
		its->max = late;
}

// Queues the first frame, whose guest has no tokens for it until `at`, before its guest's others.
APART int put_back(struct Qdisc *qdisc, struct first *first, u64 at, u64 now)
{
	struct sk_buff *skb = kptr_xchg(&first->skb, NULL);
	u32 slot = first->slot, bytes = first->bytes;
	struct guest_queue *queue = map_lookup(&guest_queues, &slot);
	struct side *side = side_of(slot);
	struct frame *frame = NULL;

	first->is_there = 0;
	if (!skb)
		return 0;
	u32 length = length_of(skb);

	if (queue && side) {
		if (at > now + side->horizon)
			count_drop(side->ifindex, OUTWARD_HORIZON);
		else
			frame = obj_new(struct frame);
	}
	if (!frame) {
		free_skb(skb);
		count_lost(qdisc, length);
		return 0;
	}
	frame->since = now;
	frame->bytes = bytes;
	frame->length = length;
	frame->slot = slot;
	skb = kptr_xchg(&frame->skb, skb);
	if (skb)
		free_skb(skb);
	if (add_to_guest(queue, frame, slot, at, 1))
		count_lost(qdisc, length);
	return 0;
}

// Takes the first frame if its guest has tokens for it.
INLINE struct sk_buff *take_first_of_guest(struct Qdisc *qdisc, struct first *first, u64 now)
{
	struct side *side = side_of(first->slot);
	u64 at = side ? depart(side, first->bytes, now, now) : now;

	if (unlikely(at > now)) {
		put_back(qdisc, first, at, now);
		return NULL;
	}
	first->is_there = 0;
	return kptr_xchg(&first->skb, NULL);
}

// Takes the first frame whose turn is due, and lowers `next` to when the next one is.
INLINE struct sk_buff *take_due(struct turns *turns, u64 now, u64 *next)
{
	LOOP
	for (u32 i = 0; i < ATTEMPTS; i++) {
		struct turn *turn = NULL;
		u64 at = take_turn(turns, now, &turn);

		if (!turn) {
			*next = at < *next ? at : *next;
			return NULL;
		}
		struct frame *frame = serve(turns, turn, now);

		if (frame) {
			u64 due = frame->since;
			struct sk_buff *skb = kptr_xchg(&frame->skb, NULL);

			obj_drop(frame);
			if (due < now)
				count_late(now - due);
			return skb;
		}
	}
	*next = now;
	return NULL;
}

// (struct Qdisc *qdisc)
SECTION("classifier") struct sk_buff *dequeue(u64 *arguments)
{
	struct Qdisc *qdisc = (void *)arguments[0];

	// The kernel asks once more after each frame.
	if (!qdisc->q.qlen)
		return NULL;
	struct turns *turns = turns_of();
	struct sk_buff *skb = NULL;
	u32 zero = 0;
	struct first *first = map_lookup(&firsts, &zero);

	if (!turns || !first)
		return NULL;
	u64 now = ktime(), next = NEVER;

	if (unlikely(anyone_waits())) {
		LOOP
		for (u32 i = 0; i < ATTEMPTS; i++) {
			next = pass_on(qdisc, now);
			if (next)
				break;
		}
	}
	if (first->is_there && first->slot < SLOTS)
		skb = take_first_of_guest(qdisc, first, now);
	if (!skb)
		skb = take_due(turns, now, &next);
	if (!skb && first->is_there) {
		first->is_there = 0;
		skb = kptr_xchg(&first->skb, NULL);
	}
	if (!skb) {
		struct frame *frame = take_best(qdisc, now);

		if (frame) {
			skb = kptr_xchg(&frame->skb, NULL);
			obj_drop(frame);
		}
	}
	if (skb) {
		qdisc->q.qlen--;
		qdisc->qstats.backlog -= length_of(skb);
		count_sent(qdisc, skb);
		return skb;
	}
	if (next != NEVER)
		watchdog(qdisc, next, 0);
	return NULL;
}

// (struct Qdisc *qdisc, struct nlattr *options, struct netlink_ext_ack *error)
SECTION("classifier") int start(u64 *arguments)
{
	struct Qdisc *qdisc = (void *)arguments[0];

	qdisc->limit = LIMIT_OF_ALL;
	return 0;
}

// Drops a frame of those that wait; returns 1 after the last one.
static int drop_one(u32 at, void *context)
{
	struct turns *turns = turns_of();
	u32 zero = 0;
	struct waits *waits = map_lookup(&all_waits, &zero);
	struct first *first = map_lookup(&firsts, &zero);
	struct turn *turn = NULL;
	struct frame *frame = NULL;

	(void)at;
	(void)context;
	if (!turns || !waits || !first)
		return 1;
	struct sk_buff *skb = kptr_xchg(&first->skb, NULL);

	first->is_there = 0;
	if (skb)
		free_skb(skb);
	take_turn(turns, NEVER, &turn);
	if (turn) {
		u32 slot = turn->slot;
		struct guest_queue *queue = map_lookup(&guest_queues, &slot);

		if (!queue) {
			obj_drop(turn);
			return 0;
		}
		spin_lock(&queue->lock);
		struct bpf_list_node *node = pop_front(&queue->list);

		spin_unlock(&queue->lock);
		if (!node) {
			queue->frames = 0;
			queue->bytes = 0;
			park(queue, turn);
			return 0;
		}
		obj_drop(OF(node, struct frame, node));
		add_turn(turns, turn);
		return 0;
	}
	spin_lock(&waits->lock);
	struct bpf_rb_node *node = rbtree_first(&waits->root);

	if (node)
		node = rbtree_remove(&waits->root, node);
	spin_unlock(&waits->lock);
	if (node) {
		obj_drop(OF(node, struct waiting, node));
		waits->number = 0;
		return 0;
	}
	frame = take_any_best();
	if (!frame)
		return 1;
	obj_drop(frame);
	return 0;
}

// (struct Qdisc *qdisc)
SECTION("classifier") int reset(u64 *arguments)
{
	struct Qdisc *qdisc = (void *)arguments[0];

	loop(2 * LIMIT_OF_ALL, drop_one, NULL, 0);
	qdisc->q.qlen = 0;
	qdisc->qstats.backlog = 0;
	return 0;
}

// (struct Qdisc *qdisc)
SECTION("classifier") int destroy(u64 *arguments)
{
	(void)arguments;
	return 0;
}
