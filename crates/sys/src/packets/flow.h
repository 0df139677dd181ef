// Connections: requests, round trips, retransmissions and windows. A flow is locked by its user.

INLINE int same(const struct key *a, const struct key *b)
{
	const u64 *x = (const void *)a, *y = (const void *)b;
	u64 differ = 0;

	for (u32 i = 0; i < sizeof(*a) / 8; i++)
		differ |= x[i] ^ y[i];
	return !differ;
}

// Takes the entry of a flow that was not seen for longest.
INLINE void claim(struct flow *flow, const struct key *key, u64 now)
{
	u32 born = flow->born + 1;
	u64 *word = (void *)flow;

	// All but the lock.
	for (u32 i = 1; i < sizeof(*flow) / 8; i++)
		word[i] = 0;
	flow->born = born;
	flow->key = *key;
	flow->opener = KINDS;
	flow->seen = now;
}

// Returns the flow of a key, locked, and where it is.
INLINE struct flow *find_flow(const struct key *key, u64 hash, u64 now, u32 *where)
{
	u32 base = (u32)(hash >> 40) & (FLOWS - WAYS), oldest = base;
	u64 age = ~0ull;

	for (u32 i = 0; i < WAYS; i++) {
		u32 at = base | i;
		struct flow *flow = map_lookup(&flows, &at);

		if (!flow)
			return NULL;
		if (same(&flow->key, key)) {
			if (!lock(&flow->lock))
				return NULL;
			*where = at;
			// It may have become another's meanwhile.
			if (same(&flow->key, key)) {
				const struct control *its = control();

				if (its && flow->seen < its->resumed)
					claim(flow, key, now);
				flow->seen = now;
				return flow;
			}
			unlock(&flow->lock);
			return NULL;
		}
		if (flow->seen < age) {
			age = flow->seen;
			oldest = at;
		}
	}
	struct flow *flow = map_lookup(&flows, &oldest);

	if (!flow || !lock(&flow->lock))
		return NULL;
	claim(flow, key, now);
	*where = oldest;
	return flow;
}

// Returns the flow that a frame is part of, locked, unless it is gone.
INLINE struct flow *flow_of(const struct part *part)
{
	u32 at = part->flow;
	struct flow *flow = map_lookup(&flows, &at);

	if (!flow || !part->born || flow->born != part->born || !lock(&flow->lock))
		return NULL;
	if (flow->born == part->born)
		return flow;
	unlock(&flow->lock);
	return NULL;
}

INLINE void tell(struct flow *flow, struct meter *meter, u32 kind)
{
	struct event event = {
		.kind = kind,
		.slot = flow->key.slot,
		.key = flow->key,
		.began = flow->began,
		.worst = flow->worst,
		.lost = flow->lost,
		.neighbour = flow->neighbour,
	};

	for (int i = 0; i < TIMES; i++)
		event.times[i] = flow->times[i];
	for (int i = 0; i < DIRECTIONS; i++) {
		event.waited[i] = flow->waited[i];
		event.retransmitted[i] = flow->retransmitted[i];
		event.closed[i] = flow->closed[i];
	}
	if (ringbuf_output(&slow_requests, &event, sizeof(event), BPF_RB_NO_WAKEUP))
		ADD(meter->events_lost, 1);
}

// A request is over. Times that are not known are those before them.
INLINE void finish(struct flow *flow)
{
	struct meter *meter = map_lookup(&meters, &flow->key.slot);
	u64 kind = flow->opener;

	flow->stage = STAGE_IDLE;
	KNOWN_BELOW(kind, KINDS);
	if (!meter)
		return;
	u64 last = flow->began;

	ADD(meter->spent[kind][0], since(flow->times[0], flow->began));
	for (int i = 0; i < TIMES; i++) {
		if (flow->times[i] < last)
			flow->times[i] = last;
		if (i)
			ADD(meter->spent[kind][i], flow->times[i] - last);
		last = flow->times[i];
	}
	count(&meter->requests[kind], last - flow->began);
	if (kind == SERVED)
		count(&meter->core[kind], flow->times[3] - flow->times[2]);
	else
		count(&meter->core[kind], flow->times[2] - flow->times[1]);
	if (last - flow->began >= slow)
		tell(flow, meter, kind);
}

