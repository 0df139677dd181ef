// The frames that leave an interface: time, length and departure time of each.
//
// `net_dev_start_xmit` is where the kernel gives a frame to a driver, after all queues of its own.
// `scripts/bpf` makes departures.bpf.o of this; ../departures.rs loads it, and has the same structs.
// Where the members of the kernel's structs are is looked up in its BTF at load time (CO-RE).

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))

char licence[] SECTION("license") = "Dual MIT/GPL";

// include/uapi/linux/bpf.h
enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2 };
static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static u64 (*const ktime)(void) = (void *)5;
static long (*const read_kernel)(void *to, u32 size, const void *from) = (void *)113;

#define uint(name, value) int(*name)[value]

// The kernel's own.
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct net_device {
	int ifindex;
};
struct sk_buff {
	u64 tstamp;
	u32 len;
	u32 end;
	u8 *head;
};
struct skb_shared_info {
	u16 gso_segs;
};
#pragma clang attribute pop

struct departure {
	u64 time;
	// The departure time that the frame had (`skb->tstamp`); 0 for none.
	u64 due;
	u32 len;
	u32 ifindex;
	// Frames on the wire that a packet of GSO becomes; 0 or 1 for a frame.
	u32 segments;
	u32 unused;
};

// Interfaces whose departures are logged.
struct {
	uint(type, BPF_MAP_TYPE_HASH);
	uint(max_entries, 16);
	u32 *key;
	u32 *value;
} interfaces SECTION(".maps");

// The loader sets the length.
struct {
	uint(type, BPF_MAP_TYPE_ARRAY);
	uint(max_entries, 1);
	u32 *key;
	struct departure *value;
} departures SECTION(".maps");

// How many there were, also of those beyond the end of the log.
struct {
	uint(type, BPF_MAP_TYPE_ARRAY);
	uint(max_entries, 1);
	u32 *key;
	u64 *value;
} count SECTION(".maps");

SECTION("tp_btf/net_dev_start_xmit")
int on_departure(u64 *arguments)
{
	struct sk_buff *skb = (struct sk_buff *)arguments[0];
	struct net_device *device = (struct net_device *)arguments[1];
	u64 now = ktime();
	u32 ifindex = device->ifindex;
	u32 zero = 0;

	if (!map_lookup(&interfaces, &ifindex))
		return 0;
	u64 *counter = map_lookup(&count, &zero);
	if (!counter)
		return 0;
	u32 at = __sync_fetch_and_add(counter, 1);
	struct departure *departure = map_lookup(&departures, &at);
	if (!departure)
		return 0;
	struct skb_shared_info *shared = (struct skb_shared_info *)(skb->head + skb->end);
	u16 segments = 0;
	read_kernel(&segments, sizeof(segments), &shared->gso_segs);
	departure->time = now;
	departure->due = skb->tstamp;
	departure->len = skb->len;
	departure->ifindex = ifindex;
	departure->segments = segments;
	return 0;
}
