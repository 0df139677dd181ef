// Ways past the bridge, for frames of guests that are ports of one. The bridge decides: what it has passed on
// shows the way. A guest's first frame to another guest goes through it, and shows the way where it arrives. A
// station beyond the uplink shows its own: the bridge has just learned where that is. A frame to a station that
// says nothing may be one of many copies, so it shows nothing.
//
// A way ends after some ticks, and in some ticks all frames pass the bridge. So a change of the bridge holds
// soon, and it sees who sends.

// Members of `tc_index`: the slot of the guest plus one, and whether a way is wanted.
enum { SLOT_BITS = 0x1fff, ASKS_WAY = 0x8000 };

// The entry for a station, whose last byte differs most.
INLINE struct way *way_of(u32 slot, u64 station)
{
	u32 place = slot * WAYS + (station >> 40) % WAYS;

	return map_lookup(&ways, &place);
}

// The interface of the way of a frame to a station; 0 for the bridge, which then shows the way.
INLINE u32 way_to(struct __sk_buff *skb, u32 slot, const u8 *station)
{
	u64 number = number_of(station), now = jiffies();
	const struct way *way = way_of(slot, number);

	if (!way || number & 1)
		return 0;
	u64 found = way->way;

	if (likely(found >> 16 == number && now < way->end && now % WAY_REST))
		return found & 0xffff;
	skb->tc_index = (slot + 1) | ASKS_WAY;
	return 0;
}

// A frame that asks for a way has arrived at a guest.
APART int learn_way(struct __sk_buff *skb)
{
	u32 ifindex = skb->ifindex, from = skb->ingress_ifindex;
	const struct rules *rules = map_lookup(&guests, &ifindex);
	const struct rules *sender = map_lookup(&guests, &from);
	u8 station[6] __attribute__((aligned(2)));

	if (!rules || !sender || !sender->bridge || sender->bridge != rules->bridge || ifindex > 0xffff)
		return 0;
	if (load_bytes(skb, 0, station, sizeof(station)) || !same_mac(station, rules->mac))
		return 0;
	u64 number = number_of(station);
	struct way *way = way_of(sender->slot, number);

	if (way) {
		way->way = number << 16 | ifindex;
		way->end = jiffies() + WAY_LIFE;
	}
	return 0;
}

// A MAC as a key of `stations`.
INLINE u64 key_of(const u8 *station)
{
	u64 key = 0;

	for (u32 i = 0; i < 6; i++)
		key = key << 8 | station[i];
	return key;
}

// The bridge has passed a frame of a station beyond an uplink on to a guest.
APART int learn_back(struct __sk_buff *skb)
{
	u32 ifindex = skb->ifindex, from = skb->ingress_ifindex;
	const struct rules *rules = map_lookup(&guests, &ifindex);
	const struct uplink *uplink = map_lookup(&uplinks, &from);
	u8 station[6] __attribute__((aligned(2)));

	if (!rules || load_bytes(skb, 6, station, sizeof(station)))
		return 0;
	// Otherwise the bridge is the way, which need not be found out for each frame.
	int is_way = uplink && uplink->bridge && uplink->bridge == rules->bridge && from <= 0xffff;
	u64 number = number_of(station);
	struct way *way = way_of(rules->slot, number);

	u64 key = key_of(station);

	// The way to a guest is its own interface.
	if (way && !map_lookup(&stations, &key)) {
		way->way = number << 16 | (is_way ? from : 0);
		way->end = jiffies() + WAY_LIFE;
	}
	return 0;
}

// Whether a guest's way back to the station that a frame comes from must be learned, or soon again.
INLINE int lacks_way_back(const struct __sk_buff *skb, u32 slot)
{
	const u8 *data = (void *)(u64)skb->data;

	if (data + ETHERNET > (const u8 *)(u64)skb->data_end)
		return 0;
	u64 number = number_of(data + 6);
	const struct way *way = way_of(slot, number);

	return way && (way->way >> 16 != number || jiffies() + WAY_LIFE / 2 > way->end);
}
