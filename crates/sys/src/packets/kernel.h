// What packets.bpf.c uses of the kernel: helpers, and those members of its types that are read.
// Where a member is, is looked up in the kernel's BTF when the program is loaded (CO-RE).

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define NULL ((void *)0)

// The licence of the project, by a name for it that the kernel takes as compatible with the GPL:
// others may not read its structs.
char licence[] SECTION("license") = "Dual MIT/GPL";

// include/uapi/linux/bpf.h
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_ANY = 0,
	BPF_RB_NO_WAKEUP = 1,
};
static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) =
	(void *)2;
static u64 (*const ktime)(void) = (void *)5;
static long (*const probe_read)(void *to, u32 size, const void *from) = (void *)113;
static long (*const ringbuf_output)(void *map, void *data, u64 size, u64 flags) = (void *)130;

#define uint(name, value) int(*name)[value]
#define FIELD(from, field, kind) __builtin_preserve_field_info((from)->field, kind)
enum { BYTE_OFFSET, BYTE_SIZE, EXISTS };
#define ADD(where, number) __sync_fetch_and_add(&(where), number)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct ns_common {
	u32 inum;
};
struct net {
	struct ns_common ns;
};
struct device {
	struct device *parent;
};
struct Qdisc {
	int (*enqueue)(void);
};
struct netdev_queue {
	struct Qdisc *qdisc;
};
struct rtnl_link_ops {
	const char *kind;
};
struct net_device {
	u32 ifindex;
	u16 type;
	struct {
		struct net *net;
	} nd_net;
	struct netdev_queue *_tx;
	struct device dev;
	const struct rtnl_link_ops *rtnl_link_ops;
};
struct sock_common {
	u16 skc_family;
	struct {
		struct net *net;
	} skc_net;
};
struct sock {
	struct sock_common __sk_common;
};
struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	u32 len;
	u32 data_len;
	u32 skb_iif;
	u16 protocol;
	u8 *head;
	u8 *data;
	u32 end;
};
struct skb_shared_info {
	u16 gso_size;
};
// Its member is there if the tracepoint has that argument (Linux 5.17).
struct trace_event_raw_kfree_skb {
	int reason;
};
#pragma clang attribute pop

#define AF_INET 2
#define AF_INET6 10
#define AF_PACKET 17
#define ARPHRD_ETHER 1
