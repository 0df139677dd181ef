// How late frames with a departure time leave: the time from then until the kernel takes them out of their queue
// for a driver. One that the driver does not take is counted again with the next attempt.

// The kernel's own types. Where the members are is looked up in its BTF at load time (CO-RE).
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct ns_common {
	u32 inum;
};
struct net {
	struct ns_common ns;
};
struct net_device {
	int ifindex;
	struct {
		struct net *net;
	} nd_net;
};
struct sk_buff {
	u64 tstamp;
};
#pragma clang attribute pop

INLINE int count_late(const struct sk_buff *skb, const struct net_device *device)
{
	u64 due = skb->tstamp;

	if (!due)
		return 0;
	s64 late = ktime() - due;

	// A receive timestamp, which is of another clock.
	if (late < 0)
		return 0;
	u32 ifindex = device->ifindex, zero = 0, bucket = 0;

	if (device->nd_net.net->ns.inum != host_netns || !map_lookup(&interfaces, &ifindex))
		return 0;
	struct lateness *its = map_lookup(&lateness, &zero);

	if (!its)
		return 0;
	LOOP
	for (u64 micros = (u64)late >> 10; micros && bucket < LATE_BUCKETS - 1; micros >>= 1)
		bucket++;
	if (bucket < LATE_BUCKETS)
		its->buckets[bucket]++;
	if ((u64)late > its->max)
		its->max = late;
	return 0;
}

// (struct sk_buff *skb, struct Qdisc *q, struct net_device *dev, ...). It is called for frames that were in
// a queue alone, so frames of devices without one cost nothing.
SECTION("fentry/sch_direct_xmit") int on_start(u64 *arguments)
{
	return count_late((void *)arguments[0], (void *)arguments[2]);
}

// (struct sk_buff *skb, struct net_device *dev): for kernels on which the other one cannot be attached. It is
// called for all frames.
SECTION("tp_btf/net_dev_start_xmit") int on_start_of_any(u64 *arguments)
{
	return count_late((void *)arguments[0], (void *)arguments[1]);
}
