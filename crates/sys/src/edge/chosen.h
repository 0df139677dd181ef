// IPv6 addresses that guests choose themselves. An address belongs to the guest that shows it first;
// crates/switch/src/filter/addresses.rs has the reasons. Other than there, the stations beyond the
// uplink are not heard.

#define IDLE (300 * 1000000000ULL)
#define SECOND 1000000000ULL

INLINE int owns4(const struct rules *rules, u32 address)
{
	u32 number = rules->own4_count;

	LOOP
	for (u32 i = 0; i < OWN4; i++) {
		if (i >= number)
			return 0;
		if ((address & rules->own4[i].mask) == rules->own4[i].address)
			return 1;
	}
	return 0;
}

INLINE int is_within(const struct prefix6 *prefix, const struct ipv6 *address)
{
	return (address->half[0] & prefix->mask[0]) == prefix->address[0] &&
	       (address->half[1] & prefix->mask[1]) == prefix->address[1];
}

INLINE int owns6(const struct rules *rules, const struct ipv6 *address)
{
	u32 number = rules->own6_count;

	LOOP
	for (u32 i = 0; i < OWN6; i++) {
		if (i >= number)
			return 0;
		if (is_within(&rules->own6[i], address))
			return 1;
	}
	return 0;
}

INLINE int is_open(const struct rules *rules, const struct ipv6 *address)
{
	u32 number = rules->open6_count;

	LOOP
	for (u32 i = 0; i < OPEN6; i++) {
		if (i >= number)
			return 0;
		if (is_within(&rules->open6[i], address))
			return 1;
	}
	return 0;
}

// The guest that is configured with an address, or that chose it; 0 for none.
APART u32 holder(const struct ipv6 *address)
{
	struct trie_key key = { .length = 128 };

	__builtin_memcpy(key.address, address, sizeof(key.address));
	const u32 *owner = map_lookup(&configured, &key);

	if (owner)
		return *owner;
	const struct choice *choice = map_lookup(&chosen, address);

	return choice ? choice->ifindex : 0;
}

// Whether hosts generate such an interface identifier, and not out of another guest's MAC.
INLINE int can_be_chosen(const struct ipv6 *address, u32 ifindex)
{
	u64 identifier = __builtin_bswap64(address->half[1]);

	// Lower ones are assigned by people; the others are anycast (RFC 2526).
	if (identifier < 1ULL << 32)
		return 0;
	if (identifier >= 0xfdffffffffffff80 && identifier <= 0xfdffffffffffffff)
		return 0;
	if ((identifier >> 24 & 0xffff) != 0xfffe)
		return 1;
	u64 mac = (identifier >> 40 << 24 | (identifier & 0xffffff)) ^ 1ULL << 41;
	const u32 *station = map_lookup(&stations, &mac);

	return !station || *station == ifindex;
}

// Assigns an address to a guest, or says why not.
APART int take(const struct ipv6 *address, const struct rules *rules, u32 ifindex, u32 otherwise)
{
	u64 now = ktime(), oldest = ~0ULL;
	struct choice *known = map_lookup(&chosen, address);
	struct choices *its = map_lookup(&choices_of, &ifindex);

	if (!its)
		return otherwise + 1;
	if (known && known->ifindex == ifindex) {
		u32 slot = known->slot;

		if (now - known->used > SECOND && slot < CHOSEN) {
			known->used = now;
			its->used[slot] = now;
		}
		return 0;
	}
	if (known || holder(address) || !can_be_chosen(address, ifindex))
		return otherwise + 1;
	u32 most = rules->max_chosen, slot = CHOSEN;

	LOOP
	for (u32 i = 0; i < CHOSEN; i++) {
		if (i >= most)
			break;
		u64 used = its->used[i];

		if (used < oldest) {
			oldest = used;
			slot = i;
		}
	}
	if (slot >= CHOSEN || (oldest && now - oldest < IDLE))
		return ADDRESS_LIMIT + 1;
	// Another CPU may be as far.
	if (__sync_val_compare_and_swap(&its->used[slot], oldest, now) != oldest)
		return ADDRESS_LIMIT + 1;
	struct ipv6 before = its->address[slot];
	struct choice choice = { .ifindex = ifindex, .slot = slot, .used = now };

	if (oldest)
		map_delete(&chosen, &before);
	its->address[slot] = *address;
	if (map_update(&chosen, address, &choice, BPF_NOEXIST)) {
		its->used[slot] = 0;
		return otherwise + 1;
	}
	return 0;
}

// Whether the address is the guest's, or becomes it.
INLINE int has6(const struct rules *rules, u32 ifindex, const struct ipv6 *address, u32 otherwise)
{
	if (owns6(rules, address))
		return 0;
	if (is_open(rules, address))
		return take(address, rules, ifindex, otherwise);
	return otherwise + 1;
}
