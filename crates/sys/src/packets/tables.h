// What is kept: of interfaces, of frames under way, of connections and of guests. Every table has a
// fixed size. ../raw.rs has the structs that user space reads.

// A slot that no guest has: the host's own frames, and those from outside.
#define NO_SLOT 0xffff
#define BUCKETS 128
#define CELLS 16
#define WAYS 4
#define PLACES 4096
#define STAMPS 65536
#define PACKETS 16384
#define FLOWS 16384
#define QUEUES 1024
#define TIMES 5

// Guests' interfaces, by their indexes in the host's network namespace. User space writes it: a slot
// (16 bits), and of which flows the guest is examined: one in 2^n (16 bits), none from 32 on.
struct place {
	u32 ifindex[WAYS];
	u32 guest[WAYS];
};

// A frame under way in the host: who sent it, and when it was first seen.
struct stamp {
	u64 skb;
	// Time in units of 64 ns (36 bits), slot (16), state (4), check of the address (8).
	u64 word;
};
// A byte of each stamp's address.
struct tags {
	u8 tag[STAMPS];
};
enum {
	// Waits in a CPU's backlog; the next netif_receive_skb is its first one.
	BACKLOG = 1,
	// A struct packet has more of it.
	FOLLOWED = 2,
	// The time is known.
	TIMED = 4,
};

// Bytes that an interface sent, by whose frames they were.
struct cell {
	u64 bytes;
	u32 slot;
	// How much more this guest has sent than others that would have this cell.
	s32 lead;
};
struct queue {
	u32 ifindex;
	u32 unused;
	struct cell cells[CELLS];
};

// Who was sent while a frame waited in a queue.
struct occupant {
	u64 wait;
	u64 bytes;
	u64 own;
	u32 slot;
	u32 ifindex;
};

// ROLE_AGAIN: a request's segment that comes again.
enum { ROLE_NONE, ROLE_REQUEST, ROLE_ANSWER, ROLE_AGAIN };
enum { PACKET_HOST, PACKET_RING };

// A round trip is timed by a frame; it fills its receiver's window.
enum timed { TIMES_TRIP = 1, FILLS_WINDOW = 2 };

// How a frame is known to a connection.
struct part {
	u32 flow;
	u32 born;
	u32 role;
	// A sum of enum timed.
	u32 timed;
};

// A followed frame.
struct packet {
	u32 lock;
	u32 state;
	u64 skb;
	u64 first;
	u64 queued;
	// When it was put into a guest's interface.
	u64 given;
	u32 queue;
	u16 from;
	u16 to;
	struct occupant worst;
	u64 waited;
	// At the guest that sent it, and at the one that gets it.
	struct part sender;
	struct part receiver;
	struct segment segment;
	struct cell before[CELLS];
};

enum { STAGE_IDLE, STAGE_REQUEST, STAGE_ANSWER };
enum { SERVED, MADE, KINDS };

// A connection of a guest.
struct flow {
	u32 lock;
	u32 born;
	struct key key;
	u64 seen;
	// Who opened it: SERVED if the peer did, MADE if the guest did, KINDS if it is not known.
	u32 opener;
	u32 stage;
	u64 began;
	u64 times[TIMES];
	// The end of the answer's first segment.
	u32 answer;
	u32 known[DIRECTIONS];
	u32 high[DIRECTIONS];
	u32 retransmitted[DIRECTIONS];
	u32 closed[DIRECTIONS];
	u32 lost;
	// The guest that the peer's segments come from; NO_SLOT if they come from outside.
	u32 neighbour;
	u32 timed[DIRECTIONS];
	u32 timed_end[DIRECTIONS];
	u64 timed_at[DIRECTIONS];
	// Since when the window of whoever sends in a direction is closed; 0: it is open.
	u64 closed_since[DIRECTIONS];
	// By whoever sends in a direction: what it has acknowledged, its window then, its widest window (0:
	// none was seen), and by how much the scale of its windows is less than the greatest one.
	u32 acked[DIRECTIONS];
	u16 window[DIRECTIONS];
	u16 widest[DIRECTIONS];
	u32 narrowed[DIRECTIONS];
	// Since when its window holds the other side back, once the shortest round trip is over; 0: it does not.
	u64 held_since[DIRECTIONS];
	u64 shortest[DIRECTIONS];
	u64 waited[DIRECTIONS];
	struct occupant worst;
};

struct histogram {
	u64 sum;
	u64 longest;
	u32 counts[BUCKETS];
};

// What was measured of a guest.
struct meter {
	struct histogram queue[DIRECTIONS];
	struct histogram host[DIRECTIONS];
	struct histogram ring;
	struct histogram requests[KINDS];
	// The part of a served request that the guest took, and of a made one that was spent beyond
	// the host.
	struct histogram core[KINDS];
	// The peer's side, and the guest's.
	struct histogram round_trip[DIRECTIONS];
	// From the first segment of a request to its last one, and between the times of an event.
	u64 spent[KINDS][TIMES];
	u64 begun[KINDS];
	u64 segments[DIRECTIONS];
	u64 retransmitted[DIRECTIONS];
	u64 closed[DIRECTIONS];
	u64 closed_time[DIRECTIONS];
	// How often, and for how long, the receiver that sends in a direction held its sender back.
	u64 held[DIRECTIONS];
	u64 held_time[DIRECTIONS];
	u64 events_lost;
};

