// Token buckets by virtual scheduling, exact: as units::exact::TokenBucket, whose documentation has
// the algorithm. A guest's buckets of one direction have one lock, so that several CPUs charge a
// chain as one.

#define BYTE 8000000000ULL
#define OVERHEAD 24
#define SHORTEST 60

struct cost {
	u64 ticks;
	u64 rest;
};

// Bytes on the wire, with preamble, gap and check sequence of each frame.
INLINE u64 wire_bytes(const struct __sk_buff *skb)
{
	u32 len = skb->wire_len, size = skb->gso_size, frames = 1;

	if (size) {
		frames = skb->gso_segs;
		// Unknown of packets that a guest's kernel leaves to be segmented. Headers have 42 bytes
		// or more, so that this may count one too many.
		if (!frames)
			frames = (skb->len - 42 + size - 1) / size;
	}
	if (len < SHORTEST)
		len = SHORTEST;
	return len + (u64)frames * (OVERHEAD + (skb->vlan_present ? 4 : 0));
}

// Takes the shape that the rules have now: tokens stay, and what is missing stays missing. A new
// bucket is empty.
INLINE void reshape(struct bucket *bucket, const struct shape *shape, u64 now)
{
	u64 work = 0, had = bucket->shape.rate;

	if (!had) {
		bucket->due = now + shape->depth;
		bucket->rest = shape->depth_rest;
		bucket->shape = *shape;
		return;
	}
	if (bucket->due >= now) {
		u64 ahead = bucket->due - now;

		work = ahead > (~0ULL >> 1) / had ? ~0ULL >> 1 : ahead * had + bucket->rest;
	}
	work += shape->depth * shape->rate + shape->depth_rest;
	u64 before = bucket->shape.depth * had + bucket->shape.depth_rest;

	work = work > before ? work - before : 0;
	bucket->due = now + work / shape->rate;
	bucket->rest = work % shape->rate;
	bucket->shape = *shape;
}

// Charges a frame that arrives at `arrival`, and returns when it leaves. A packet of GSO that is longer
// than the bucket is deep leaves once the bucket is full, and owes the rest: with virtual scheduling alone
// it would leave when the bucket held more than its depth, and two such packets could follow each other.
INLINE u64 charge(struct bucket *bucket, const struct shape *shape, const struct cost *cost,
		  u64 arrival)
{
	u64 due = bucket->due, rest = bucket->rest, ticks = cost->ticks;

	if (due < arrival) {
		bucket->due = arrival + ticks;
		bucket->rest = cost->rest;
		return arrival;
	}
	u64 full = due + !!rest;
	int is_long = ticks > shape->depth ||
		      (ticks == shape->depth && cost->rest > shape->depth_rest);

	rest += cost->rest;
	if (rest >= shape->rate) {
		rest -= shape->rate;
		ticks++;
	}
	due += ticks;
	bucket->due = due;
	bucket->rest = rest;
	if (is_long)
		return full;
	if (rest > shape->depth_rest)
		due++;
	due -= shape->depth;
	// A moment before the first one has wrapped around.
	return (s64)due > (s64)arrival ? due : arrival;
}

INLINE int is_of(const struct bucket *bucket, const struct shape *shape)
{
	return bucket->shape.rate == shape->rate && bucket->shape.depth == shape->depth &&
	       bucket->shape.depth_rest == shape->depth_rest;
}

// Charges `bytes` to a chain of `number` buckets, of `shapes`. Returns when the frame leaves, or 0 if
// that is beyond the horizon: then nothing is charged.
INLINE u64 charge_chain(struct side *side, const struct shape *shapes, u32 number, u64 bytes, u64 now,
			u64 arrival, u64 horizon)
{
	struct shape shape[3] = {};
	struct cost cost[3] = {};
	struct cost before[3] = {};

	for (u32 i = 0; i < number; i++) {
		shape[i] = shapes[i];
		if (!shape[i].rate)
			continue;
		cost[i].ticks = bytes * BYTE / shape[i].rate;
		cost[i].rest = bytes * BYTE - cost[i].ticks * shape[i].rate;
	}
	spin_lock(&side->lock);
	u64 leaves = arrival;

	for (u32 i = 0; i < number; i++) {
		struct bucket *bucket = &side->buckets[i];

		if (!shape[i].rate) {
			bucket->shape.rate = 0;
			continue;
		}
		if (!is_of(bucket, &shape[i]))
			reshape(bucket, &shape[i], now);
		before[i].ticks = bucket->due;
		before[i].rest = bucket->rest;
		leaves = charge(bucket, &shape[i], &cost[i], leaves);
	}
	if (leaves > now + horizon) {
		for (u32 i = 0; i < number; i++) {
			if (!shape[i].rate)
				continue;
			side->buckets[i].due = before[i].ticks;
			side->buckets[i].rest = before[i].rest;
		}
		leaves = 0;
	} else {
		side->charged += bytes;
		side->delayed += leaves > now;
	}
	spin_unlock(&side->lock);
	return leaves;
}
