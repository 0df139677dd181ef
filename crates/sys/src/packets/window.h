// Windows of TCP: for how long a receiver holds its sender back. Below, `direction` is that of the
// receiver's own segments, which have its acknowledgements and windows.
//
// A sender may send up to an edge: the acknowledged number plus the window. A window counts units of
// 2^scale bytes, and the scale is in the connection's first segments alone, which may have passed long ago.
// No receiver moves its edge back (RFC 9293, 3.8.6). So if a window shrinks by n units while m bytes more
// are acknowledged, (n - 1) << scale is at most m. The greatest scale that fits leads to an edge that is the
// true one or a later one: a sender that has filled it waits for the receiver.
//
// Such a wait is that of the path, too. The receiver has the part that exceeds the shortest round trip of
// the connection, and only if the window is half of the widest one or less where the wait begins or ends: a
// receiver that reads in time opens its window wholly, however long the path is.

// A sender does not send less than a segment to fill a window (RFC 9293, 3.8.6.2.1).
#define SEGMENT 1460
#define MAX_SCALE 14
// A wait that goes on is counted in parts of this length.
#define HOLD_PART 1000000000

INLINE int after(u32 a, u32 b)
{
	return (s32)(a - b) > 0;
}
INLINE u64 since(u64 now, u64 then)
{
	return now > then ? now - then : 0;
}

// Another connection has the same ports.
INLINE void forget_window(struct flow *flow, u32 direction)
{
	flow->widest[direction] = 0;
	flow->narrowed[direction] = 0;
	flow->held_since[direction] = 0;
	flow->shortest[direction] = 0;
}

INLINE u32 edge_of(const struct flow *flow, u32 direction, u32 acked, u32 window)
{
	return acked + (window << ((MAX_SCALE - flow->narrowed[direction]) & 15));
}

// Returns whether the data that was sent to a receiver leaves no room for another segment.
INLINE int fills_window(struct flow *flow, u32 direction)
{
	u32 window = flow->window[direction];

	if (!flow->widest[direction])
		return 0;
	s32 room = edge_of(flow, direction, flow->acked[direction], window) - flow->high[!direction];

	// The window was shrunk, or this is a probe into a closed one.
	if (room < 0 && window)
		flow->narrowed[direction] = 0;
	return room < SEGMENT && (room >= 0 || !window);
}

// Data that fills the window has left for the receiver.
INLINE void begin_hold(struct flow *flow, u32 direction, u64 now)
{
	u64 trip = flow->shortest[direction];

	if (trip && !flow->held_since[direction] && fills_window(flow, direction))
		flow->held_since[direction] = now + trip;
}

// A part of a wait for a receiver is over.
INLINE void end_hold(struct flow *flow, struct meter *meter, u32 direction, u32 window, u64 now)
{
	u64 time = since(now, flow->held_since[direction]);
	u32 least = flow->window[direction] < window ? flow->window[direction] : window;

	if (time < slow || !time || least * 2 > flow->widest[direction])
		return;
	ADD(meter->held[direction], 1);
	ADD(meter->held_time[direction], time);
	// A closed window of this wait is counted already.
	if (!flow->closed[direction])
		flow->closed[direction] = 1;
}

// The greatest scale with which a window can shrink so far.
INLINE void narrow(struct flow *flow, u32 direction, u32 shrunk, u32 acknowledged)
{
	u32 narrowed = flow->narrowed[direction];

	for (u32 i = 0; i < MAX_SCALE; i++) {
		if (narrowed < MAX_SCALE &&
		    (u64)shrunk << ((MAX_SCALE - narrowed) & 15) > acknowledged)
			narrowed++;
	}
	flow->narrowed[direction] = narrowed;
}

// A receiver acknowledges: `first` is when that was first seen on the host.
INLINE void note_edge(struct flow *flow, struct meter *meter, const struct segment *segment,
		      u32 direction, u64 first)
{
	u32 acked = flow->acked[direction], before = flow->window[direction];
	u32 window = segment->window, more = segment->ack - acked;

	if (flow->widest[direction]) {
		// An older one, that another has passed.
		if ((s32)more < 0 || (!more && window < before && window))
			return;
		if (more && window + 1 < before)
			narrow(flow, direction, before - window - 1, more);
		u32 edge = edge_of(flow, direction, segment->ack, window);
		u64 held = flow->held_since[direction];

		if (held && window && after(edge, edge_of(flow, direction, acked, before))) {
			end_hold(flow, meter, direction, window, first);
			flow->held_since[direction] = 0;
		} else if (held && since(first, held) >= HOLD_PART) {
			end_hold(flow, meter, direction, window, first);
			flow->held_since[direction] = first;
		} else if (!window && (!held || held > first)) {
			flow->held_since[direction] = first;
		}
	}
	flow->acked[direction] = segment->ack;
	flow->window[direction] = window;
	if (window > flow->widest[direction])
		flow->widest[direction] = window;
}

// Windows: `first` is when the segment was first seen on the host.
INLINE void note_window(struct flow *flow, struct meter *meter, const struct segment *segment,
			u32 direction, u64 first)
{
	if (segment->flags & (SYN | RST))
		return;
	u64 since_when = flow->closed_since[direction];

	if (segment->window && since_when) {
		ADD(meter->closed_time[direction], since(first, since_when));
		flow->closed_since[direction] = 0;
	} else if (!segment->window && !since_when) {
		ADD(meter->closed[direction], 1);
		flow->closed[direction]++;
		flow->closed_since[direction] = first;
	}
	if (segment->flags & ACK)
		note_edge(flow, meter, segment, direction, first);
}