struct traffic {
	u64 frames[DIRECTIONS];
	u64 bytes[DIRECTIONS];
};

struct drop {
	u32 slot;
	u32 direction;
	// The kernel's reason; where it has none, the address of the code that dropped it.
	u64 reason;
};

// Whom frames waited behind.
struct behind {
	u32 slot;
	u32 direction;
	u32 occupant;
	u32 ifindex;
};
struct delay {
	u64 frames;
	u64 wait;
};

// A slow request.
struct event {
	u32 kind;
	u32 slot;
	struct key key;
	u64 began;
	u64 times[TIMES];
	struct occupant worst;
	u64 waited[DIRECTIONS];
	u32 retransmitted[DIRECTIONS];
	u32 closed[DIRECTIONS];
	u32 lost;
	u32 neighbour;
};

#define ARRAY(name, count, content)                \
	struct {                                   \
		uint(type, BPF_MAP_TYPE_ARRAY);    \
		uint(max_entries, count);          \
		u32 *key;                          \
		struct content *value;             \
	} name SECTION(".maps")

ARRAY(places, PLACES, place);
ARRAY(stamps, STAMPS, stamp);
ARRAY(tags, 1, tags);
ARRAY(packets, PACKETS, packet);
ARRAY(flows, FLOWS, flow);
ARRAY(queues, QUEUES, queue);
ARRAY(meters, 1, meter);

struct {
	uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	uint(max_entries, 1);
	u32 *key;
	struct traffic *value;
} traffics SECTION(".maps");

struct {
	uint(type, BPF_MAP_TYPE_LRU_HASH);
	uint(max_entries, 4096);
	struct drop *key;
	u64 *value;
} drops SECTION(".maps");

struct {
	uint(type, BPF_MAP_TYPE_LRU_HASH);
	uint(max_entries, 4096);
	struct behind *key;
	struct delay *value;
} behinds SECTION(".maps");

struct {
	uint(type, BPF_MAP_TYPE_RINGBUF);
	uint(max_entries, 1 << 18);
} slow_requests SECTION(".maps");

// What user space sets for all guests.
struct control {
	// When the program was last attached: what was known of connections before is of no worth.
	u64 resumed;
	// Whether the time of frames from outside is taken, too, since all flows of a guest are followed.
	u64 times_all;
};
ARRAY(controls, 1, control);

// The network namespace that the interfaces are in.
const volatile u32 host_netns;
// From when on a request is slow, in nanoseconds.
const volatile u64 slow;
const volatile u64 seed;

// A lock that is not waited for: whoever interrupted its holder must go on.
INLINE int lock(u32 *word)
{
	for (int i = 0; i < 16; i++) {
		if (__sync_val_compare_and_swap(word, 0, 1) == 0)
			return 1;
	}
	return 0;
}
INLINE void unlock(u32 *word)
{
	__sync_lock_test_and_set(word, 0);
}

INLINE int in_host(const struct net_device *dev)
{
	const struct net *net = dev->nd_net.net;

	return net && net->ns.inum == host_netns;
}

// The guest of an interface, as in struct place; NO_SLOT if it has none.
INLINE u32 guest_of(u32 ifindex)
{
	u32 at = ifindex & (PLACES - 1);
	struct place *place = map_lookup(&places, &at);

	if (!place)
		return NO_SLOT;
	for (int i = 0; i < WAYS; i++) {
		if (place->ifindex[i] == ifindex)
			return place->guest[i];
	}
	return NO_SLOT;
}
INLINE u32 slot_of(u32 guest)
{
	return guest & 0xffff;
}

// No flow is followed.
#define NONE ~0u

// Returns bits that the hash of a guest's flow may not have to be followed.
INLINE u32 mask_of(u32 guest)
{
	u32 shift = guest >> 16;

	return shift < 32 ? (1u << shift) - 1 : NONE;
}

INLINE const struct control *control(void)
{
	u32 zero = 0;

	return map_lookup(&controls, &zero);
}

// Where a frame is in tables. The verifier lets no program compute with a pointer, but with its lower
// half.
INLINE u32 low_half(const void *skb)
{
	u32 low;

	asm volatile("%0 = %1" : "=w"(low) : "w"((u32)(u64)skb));
	return low;
}
INLINE u64 mixed(const void *skb)
{
	return low_half(skb) * 0x9e3779b97f4a7c15;
}

INLINE u32 stamp_index(const void *skb)
{
	u32 low = low_half(skb);

	return (low >> 8 ^ low >> 24) & (STAMPS - 1);
}
INLINE u8 check_of(const void *skb)
{
	return mixed(skb) >> 40 | 1;
}

