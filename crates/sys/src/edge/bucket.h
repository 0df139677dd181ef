// Token buckets by virtual scheduling, exact: as units::exact::TokenBucket, whose documentation has
// the algorithm. A guest's buckets of one direction have one lock, so that several CPUs charge a
// chain as one.

#define BYTE 8000000000ULL
#define OVERHEAD 24
#define SHORTEST 60

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

// Charges `work` that arrives at `arrival`, and returns when it leaves. A packet of GSO that is longer
// than the bucket is deep leaves once the bucket is full, and owes the rest: with virtual scheduling alone
// it would leave when the bucket held more than its depth, and two such packets could follow each other.
INLINE u64 charge(struct bucket *bucket, u64 work, u64 arrival)
{
	u64 rate = bucket->shape.rate, depth = bucket->shape.depth;
	u64 due = bucket->due, rest = bucket->rest;
	u64 ticks = work / rate, more = work - ticks * rate;

	if (due < arrival) {
		bucket->due = arrival + ticks;
		bucket->rest = more;
		return arrival;
	}
	u64 full = due + !!rest, depth_rest = bucket->shape.depth_rest;
	int is_long = ticks > depth || (ticks == depth && more > depth_rest);

	rest += more;
	if (rest >= rate) {
		rest -= rate;
		ticks++;
	}
	due += ticks;
	bucket->due = due;
	bucket->rest = rest;
	if (unlikely(is_long))
		return full;
	if (rest > depth_rest)
		due++;
	due -= depth;
	// A moment before the first one has wrapped around.
	return (s64)due > (s64)arrival ? due : arrival;
}

// Charges `bytes` to a chain of `number` buckets. Returns when the frame leaves, or 0 if that is beyond the
// horizon: then nothing is charged.
INLINE u64 charge_chain(struct side *side, u32 number, u64 bytes, u64 now, u64 arrival, u64 horizon)
{
	u64 work = bytes * BYTE, leaves = arrival;
	u64 due[3] = {}, rest[3] = {};

	spin_lock(&side->lock);
	for (u32 i = 0; i < number; i++) {
		struct bucket *bucket = &side->buckets[i];

		if (!bucket->shape.rate)
			continue;
		due[i] = bucket->due;
		rest[i] = bucket->rest;
		leaves = charge(bucket, work, leaves);
	}
	if (unlikely(leaves > now + horizon)) {
		for (u32 i = 0; i < number; i++) {
			if (!side->buckets[i].shape.rate)
				continue;
			side->buckets[i].due = due[i];
			side->buckets[i].rest = rest[i];
		}
		leaves = 0;
	} else {
		side->charged += bytes;
		side->delayed += leaves > now;
	}
	spin_unlock(&side->lock);
	return leaves;
}

INLINE int is_of(const struct bucket *bucket, const struct shape *shape)
{
	return bucket->shape.rate == shape->rate && bucket->shape.depth == shape->depth &&
	       bucket->shape.depth_rest == shape->depth_rest;
}

// Makes a bucket follow a shape; one of rate 0 has no bucket.
INLINE void follow(struct bucket *bucket, const struct shape *shape, u64 now)
{
	if (!shape->rate)
		bucket->shape.rate = 0;
	else if (!is_of(bucket, shape))
		reshape(bucket, shape, now);
}

// Brings a side up to date.
INLINE void renew(struct side *side, const struct rules *rules, u32 ifindex, u32 which, u64 now)
{
	const struct shape *from = which == INWARD_SIDE ? &rules->shapes[INWARD] : rules->shapes;
	struct shape shapes[3] = {};
	u32 number = which == INWARD_SIDE ? 1 : 3, flags = rules->flags, pcp = rules->pcp;
	u32 longest = rules->longest, generation = rules->generation, slot = rules->slot;
	u64 horizon = rules->horizon, rates = 0;

	for (u32 i = 0; i < number; i++) {
		shapes[i] = from[i];
		if (i != PEAK)
			rates |= shapes[i].rate;
	}
	if (rates)
		flags |= WAITS;
	spin_lock(&side->lock);
	for (u32 i = 0; i < number; i++)
		follow(&side->buckets[i], &shapes[i], now);
	side->ifindex = ifindex;
	side->slot = slot;
	side->horizon = horizon;
	side->flags = flags;
	side->pcp = pcp;
	side->longest = longest;
	side->generation = generation;
	spin_unlock(&side->lock);
}

// Makes the bucket of a destination follow a shape from now on, or from the departure of the last frame that
// waits: those keep their times, and a higher rate lets no later one leave among them.
INLINE void follow_line(struct bucket *bucket, const struct shape *shape, u64 now)
{
	u64 last = bucket->due + !!bucket->rest - bucket->shape.depth - !!bucket->shape.depth_rest;

	follow(bucket, shape, bucket->shape.rate && (s64)(last - now) > 0 ? last : now);
}

// Lets the bucket of a destination have a shape.
INLINE void settle(struct line_side *side, const struct shape *from, u64 now)
{
	struct shape shape = *from;

	spin_lock(&side->lock);
	follow_line(&side->bucket, &shape, now);
	spin_unlock(&side->lock);
}

// Charges `bytes` to the bucket of a destination, as charge_chain does.
INLINE u64 charge_line(struct line_side *side, const struct shape *from, u64 bytes, u64 now, u64 horizon)
{
	struct shape shape = *from;

	spin_lock(&side->lock);
	struct bucket *bucket = &side->bucket;

	follow_line(bucket, &shape, now);
	u64 due = bucket->due, rest = bucket->rest;
	u64 leaves = charge(bucket, bytes * BYTE, now);

	if (leaves > now + horizon) {
		bucket->due = due;
		bucket->rest = rest;
		leaves = 0;
	} else {
		side->charged += bytes;
		side->delayed += leaves > now;
	}
	spin_unlock(&side->lock);
	return leaves;
}