INLINE void begin(struct flow *flow, struct meter *meter, u64 kind, u64 now)
{
	KNOWN_BELOW(kind, KINDS);
	flow->stage = STAGE_REQUEST;
	flow->began = now;
	flow->lost = 0;
	flow->neighbour = NO_SLOT;
	__builtin_memset(&flow->worst, 0, sizeof(flow->worst));
	for (int i = 0; i < TIMES; i++)
		flow->times[i] = 0;
	for (int i = 0; i < DIRECTIONS; i++) {
		flow->retransmitted[i] = 0;
		flow->closed[i] = 0;
		flow->waited[i] = 0;
	}
	ADD(meter->begun[kind], 1);
}

// Who opened a connection, as far as a segment tells; the port that is smaller is the server's.
INLINE void note_opener(struct flow *flow, const struct segment *segment, u32 direction)
{
	u32 opener = direction == IN ? SERVED : MADE;

	if (segment->flags & SYN) {
		if (segment->flags & ACK)
			opener = direction == IN ? MADE : SERVED;
		// The ports are used again.
		if (flow->known[direction] && flow->high[direction] != segment->seq + 1) {
			flow->stage = STAGE_IDLE;
			flow->known[direction] = 0;
			flow->timed[IN] = flow->timed[OUT] = 0;
			forget_window(flow, direction);
		}
		flow->opener = opener;
	} else if (flow->opener == KINDS) {
		flow->opener = flow->key.guest_port <= flow->key.peer_port ? SERVED : MADE;
	}
}

// An acknowledgement of what went the other way: a round trip, timed to when it was first seen.
INLINE void note_acknowledgement(struct flow *flow, struct meter *meter,
				 const struct segment *segment, u32 direction, u64 first)
{
	u32 other = !direction;

	if (!(segment->flags & ACK) || !flow->timed[other] ||
	    after(flow->timed_end[other], segment->ack))
		return;
	flow->timed[other] = 0;
	// Before it left it cannot be answered.
	if (flow->timed_at[other] && !(segment->flags & RST)) {
		u64 trip = since(first, flow->timed_at[other]), shortest = flow->shortest[direction];

		count(&meter->round_trip[direction], trip);
		if (trip && (!shortest || trip < shortest))
			flow->shortest[direction] = trip;
	}
}

// Returns whether a segment has data that was not there before.
INLINE int note_data(struct flow *flow, struct meter *meter, const struct segment *segment,
		     u32 direction, struct part *part)
{
	u32 end = segment->seq + segment->payload + !!(segment->flags & SYN) +
		  !!(segment->flags & FIN);
	u32 known = flow->known[direction], high = flow->high[direction];

	if (end == segment->seq || segment->flags & RST)
		return 0;
	if (known && !after(end, high)) {
		// Whether the window is open, or the peer there, is asked by a byte that is old.
		if (segment->payload <= 1 && !(segment->flags & (SYN | FIN)) && end == high)
			return 0;
		ADD(meter->segments[direction], 1);
		ADD(meter->retransmitted[direction], 1);
		flow->retransmitted[direction]++;
		// Of what was sent twice nobody knows which is acknowledged (Karn).
		flow->timed[direction] = 0;
		return 0;
	}
	ADD(meter->segments[direction], 1);
	flow->known[direction] = 1;
	flow->high[direction] = end;
	if (!flow->timed[direction]) {
		flow->timed[direction] = 1;
		flow->timed_end[direction] = end;
		flow->timed_at[direction] = 0;
		part->timed |= TIMES_TRIP;
	}
	if (segment->payload && fills_window(flow, !direction))
		part->timed |= FILLS_WINDOW;
	return segment->payload != 0;
}

