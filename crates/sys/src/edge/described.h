// How to_queue (edge.bpf.c) describes a frame to the qdisc (queue.bpf.c): in the control buffer, which nothing
// else writes between both.

struct described {
	// DESCRIBED: otherwise to_queue did not see the frame.
	u32 mark;
	// The guest's slot plus one; or 0 for a frame without a bucket, and above it a hash of the destination.
	u32 who;
	// When the bucket of its destination lets it pass; 0 if that has none.
	u64 line_at;
	// Its bytes on the wire.
	u32 bytes;
};
enum { DESCRIBED = 0x7b1d0001, HASH_BITS = 10, HASH_SHIFT = 16, WHO_SLOT = 0xffff };