// Returns unless an index is within bounds: even where the compiler knows that it is and would leave
// the check out, or make it on another register, where the verifier of Linux 6.1 does not find it.
#define KNOWN_BELOW(index, count)              \
	do {                                   \
		asm volatile("" : "+r"(index)); \
		if (index >= count)            \
			return;                \
	} while (0)

INLINE u8 *tag_at(struct tags *tags, u32 index)
{
	u64 at = index;

	asm volatile("" : "+r"(at));
	return &tags->tag[at & (STAMPS - 1)];
}

// Returns where a frame's stamp is, if there may be one: most frames have none, and find that out in
// one byte that a cache has.
INLINE struct stamp *stamp_at(const void *skb)
{
	u32 zero = 0, at = stamp_index(skb);
	struct tags *all = map_lookup(&tags, &zero);

	if (!all || *tag_at(all, at) != check_of(skb))
		return NULL;
	return map_lookup(&stamps, &at);
}

INLINE void set_stamp(const void *skb, u32 slot, u32 state, u64 now)
{
	u32 zero = 0, at = stamp_index(skb);
	struct tags *all = map_lookup(&tags, &zero);
	struct stamp *stamp = map_lookup(&stamps, &at);

	if (!stamp || !all)
		return;
	stamp->skb = 0;
	stamp->word = now >> 6 << 28 | (u64)(slot & 0xffff) << 12 | (state & 15) << 8 |
		      check_of(skb);
	stamp->skb = (u64)skb;
	*tag_at(all, at) = check_of(skb);
}

// Returns what is known of a frame, or 0. Two words cannot be read at once: the check tells
// whether they belong together.
INLINE u64 get_stamp(const void *skb)
{
	struct stamp *stamp = stamp_at(skb);

	if (!stamp || stamp->skb != (u64)skb)
		return 0;
	u64 word = *(volatile u64 *)&stamp->word;

	return (word & 255) == check_of(skb) ? word : 0;
}
INLINE void clear_stamp(const void *skb)
{
	struct stamp *stamp = stamp_at(skb);

	if (stamp && stamp->skb == (u64)skb)
		stamp->skb = 0;
}
INLINE u32 stamp_slot(u64 word)
{
	return word >> 12 & 0xffff;
}
INLINE u32 stamp_state(u64 word)
{
	return word >> 8 & 15;
}
// When a frame was first seen, if that is known, and otherwise now: up to 64 ns early, and within
// the last 73 minutes.
INLINE u64 stamp_time(u64 word, u64 now)
{
	if (!(stamp_state(word) & TIMED))
		return now;
	return now - (((now >> 6) - (word >> 28)) << 28 >> 28 << 6);
}

INLINE struct packet *packet_at(const void *skb)
{
	u32 at = mixed(skb) >> 50;

	return map_lookup(&packets, &at);
}

// Returns a followed frame, locked.
INLINE struct packet *find_packet(const void *skb)
{
	struct packet *packet = packet_at(skb);

	if (!packet || packet->skb != (u64)skb || !lock(&packet->lock))
		return NULL;
	if (packet->skb == (u64)skb)
		return packet;
	unlock(&packet->lock);
	return NULL;
}

// Begins to follow a frame: returns it, locked.
INLINE struct packet *new_packet(const void *skb, u64 first, u32 from)
{
	struct packet *packet = packet_at(skb);

	if (!packet || !lock(&packet->lock))
		return NULL;
	packet->skb = (u64)skb;
	packet->state = PACKET_HOST;
	packet->first = first;
	packet->queued = 0;
	packet->given = 0;
	packet->from = from;
	packet->to = NO_SLOT;
	packet->waited = 0;
	__builtin_memset(&packet->worst, 0, sizeof(packet->worst));
	__builtin_memset(&packet->sender, 0, sizeof(packet->sender));
	__builtin_memset(&packet->receiver, 0, sizeof(packet->receiver));
	return packet;
}

// Four buckets to each power of two from 256 ns on; user space knows their bounds.
INLINE u32 bucket(u64 time)
{
	u64 rest = time;
	u32 power = 0;

	if (rest >> 32) { power += 32; rest >>= 32; }
	if (rest >> 16) { power += 16; rest >>= 16; }
	if (rest >> 8) { power += 8; rest >>= 8; }
	if (rest >> 4) { power += 4; rest >>= 4; }
	if (rest >> 2) { power += 2; rest >>= 2; }
	if (rest >> 1) power += 1;
	if (power < 8)
		return 0;
	u32 at = (power - 8) * 4 + (time >> (power - 2) & 3) + 1;

	return at < BUCKETS ? at : BUCKETS - 1;
}

INLINE void count(struct histogram *histogram, u64 time)
{
	u64 at = bucket(time);

	asm volatile("" : "+r"(at));
	if (at >= BUCKETS)
		return;
	ADD(histogram->counts[at], 1);
	ADD(histogram->sum, time);
	if (time > histogram->longest)
		histogram->longest = time;
}
