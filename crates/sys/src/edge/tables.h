// The maps, which userspace writes and reads: raw.rs has the same layouts. A change of any of them
// needs another LAYOUT in edge.rs.

// A token bucket: its rate in bits a second, 0 for none, and its burst as the time in which it
// fills, in nanoseconds and a rest in 1/rate nanoseconds (units::exact).
struct shape {
	u64 rate;
	u64 depth;
	u64 depth_rest;
};

// The buckets of a guest. Frames to the uplink pass the first three in this order.
enum { LIMIT, GUARANTEE, PEAK, INWARD, SHAPES };

struct prefix4 {
	u32 address;
	u32 mask;
};
struct prefix6 {
	u64 address[2];
	u64 mask[2];
};

enum { OWN4 = 16, OWN6 = 17, OPEN6 = 4, CHOSEN = 16 };
// Bits of `flags`. IS_SPLIT: some destinations have buckets of their own, before the splitter; HAS_LINES: in the
// qdisc of the uplink. IS_DIRECT: frames pass the bridge only now and then.
enum { GUARDS = 1, TAGS = 2, HAS_PCP = 4, IS_SPLIT = 8, IS_DIRECT = 16, WAITS = 32, HAS_LINES = 64 };

// The rules of a guest; the key is the interface's index. An update replaces the whole at once.
struct rules {
	u8 mac[6];
	u8 dscp;
	u8 pcp;
	u32 flags;
	u32 roles;
	u32 own4_count;
	u32 own6_count;
	u32 open6_count;
	u32 max_chosen;
	u32 mark;
	u32 mark_mask;
	// Its place in `sides`.
	u32 slot;
	// The longest packet to an uplink, in bytes on the wire; 0 for any.
	u32 longest;
	u64 horizon;
	// Another one for each change of the rules, and the bridge of the guest for IS_DIRECT.
	u32 generation;
	u32 bridge;
	struct shape shapes[SHAPES];
	struct prefix4 own4[OWN4];
	struct prefix6 own6[OWN6];
	struct prefix6 open6[OPEN6];
};

// A bucket as it was charged last: the moment at which it is full again, and for which shape.
struct bucket {
	u64 due;
	u64 rest;
	struct shape shape;
};

enum { OUTWARD_SIDE, INWARD_SIDE };
// The state of a guest's buckets in one direction, with a copy of the rules that they follow: those of
// `generation`. A side of another generation is brought up to date by the next frame.
struct side {
	struct bpf_spin_lock lock;
	// The guest's interface; 0 before its first frame.
	u32 ifindex;
	struct bucket buckets[3];
	u64 delayed;
	u64 charged;
	u64 horizon;
	u32 generation;
	u32 flags;
	u32 pcp;
	u32 longest;
	u32 slot;
	u32 unused;
};

// Where the rules of an interface are: a place in `plains`, the half of which is the guest's slot.
struct port {
	u32 place;
	u32 ifindex;
};
// All that plain frames of a guest need: its MAC with the type of IPv4 behind it, as frames have them,
// and its first prefix of IPv4. Each slot has two, used in turns, so that none changes while it is read.
struct plain {
	u64 head;
	u32 address;
	u32 mask;
	u32 mark;
	u32 mark_mask;
	u32 flags;
	u32 dscp;
};
enum { SLOTS = 4096, PORTS = 8192 };

// The way past the bridge that frames of a guest to a station may take, until a tick: the station's MAC in the
// upper 48 bits, and the interface in the others, 0 for the bridge.
struct way {
	u64 way;
	u64 end;
};
// Ways of a guest; the ticks for which one is used; one tick in so many is the bridge's.
enum { WAYS = 8, WAY_LIFE = 25, WAY_REST = 32 };

// A destination of a guest with a bucket of its own.
struct line_key {
	u32 slot;
	u16 unused;
	u8 station[6];
};
struct line {
	struct shape shape;
	// The shape without grants of an exchange of rates, see lease; rate 0 for a line that needs none.
	struct shape alone;
	u64 horizon;
	// Its place in `line_sides`.
	u32 place;
	u32 unused;
};
struct line_side {
	struct bpf_spin_lock lock;
	u32 unused;
	struct bucket bucket;
	u64 delayed;
	u64 charged;
};
enum { LINES = 16384 };

// The exchange of rates renews it. Until `until` all lines have their shapes, until `pledged` the slower of
// their two, and after it those without grants. Both are 0 without an exchange.
struct lease {
	u64 until;
	u64 pledged;
};

// Reasons of drops, as in rules.rs; verdicts are one more.
enum {
	MALFORMED,
	SPOOFED_MAC,
	SPOOFED_IP,
	SPOOFED_ARP,
	SPOOFED_NEIGHBOUR,
	SPOOFED_SOLICITATION,
	ROUTER_CLAIM,
	REDIRECT,
	GROUP_QUERY,
	VRRP,
	HSRP,
	OSPF,
	SOURCE_ROUTE,
	TINY_FRAGMENT,
	DHCP_SERVER,
	FRAGMENTED_DISCOVERY,
	HIDDEN_HEADERS,
	ADDRESS_LIMIT,
	VLAN_TAG,
	ETHER_TYPE,
	OUTWARD_HORIZON,
	INWARD_HORIZON,
	LONG_PACKET,
	REASONS,
};
struct drops {
	u64 counts[REASONS];
};

