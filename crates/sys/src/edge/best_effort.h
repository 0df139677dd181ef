// Frames without a bucket: fair queues (RFC 8290) with CoDel (RFC 8289), a queue for each destination. They leave
// while no guest's turn is due.

enum { QUEUES = 1 << HASH_BITS, QUANTUM = 16384, ROUNDS = 8, DROPS = 4 };
#define TARGET 5000000ULL
#define INTERVAL 100000000ULL

// A queue's place among those that have frames.
struct round {
	u32 number;
	u32 unused;
	struct bpf_list_node node;
};
// While a queue has no frames its round is kept here.
struct best_queue {
	struct bpf_spin_lock lock;
	u32 frames;
	u64 bytes;
	s64 credit;
	// CoDel: when the delay has been above the target for an interval, when the next drop is, and how many there
	// were.
	u64 above_since;
	u64 next_drop;
	u32 drops;
	u32 last_drops;
	u32 is_dropping;
	// Whether its round is in a list.
	u32 is_listed;
	struct bpf_list_head list CONTAINS(frame, node);
	struct round KPTR *round;
};
// Queues that have frames: new ones, which go first, then the others in turns.
enum { FRESH, OTHERS };
struct rounds {
	struct bpf_spin_lock lock;
	// Of all queues; counted in FRESH.
	u32 frames;
	struct bpf_list_head list CONTAINS(round, node);
};

OWN_ARRAY(best_queues, QUEUES, struct best_queue);
OWN_ARRAY(all_rounds, 2, struct rounds);

INLINE struct rounds *rounds_of(u32 which)
{
	return map_lookup(&all_rounds, &which);
}

INLINE int is_best_empty(void)
{
	struct rounds *rounds = rounds_of(FRESH);

	return rounds && !rounds->frames;
}

INLINE int best_is_full(void)
{
	struct rounds *rounds = rounds_of(FRESH);

	return !rounds || rounds->frames >= LIMIT_OF_BEST;
}

INLINE void add_round(struct rounds *rounds, struct round *round)
{
	spin_lock(&rounds->lock);
	push_back(&rounds->list, &round->node);
	spin_unlock(&rounds->lock);
}

INLINE struct round *take_round(struct rounds *rounds)
{
	spin_lock(&rounds->lock);
	struct bpf_list_node *node = pop_front(&rounds->list);

	spin_unlock(&rounds->lock);
	return node ? OF(node, struct round, node) : NULL;
}

// Appends a frame. It is dropped if there is no memory; returns if it was.
INLINE int add_to_best(struct frame *frame, u32 hash)
{
	u32 number = hash % QUEUES;
	struct best_queue *queue = map_lookup(&best_queues, &number);
	struct rounds *fresh = rounds_of(FRESH);
	struct round *round = NULL;

	if (!queue || !fresh) {
		obj_drop(frame);
		return 1;
	}
	if (!queue->frames) {
		round = kptr_xchg(&queue->round, NULL);
		// None is kept while the queue still has its turn among the others.
		if (!round && !queue->is_listed) {
			round = obj_new(struct round);
			if (!round) {
				obj_drop(frame);
				return 1;
			}
		}
	}
	queue->frames++;
	queue->bytes += frame->bytes;
	fresh->frames++;
	spin_lock(&queue->lock);
	push_back(&queue->list, &frame->node);
	spin_unlock(&queue->lock);
	if (round) {
		round->number = number;
		queue->is_listed = 1;
		queue->credit = QUANTUM;
		add_round(fresh, round);
	}
	return 0;
}

// The time of the next drop: from + interval / sqrt(drops), by Newton's method on whole numbers.
INLINE u64 control_law(u64 from, u32 drops)
{
	// INTERVAL / sqrt(n) = sqrt(INTERVAL^2 / n).
	u64 square = INTERVAL * INTERVAL / (drops ? drops : 1), root = INTERVAL;

	LOOP
	for (u32 i = 0; i < 32; i++) {
		u64 next = (root + square / root) / 2;

		if (next >= root || !next)
			break;
		root = next;
	}
	return from + root;
}

INLINE struct frame *pop_best(struct best_queue *queue, struct rounds *fresh)
{
	spin_lock(&queue->lock);
	struct bpf_list_node *node = pop_front(&queue->list);

	spin_unlock(&queue->lock);
	if (!node)
		return NULL;
	struct frame *frame = OF(node, struct frame, node);

	queue->frames--;
	queue->bytes -= frame->bytes;
	fresh->frames--;
	return frame;
}