// A segment with data of a request, or of its answer: `first` is when it was first seen, and `now`
// when it passes the guest's interface, which is the same for what the guest sends.
INLINE void note_request(struct flow *flow, struct meter *meter, struct part *part, u32 direction,
			 u64 first, u64 now)
{
	u32 kind = flow->opener;

	if (kind >= KINDS)
		return;
	if (direction == (kind == SERVED ? IN : OUT)) {
		if (flow->stage == STAGE_ANSWER)
			finish(flow);
		if (flow->stage == STAGE_IDLE)
			begin(flow, meter, kind, first);
		flow->times[0] = first;
		flow->times[1] = kind == SERVED ? now : 0;
		flow->times[2] = 0;
		part->role = ROLE_REQUEST;
	} else if (flow->stage == STAGE_REQUEST) {
		flow->stage = STAGE_ANSWER;
		flow->answer = flow->high[direction];
		if (kind == SERVED) {
			flow->times[3] = first;
		} else {
			flow->times[2] = first;
			flow->times[3] = now;
		}
		flow->times[4] = 0;
		part->role = ROLE_ANSWER;
	}
}

// Data that comes again counts as the first one, if that did not get where it should.
INLINE void note_again(struct flow *flow, const struct segment *segment, struct part *part,
		       u32 direction)
{
	u32 kind = flow->opener, end = segment->seq + segment->payload;

	if (!segment->payload || kind >= KINDS)
		return;
	int request = direction == (kind == SERVED ? IN : OUT);

	if (request && flow->stage == STAGE_REQUEST && end == flow->high[direction])
		part->role = ROLE_AGAIN;
	if (!request && flow->stage == STAGE_ANSWER && end == flow->answer)
		part->role = ROLE_ANSWER;
}

// A segment passes the guest's interface.
INLINE void note_segment(struct flow *flow, const struct segment *segment, struct part *part,
			 u32 direction, u64 first, u64 now)
{
	struct meter *meter = map_lookup(&meters, &flow->key.slot);

	if (!meter)
		return;
	note_opener(flow, segment, direction);
	note_window(flow, meter, segment, direction, first);
	note_acknowledgement(flow, meter, segment, direction, first);
	if (note_data(flow, meter, segment, direction, part))
		note_request(flow, meter, part, direction, first, now);
	else
		note_again(flow, segment, part, direction);
}

INLINE void note_wait(struct flow *flow, const struct packet *packet, u32 direction)
{
	flow->waited[direction] += packet->waited;
	if (packet->worst.wait > flow->worst.wait)
		flow->worst = packet->worst;
}

// A frame of the guest has left the host.
INLINE void note_left(const struct packet *packet, u64 now)
{
	const struct part *part = &packet->sender;

	if (!part->role && !part->timed)
		return;
	struct flow *flow = flow_of(part);

	if (!flow)
		return;
	if (part->timed & TIMES_TRIP && flow->timed[OUT] && !flow->timed_at[OUT])
		flow->timed_at[OUT] = now;
	if (part->timed & FILLS_WINDOW)
		begin_hold(flow, IN, now);
	int again = part->role == ROLE_AGAIN && !flow->times[1];

	if ((part->role == ROLE_REQUEST || again) && flow->opener == MADE &&
	    flow->stage == STAGE_REQUEST) {
		flow->times[1] = now;
		note_wait(flow, packet, OUT);
	}
	if (part->role == ROLE_ANSWER && flow->opener == SERVED && flow->stage == STAGE_ANSWER) {
		flow->times[4] = now;
		note_wait(flow, packet, OUT);
		finish(flow);
	}
	unlock(&flow->lock);
}

// A frame for the guest was taken out of its interface.
INLINE void note_taken(const struct part *part, u64 now)
{
	if (!part->role)
		return;
	struct flow *flow = flow_of(part);

	if (!flow)
		return;
	int again = part->role == ROLE_AGAIN && !flow->times[2];

	if ((part->role == ROLE_REQUEST || again) && flow->opener == SERVED &&
	    flow->stage == STAGE_REQUEST)
		flow->times[2] = now;
	if (part->role == ROLE_ANSWER && flow->opener == MADE && flow->stage == STAGE_ANSWER) {
		flow->times[4] = now;
		finish(flow);
	}
	unlock(&flow->lock);
}
