// The kernel's interface, as far as edge.bpf.c and queue.bpf.c use it: the context of traffic control, and
// helpers.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define APART static __attribute__((noinline))
// A function that the verifier looks at once, and not again for each call. Its arguments are a frame and numbers.
#define ONCE __attribute__((noinline))
#define LOOP _Pragma("clang loop unroll(disable)")
#define likely(it) __builtin_expect(!!(it), 1)
#define unlikely(it) __builtin_expect(!!(it), 0)
#define NULL ((void *)0)

char licence[] SECTION("license") = "Dual MIT/GPL";

// include/uapi/linux/bpf.h
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_RECOMPUTE_CSUM = 1,
	LIBBPF_PIN_BY_NAME = 1,
};
enum { TC_ACT_UNSPEC = -1, TC_ACT_SHOT = 2, BPF_F_INGRESS = 1 };

struct bpf_spin_lock {
	u32 value;
};
struct __sk_buff {
	u32 len;
	u32 pkt_type;
	u32 mark;
	u32 queue_mapping;
	u32 protocol;
	u32 vlan_present;
	u32 vlan_tci;
	u32 vlan_proto;
	u32 priority;
	u32 ingress_ifindex;
	u32 ifindex;
	u32 tc_index;
	u32 cb[5];
	u32 hash;
	u32 tc_classid;
	u32 data;
	u32 data_end;
	u32 napi_id;
	u32 family;
	u32 remote_ip4;
	u32 local_ip4;
	u32 remote_ip6[4];
	u32 local_ip6[4];
	u32 remote_port;
	u32 local_port;
	u32 data_meta;
	u64 flow_keys;
	u64 tstamp;
	u32 wire_len;
	u32 gso_segs;
	u64 sk;
	u32 gso_size;
};

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) =
	(void *)2;
static long (*const map_delete)(void *map, const void *key) = (void *)3;
static u64 (*const ktime)(void) = (void *)5;
static long (*const store_bytes)(struct __sk_buff *skb, u32 offset, const void *from, u32 len,
				 u64 flags) = (void *)9;
static long (*const vlan_push)(struct __sk_buff *skb, u16 proto, u16 tci) = (void *)18;
static long (*const vlan_pop)(struct __sk_buff *skb) = (void *)19;
static long (*const redirect)(u32 ifindex, u64 flags) = (void *)23;
static long (*const load_bytes)(const struct __sk_buff *skb, u32 offset, void *to, u32 len) =
	(void *)26;
static long (*const spin_lock)(struct bpf_spin_lock *lock) = (void *)93;
static long (*const spin_unlock)(struct bpf_spin_lock *lock) = (void *)94;
// A clock of ticks, which is read without a call.
static u64 (*const jiffies)(void) = (void *)118;

#define uint(name, value) int(*name)[value]
#define ADD(where, number) __sync_fetch_and_add(&(where), number)

INLINE u16 be16(u16 from)
{
	return __builtin_bswap16(from);
}
INLINE u32 be32(u32 from)
{
	return __builtin_bswap32(from);
}
