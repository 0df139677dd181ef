/* As much of Linux as its CoDel and FQ-CoDel need to run in a process. */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;

#define __rcu
#define unlikely(condition) (condition)
#define typecheck(type, value) 1
#define container_of(pointer, type, member) \
	((type *)((char *)(pointer) - offsetof(type, member)))
#define do_div(value, by) ((value) /= (by))
#define NSEC_PER_USEC 1000L
#define NSEC_PER_MSEC 1000000L

static u64 shim_now;
static u64 ktime_get_ns(void) { return shim_now; }

static u32 reciprocal_scale(u32 value, u32 range)
{
	return (u32)(((u64)value * range) >> 32);
}

struct sk_buff {
	struct sk_buff *next;
	u64 id;
	u32 len, truesize, hash, priority;
	u8 ecn;
	struct { unsigned char data[16]; } cb;
};

#define qdisc_cb_private_validate(skb, size) ((void)(skb))
#define qdisc_skb_cb(skb) ((struct { unsigned char data[16]; } *)&(skb)->cb)
#define skb_mark_not_on_list(skb) ((skb)->next = NULL)
static u32 skb_get_hash(struct sk_buff *skb) { return skb->hash; }
static int skb_get_dsfield(struct sk_buff *skb) { return skb->ecn; }
static unsigned int qdisc_pkt_len(const struct sk_buff *skb) { return skb->len; }

/* include/net/inet_ecn.h: true for what is marked already. */
static int INET_ECN_set_ce(struct sk_buff *skb)
{
	if (skb->ecn == 0)
		return 0;
	skb->ecn = 3;
	return 1;
}

/* What was dropped in this call, in order. */
static void kfree_skb(struct sk_buff *skb)
{
	printf(" %llu", (unsigned long long)skb->id);
	free(skb);
}

struct list_head { struct list_head *next, *prev; };
#define INIT_LIST_HEAD(list) ((list)->next = (list)->prev = (list))
#define list_empty(list) ((list)->next == (list))
#define list_first_entry(list, type, member) container_of((list)->next, type, member)
static void list_del_init(struct list_head *one)
{
	one->prev->next = one->next;
	one->next->prev = one->prev;
	INIT_LIST_HEAD(one);
}
static void list_add_tail(struct list_head *one, struct list_head *list)
{
	one->prev = list->prev;
	one->next = list;
	list->prev->next = one;
	list->prev = one;
}
static void list_move_tail(struct list_head *one, struct list_head *list)
{
	list_del_init(one);
	list_add_tail(one, list);
}

struct Qdisc {
	struct { u32 backlog, drops; } qstats;
	struct { u32 qlen; } q;
	u32 limit, handle;
	void *priv;
};
struct tcf_proto;
struct tcf_block;
struct tcf_result { u32 classid; };
#define qdisc_priv(sch) ((sch)->priv)
#define TC_H_MAJ(handle) ((handle) & 0xFFFF0000U)
#define TC_H_MIN(handle) ((handle) & 0x0000FFFFU)
#define rcu_dereference_bh(pointer) (pointer)
#define tcf_classify_qdisc(skb, filter, result, compat) (-1)
#define tcf_classify(skb, block, filter, result, compat) (-1)
#define NET_XMIT_SUCCESS 0
#define NET_XMIT_CN 2
#define __NET_XMIT_STOLEN 0x00010000
#define __NET_XMIT_BYPASS 0x00020000
#define __qdisc_drop(skb, to_free) ((void)(to_free), kfree_skb(skb))
#define qdisc_qstats_drop(sch) ((sch)->qstats.drops++)
#define qdisc_qstats_backlog_inc(sch, skb) ((sch)->qstats.backlog += (skb)->len)
#define qdisc_bstats_update(sch, skb) ((void)(skb))
#define qdisc_tree_reduce_backlog(sch, packets, bytes) ((void)(packets))

/* interval / sqrt(count), rounded down: what replaces Linux's own approximation where
 * the test says so. */
static u32 exact_step(u32 interval, u32 count)
{
	u64 square = (u64)interval * interval / (count ? count : 1), root = 0, bit;

	for (bit = 1ull << 31; bit; bit >>= 1)
		if ((root + bit) * (root + bit) <= square)
			root += bit;
	return (u32)root;
}