// Whether CoDel may drop a frame that leaves its queue now.
INLINE int is_above(struct best_queue *queue, u64 since, u64 now)
{
	// One full frame is no standing queue.
	if (now - since < TARGET || queue->bytes <= 1538) {
		queue->above_since = 0;
		return 0;
	}
	if (!queue->above_since) {
		queue->above_since = now + INTERVAL;
		return 0;
	}
	return now >= queue->above_since;
}

// Whether CoDel drops a frame that leaves its queue now.
INLINE int drops_now(struct best_queue *queue, u64 since, u64 now)
{
	if (!is_above(queue, since, now)) {
		queue->is_dropping = 0;
		return 0;
	}
	if (queue->is_dropping) {
		if (now < queue->next_drop)
			return 0;
		queue->drops++;
		queue->next_drop = control_law(queue->next_drop, queue->drops);
		return 1;
	}
	u32 recent = queue->drops - queue->last_drops;

	queue->is_dropping = 1;
	queue->drops = recent > 1 && (s64)(now - queue->next_drop) < (s64)(16 * INTERVAL) ? recent : 1;
	queue->last_drops = queue->drops;
	queue->next_drop = control_law(now, queue->drops);
	return 1;
}

// The first frame of a queue that CoDel lets pass.
INLINE struct frame *pop_controlled(struct Qdisc *qdisc, struct best_queue *queue, struct rounds *fresh, u64 now)
{
	LOOP
	for (u32 i = 0; i < DROPS; i++) {
		struct frame *frame = pop_best(queue, fresh);

		if (!frame || !drops_now(queue, frame->since, now))
			return frame;
		u32 length = frame->length;

		obj_drop(frame);
		count_lost(qdisc, length);
	}
	return pop_best(queue, fresh);
}

// The next frame of best effort.
APART struct frame *take_best(struct Qdisc *qdisc, u64 now)
{
	struct rounds *fresh = rounds_of(FRESH), *others = rounds_of(OTHERS);

	if (!fresh || !others || !fresh->frames)
		return NULL;
	LOOP
	for (u32 i = 0; i < ROUNDS; i++) {
		u32 is_fresh = 1;
		struct round *round = take_round(fresh);

		if (!round) {
			is_fresh = 0;
			round = take_round(others);
		}
		if (!round)
			return NULL;
		u32 number = round->number;
		struct best_queue *queue = map_lookup(&best_queues, &number);

		if (!queue) {
			obj_drop(round);
			continue;
		}
		if (queue->credit <= 0 && i < ROUNDS - 1) {
			queue->credit += QUANTUM;
			add_round(others, round);
			continue;
		}
		struct frame *frame = pop_controlled(qdisc, queue, fresh, now);

		if (frame) {
			struct rounds *from = is_fresh ? fresh : others;

			queue->credit -= frame->bytes;
			spin_lock(&from->lock);
			push_front(&from->list, &round->node);
			spin_unlock(&from->lock);
			return frame;
		}
		// A queue that is empty again and again does not go first again and again (RFC 8290, 4.2).
		if (is_fresh) {
			add_round(others, round);
			continue;
		}
		queue->is_listed = 0;
		round = kptr_xchg(&queue->round, round);
		if (round)
			obj_drop(round);
	}
	return NULL;
}

// Any frame of best effort, for a queue that is emptied.
INLINE struct frame *take_any_best(void)
{
	struct rounds *fresh = rounds_of(FRESH), *others = rounds_of(OTHERS);

	if (!fresh || !others)
		return NULL;
	LOOP
	for (u32 i = 0; i < ROUNDS; i++) {
		struct round *round = take_round(fresh);

		if (!round)
			round = take_round(others);
		if (!round)
			return NULL;
		u32 number = round->number;
		struct best_queue *queue = map_lookup(&best_queues, &number);

		if (!queue) {
			obj_drop(round);
			continue;
		}
		struct frame *frame = pop_best(queue, fresh);

		if (frame) {
			add_round(others, round);
			return frame;
		}
		queue->is_listed = 0;
		round = kptr_xchg(&queue->round, round);
		if (round)
			obj_drop(round);
	}
	return NULL;
}