struct ipv6 {
	u64 half[2];
};
// An address that a guest chose.
struct choice {
	u32 ifindex;
	u32 slot;
	u64 used;
};
// The addresses that a guest chose; `used` is 0 for a free slot.
struct choices {
	struct ipv6 address[CHOSEN];
	u64 used[CHOSEN];
};
struct trie_key {
	u32 length;
	u32 address[4];
};

struct uplink {
	u32 mark;
	// Its bridge; 0 for none.
	u32 bridge;
};

enum { LATE_BUCKETS = 24 };
struct lateness {
	u64 buckets[LATE_BUCKETS];
	u64 max;
};

// An interface with programs, for userspace and for lateness.
struct interface {
	u32 is_uplink;
	u32 way;
	u32 adds_clsact;
	u32 queue;
};

// The segments of a guest's longest packet before tailbound's limit, and by it.
struct offload {
	u32 before;
	u32 made;
};

#define HASH(name, number, key_type, value_type)                                                   \
	struct {                                                                                   \
		uint(type, BPF_MAP_TYPE_HASH);                                                     \
		uint(max_entries, number);                                                         \
		uint(map_flags, BPF_F_NO_PREALLOC);                                                \
		uint(pinning, LIBBPF_PIN_BY_NAME);                                                 \
		key_type *key;                                                                     \
		value_type *value;                                                                 \
	} name SECTION(".maps")

HASH(guests, 4096, u32, struct rules);
HASH(dropped, 4096, u32, struct drops);
// The guest of each value of the firewall mark.
HASH(marks, 4096, u32, u32);
HASH(uplinks, 64, u32, struct uplink);
HASH(interfaces, 4160, u32, struct interface);
// For userspace: the limit of offload at a guest's end.
HASH(offloads, 4096, u32, struct offload);
// IPv6 addresses that guests chose, and those of each guest.
HASH(chosen, 65536, struct ipv6, struct choice);
HASH(choices_of, 4096, u32, struct choices);
// The guest of each MAC address.
HASH(stations, 4096, u64, u32);

// Both directions of each guest, by its slot. An array, since its lookup is no call.
struct {
	uint(type, BPF_MAP_TYPE_ARRAY);
	uint(max_entries, 8192);
	uint(pinning, LIBBPF_PIN_BY_NAME);
	u32 *key;
	struct side *value;
} sides SECTION(".maps");

#define ARRAY(name, number, value_type)                                                            \
	struct {                                                                                   \
		uint(type, BPF_MAP_TYPE_ARRAY);                                                    \
		uint(max_entries, number);                                                         \
		uint(pinning, LIBBPF_PIN_BY_NAME);                                                 \
		u32 *key;                                                                          \
		value_type *value;                                                                 \
	} name SECTION(".maps")

// By the lower bits of the interface's index. Of two guests with the same ones, one is found in `guests`
// alone.
ARRAY(ports, PORTS, struct port);
ARRAY(plains, SLOTS * 2, struct plain);
// The generation of each slot's rules.
ARRAY(generations, SLOTS, u32);
ARRAY(ways, SLOTS * WAYS, struct way);
HASH(lines, LINES, struct line_key, struct line);
ARRAY(line_sides, LINES, struct line_side);
ARRAY(lease, 1, struct lease);
// The interface into which frames to destinations with buckets go; 0 for none.
ARRAY(splitter, 1, u32);

// The guest of each configured IPv6 prefix.
struct {
	uint(type, BPF_MAP_TYPE_LPM_TRIE);
	uint(max_entries, 65536);
	uint(map_flags, BPF_F_NO_PREALLOC);
	uint(pinning, LIBBPF_PIN_BY_NAME);
	struct trie_key *key;
	u32 *value;
} configured SECTION(".maps");

struct {
	uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	uint(max_entries, 1);
	uint(pinning, LIBBPF_PIN_BY_NAME);
	u32 *key;
	struct lateness *value;
} lateness SECTION(".maps");

// The version of all this, written last.
struct {
	uint(type, BPF_MAP_TYPE_ARRAY);
	uint(max_entries, 1);
	uint(pinning, LIBBPF_PIN_BY_NAME);
	u32 *key;
	u64 *value;
} layout SECTION(".maps");

// The host's network namespace.
const volatile u32 host_netns;
// Tests set it: frames arrive when their `tstamp` says.
const volatile u32 clock_of_tests;

INLINE void count_drop(u32 ifindex, u64 reason)
{
	struct drops *drops = map_lookup(&dropped, &ifindex);

	// Otherwise the compiler checks another register than it uses, which Linux 6.1 does not see.
	asm volatile("" : "+r"(reason));
	if (drops && reason < REASONS)
		ADD(drops->counts[reason], 1);
}
