// Functions of the kernel that queue.bpf.c calls, its types and its containers. A call of a function has a number
// from FIRST_KFUNC on in place of a helper's: queue.rs has the names in the same order, and ../struct_ops.rs writes
// the identifier that each has in this kernel. Aya's loader knows no symbols of the kernel.

// Where the members are is looked up in the kernel's BTF at load time (CO-RE).
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct qdisc_skb_cb {
	u32 pkt_len;
	u8 data[20];
};
struct sk_buff {
	u64 tstamp;
	char cb[48];
};
struct qdisc_skb_head {
	u32 qlen;
};
struct gnet_stats_queue {
	u32 qlen;
	u32 backlog;
	u32 drops;
};
struct Qdisc {
	u32 limit;
	struct qdisc_skb_head q;
	struct gnet_stats_queue qstats;
};
#pragma clang attribute pop
struct bpf_sk_buff_ptr;

struct bpf_list_head {
	u64 opaque[2];
};
struct bpf_list_node {
	u64 opaque[3];
};
struct bpf_rb_root {
	u64 opaque[2];
};
struct bpf_rb_node {
	u64 opaque[4];
};

#define CONTAINS(type, member) __attribute__((btf_decl_tag("contains:" #type ":" #member)))
#define KPTR __attribute__((btf_type_tag("kptr")))
#define OF(pointer, type, member) ((type *)((void *)(pointer) - __builtin_offsetof(type, member)))

#define KFUNC(number) ((void *)(0x10000 + (number)))
static void *(*const obj_new_impl)(u64 type, void *meta) = KFUNC(0);
static void (*const obj_drop_impl)(void *object, void *meta) = KFUNC(1);
static int (*const rbtree_add_impl)(struct bpf_rb_root *root, struct bpf_rb_node *node, void *less,
				    void *meta, u64 offset) = KFUNC(2);
static struct bpf_rb_node *(*const rbtree_first)(struct bpf_rb_root *root) = KFUNC(3);
static struct bpf_rb_node *(*const rbtree_remove)(struct bpf_rb_root *root,
						  struct bpf_rb_node *node) = KFUNC(4);
static int (*const push_back_impl)(struct bpf_list_head *head, struct bpf_list_node *node, void *meta,
				   u64 offset) = KFUNC(5);
static int (*const push_front_impl)(struct bpf_list_head *head, struct bpf_list_node *node, void *meta,
				    u64 offset) = KFUNC(6);
static struct bpf_list_node *(*const pop_front)(struct bpf_list_head *head) = KFUNC(7);
static struct bpf_list_node *(*const list_front)(struct bpf_list_head *head) = KFUNC(8);
static void (*const skb_drop)(struct sk_buff *skb, struct bpf_sk_buff_ptr *dropped) = KFUNC(9);
static void (*const free_skb)(struct sk_buff *skb) = KFUNC(10);
static void (*const watchdog)(struct Qdisc *qdisc, u64 at, u64 slack) = KFUNC(11);
static void (*const count_sent)(struct Qdisc *qdisc, const struct sk_buff *skb) = KFUNC(12);
static void *(*const kptr_xchg)(void *to, void *fresh) = (void *)194;
static long (*const loop)(u32 number, void *step, void *context, u64 flags) = (void *)181;

#define obj_new(type) ((type *)obj_new_impl(__builtin_btf_type_id(*(type *)0, 0), NULL))
#define obj_drop(object) obj_drop_impl(object, NULL)
#define rbtree_add(root, node, less) rbtree_add_impl(root, node, less, NULL, 0)
#define push_back(head, node) push_back_impl(head, node, NULL, 0)
#define push_front(head, node) push_front_impl(head, node, NULL, 0)
