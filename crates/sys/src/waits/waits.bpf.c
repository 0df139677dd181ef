// How long the threads that somebody follows wait for a CPU, and what ran there meanwhile.
//
// A thread waits from when it is woken (sched_waking, in whoever wakes it, also on another CPU) or
// loses its CPU until it is given one (sched_switch). Threads that nobody follows leave after one
// look-up. Of those that are followed it notes, too, who has entered a guest (kvm_entry): these run
// vCPUs, whatever they are called. `scripts/bpf` makes waits.bpf.o of this; ../waits.rs loads it, and has the same structs.
//
// A kernel without CONFIG_IRQ_TIME_ACCOUNTING does not time its interrupts. There this program times the
// soft ones itself (softirq_entry, softirq_exit), which do nearly all of the work on packets.
//
// Types of the kernel have the members that are used here; where these are is looked up in the
// kernel's BTF when the program is loaded (CO-RE). Linux 5.18 and later tell a thread that goes to
// sleep from one that loses its CPU; `scripts/bpf-guest` tries it on the kernel of a Debian.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

// The licence of the project, by a name for it that the kernel takes as compatible with the GPL:
// others may not read its structs.
char licence[] SECTION("license") = "Dual MIT/GPL";

// include/uapi/linux/bpf.h
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_F_NO_PREALLOC = 1,
	BPF_RB_NO_WAKEUP = 1,
};
static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static u64 (*const ktime)(void) = (void *)5;
static long (*const ringbuf_output)(void *map, void *data, u64 size, u64 flags) = (void *)130;
static void *(*const task_storage)(void *map, void *task, void *value, u64 flags) = (void *)156;
static void *(*const current_task)(void) = (void *)158;

#define uint(name, value) int(*name)[value]

// The kernel's own.
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct rq {
	u64 clock;
	u64 prev_irq_time;
	u64 prev_steal_time_rq;
};
struct cfs_rq {
	struct rq *rq;
	u64 throttled_clock_pelt_time;
};
struct sched_entity {
	struct cfs_rq *cfs_rq;
};
struct sched_dl_entity {
	u64 dl_deadline;
	u64 dl_period;
	u64 deadline;
	unsigned int dl_throttled : 1;
};
struct kernfs_node {
	u64 id;
};
struct cgroup {
	struct kernfs_node *kn;
};
struct cgroup_subsys_state {
	struct cgroup *cgroup;
};
struct task_group {
	struct cgroup_subsys_state css;
};
struct task_struct {
	unsigned int __state;
	unsigned int policy;
	int pid;
	struct task_group *sched_task_group;
	char comm[16];
	void *bpf_storage;
	struct sched_entity se;
	struct sched_dl_entity dl;
};
#pragma clang attribute pop

#define FIELD(from, field, kind) __builtin_preserve_field_info((from)->field, kind)
enum { BYTE_OFFSET, BYTE_SIZE, EXISTS, SIGNEDNESS, LEFT_SHIFT, RIGHT_SHIFT };

// Of a thread that somebody woke while it was still going to sleep.
#define TASK_WAKING 0x200
#define SCHED_DEADLINE 6

enum { WOKEN, PREEMPTED, KINDS };

// As in ../waits.rs, which fills the tables.
#define BUCKETS 466
#define CELLS 1024
#define RUNS 128

// What is known of a thread that is followed.
struct thread {
	// When it was woken; of no worth where it is before `left`.
	u64 woken;
	// When it left its CPU; 0 while it runs.
	u64 left;
	// How long its control group's CPU quota had held up its queue.
	u64 quota;
	// Its control group for the CPU when it ran last, and the inode of that.
	u64 task_group;
	u64 group;
	// For how long its reservation keeps it from running.
	u32 throttled;
	// The lower bits of its queue's address.
	u32 queue;
	u32 slot;
	// Whether it could have run on when it left.
	u8 preempted;
	// Whether a reservation, or a quota that was used up before, may hold it up.
	u8 limited;
	// Whether it has entered a guest, which is noted once.
	u8 entered;
	u8 unused;
};

// What was measured of it.
struct meter {
	u64 sum[KINDS];
	u64 longest[KINDS];
	// How often it was given a CPU and nobody knows since when it had waited.
	u64 unknown;
	// How many late waits nobody was told of, since there was no room.
	u64 lost;
	// Whether it has entered a guest.
	u64 entered;
	u32 counts[KINDS][BUCKETS];
};

// One thread's time on a CPU, until it left. It began where the one before ended.
struct run {
	u64 until;
	// The inode of its control group for the CPU; 0 if unknown.
	u64 group;
	u32 tid;
	// What the hypervisor, and interrupts, took of it.
	u32 stolen;
	u32 interrupted;
	u32 policy;
	u64 name[2];
};

// A CPU, and a late wait that ended on it.
struct cpu {
	u64 since;
	u64 until;
	// How much of it its reservation, and a quota, kept it from running.
	u64 reservation;
	u64 quota;
	u32 slot;
	u32 kind;
	u64 stolen;
	u64 interrupted;
	// The time that soft interrupts took, and since when one runs; 0: none does.
	u64 softirq;
	u64 softirq_since;
	// How many runs there were; the last ones are in `runs`, in a circle.
	u64 count;
	struct run runs[RUNS];
};

// A run of a thread that is followed, of which interrupts or the hypervisor took much.
struct interruption {
	u64 since;
	u64 until;
	u32 slot;
	u32 stolen;
	u32 interrupted;
	u32 unused;
};

struct {
	uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	uint(map_flags, BPF_F_NO_PREALLOC);
	int *key;
	struct thread *value;
} threads SECTION(".maps");

// In its place where a thread cannot be named by a descriptor (before Linux 6.9).
struct {
	uint(type, BPF_MAP_TYPE_HASH);
	uint(max_entries, 1);
	u32 *key;
	struct thread *value;
} numbers SECTION(".maps");

struct {
	uint(type, BPF_MAP_TYPE_ARRAY);
	uint(max_entries, 1);
	u32 *key;
	struct meter *value;
} meters SECTION(".maps");

// How many late waits of all threads nobody was told of.
struct {
	uint(type, BPF_MAP_TYPE_ARRAY);
	uint(max_entries, 1);
	u32 *key;
	u64 *value;
} losses SECTION(".maps");

// When the program was attached: what was noted before is of no worth.
struct {
	uint(type, BPF_MAP_TYPE_ARRAY);
	uint(max_entries, 1);
	u32 *key;
	u64 *value;
} attached_at SECTION(".maps");

struct {
	uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	uint(max_entries, 1);
	u32 *key;
	struct cpu *value;
} cpus SECTION(".maps");

struct {
	uint(type, BPF_MAP_TYPE_RINGBUF);
	uint(max_entries, 1 << 20);
} late_waits SECTION(".maps");

struct {
	uint(type, BPF_MAP_TYPE_RINGBUF);
	uint(max_entries, 1 << 16);
} interruptions SECTION(".maps");

// Whether threads are known by their numbers.
const volatile u32 by_number;
// From when on a wait is late, in nanoseconds.
const volatile u64 late;
// From when on the time that was taken of a run of a followed thread is reported, in nanoseconds.
const volatile u64 long_interruption;
// Whether soft interrupts are timed here.
const volatile u32 times_softirqs;
// Whether all waits are counted, and not only the late ones reported.
const volatile u32 histograms;
// The longest time of each bucket that has a bound, in nanoseconds.
const volatile u64 bounds[BUCKETS - 1];
// The bucket of the shortest time of each cell: a power of two and the four bits after the first.
const volatile u32 cells[CELLS];

INLINE struct thread *followed(struct task_struct *task)
{
	if (by_number) {
		u32 number = task->pid;
		return map_lookup(&numbers, &number);
	}
	// Most threads have no storage of any program, which one load shows.
	if (FIELD(task, bpf_storage, EXISTS) && !task->bpf_storage)
		return 0;
	return task_storage(&threads, task, 0, 0);
}

// How long its reservation keeps a thread from running on, from now.
INLINE u64 held_up(struct task_struct *task)
{
	if (task->policy != SCHED_DEADLINE)
		return 0;
	const void *at = (const void *)task + FIELD(task, dl.dl_throttled, BYTE_OFFSET);
	u64 throttled;

	asm volatile("" : "=r"(at) : "0"(at));
	switch (FIELD(task, dl.dl_throttled, BYTE_SIZE)) {
	case 1:
		throttled = *(const u8 *)at;
		break;
	case 4:
		throttled = *(const u32 *)at;
		break;
	case 8:
		throttled = *(const u64 *)at;
		break;
	default:
		return 0;
	}
	throttled <<= FIELD(task, dl.dl_throttled, LEFT_SHIFT);
	throttled >>= FIELD(task, dl.dl_throttled, RIGHT_SHIFT);
	if (!throttled)
		return 0;
	u64 next = task->dl.deadline - task->dl.dl_deadline + task->dl.dl_period;
	u64 now = task->se.cfs_rq->rq->clock;
	return next > now ? next - now : 0;
}

// How long a CPU quota has held up the queue that a thread is in.
INLINE u64 quota_time(struct task_struct *task)
{
	struct cfs_rq *queue = task->se.cfs_rq;

	if (!FIELD(queue, throttled_clock_pelt_time, EXISTS))
		return 0;
	return queue->throttled_clock_pelt_time;
}

// What is to be known at the end of a wait that begins now.
INLINE void begin(struct thread *thread, struct task_struct *task)
{
	u64 held = held_up(task), quota = quota_time(task);

	thread->throttled = held > 0xffffffff ? 0xffffffff : held;
	thread->quota = quota;
	thread->queue = (u64)task->se.cfs_rq;
	thread->limited = task->policy == SCHED_DEADLINE || quota;
}

// The inode of the control group that decides about a thread's share of the CPU. It is looked up once for a
// thread that is followed and stays in its group: four loads from as many places.
INLINE u64 group_of(struct task_struct *task, struct thread *thread)
{
	if (!FIELD(task, sched_task_group, EXISTS))
		return 0;
	struct task_group *its = task->sched_task_group;

	if (thread && thread->task_group == (u64)its)
		return thread->group;
	u64 group = its->css.cgroup->kn->id;

	if (thread) {
		thread->task_group = (u64)its;
		thread->group = group;
	}
	return group;
}

INLINE u32 bucket(u64 time)
{
	u64 rest = time;
	u32 power = 0;

	if (rest >> 32) { power += 32; rest >>= 32; }
	if (rest >> 16) { power += 16; rest >>= 16; }
	if (rest >> 8) { power += 8; rest >>= 8; }
	if (rest >> 4) { power += 4; rest >>= 4; }
	if (rest >> 2) { power += 2; rest >>= 2; }
	if (rest >> 1) power += 1;
	u64 bits = power >= 4 ? time >> (power - 4) : time << (4 - power);
	u32 found = cells[(power << 4 | (bits & 15)) & (CELLS - 1)];
	// A cell's times are in at most three buckets.
	for (int i = 0; i < 2; i++) {
		if (found < BUCKETS - 1 && time > bounds[found])
			found++;
	}
	return found;
}

// The last run on this CPU ends: returns the CPU.
INLINE struct cpu *note_run(struct task_struct *prev, struct thread *thread, u64 now)
{
	u32 zero = 0;
	struct cpu *cpu = map_lookup(&cpus, &zero);

	if (!cpu)
		return 0;
	struct rq *rq = prev->se.cfs_rq->rq;
	struct run *run = &cpu->runs[cpu->count & (RUNS - 1)];
	u64 stolen = FIELD(rq, prev_steal_time_rq, EXISTS) ? rq->prev_steal_time_rq : 0;
	u64 interrupted;

	if (times_softirqs) {
		interrupted = cpu->softirq;
		// A real-time kernel may switch between threads within one.
		cpu->softirq_since = 0;
	} else {
		interrupted = FIELD(rq, prev_irq_time, EXISTS) ? rq->prev_irq_time : 0;
	}
	run->until = now;
	run->tid = prev->pid;
	run->stolen = stolen - cpu->stolen;
	run->interrupted = interrupted - cpu->interrupted;
	// Of an idle CPU nobody asks more: half of all switches are from it on most hosts.
	if (run->tid) {
		run->group = group_of(prev, thread);
		run->policy = prev->policy;
		run->name[0] = *(u64 *)&prev->comm[0];
		run->name[1] = *(u64 *)&prev->comm[8];
	} else {
		run->group = run->policy = 0;
		run->name[0] = run->name[1] = 0;
	}
	cpu->stolen = stolen;
	cpu->interrupted = interrupted;
	cpu->count++;
	return cpu;
}

// Reports the last run, if much of it was taken.
INLINE void note_interruption(const struct cpu *cpu, u32 slot, u64 now)
{
	u64 last = cpu->count - 1;
	const struct run *run = &cpu->runs[last & (RUNS - 1)];

	if ((u64)run->stolen + run->interrupted < long_interruption || !last)
		return;
	struct interruption interruption = {
		.since = cpu->runs[(last - 1) & (RUNS - 1)].until,
		.until = now,
		.slot = slot,
		.stolen = run->stolen,
		.interrupted = run->interrupted,
	};

	ringbuf_output(&interruptions, &interruption, sizeof(interruption), BPF_RB_NO_WAKEUP);
}

INLINE void note_leaving(struct task_struct *prev, struct thread *thread, u32 state, const struct cpu *cpu, u64 now)
{
	if (cpu)
		note_interruption(cpu, thread->slot, now);
	thread->preempted = state == 0;
	// Or another CPU woke it before it had left this one.
	int woken = state != 0 && prev->__state == TASK_WAKING && thread->woken;

	begin(thread, prev);
	thread->left = woken ? thread->woken : now;
}

// Counts a wait; `known` is whether its begin is known.
INLINE void count_wait(const u32 *slot, u32 kind, u64 time, int known)
{
	struct meter *meter = map_lookup(&meters, slot);

	if (!meter)
		return;
	if (!known) {
		meter->unknown++;
		return;
	}
	u64 at = bucket(time);

	// The compiler knows that it is within bounds, and would leave the check out on one way, where
	// the verifier of Linux 6.1 then knows nothing of it.
	asm volatile("" : "+r"(at));
	if (at >= BUCKETS)
		return;
	meter->counts[kind][at]++;
	meter->sum[kind] += time;
	if (time > meter->longest[kind])
		meter->longest[kind] = time;
}

INLINE void count_lost(const u32 *slot)
{
	struct meter *meter = map_lookup(&meters, slot);
	u32 zero = 0;
	u64 *lost = map_lookup(&losses, &zero);

	if (meter)
		meter->lost++;
	if (lost)
		__sync_fetch_and_add(lost, 1);
}

INLINE void note_coming(struct task_struct *next, struct cpu *cpu, u64 now)
{
	struct thread *thread = followed(next);
	u32 zero = 0;

	if (!thread)
		return;
	u64 left = thread->left, woken = thread->woken;
	u32 kind = thread->preempted ? PREEMPTED : WOKEN;
	u64 since = kind == PREEMPTED ? left : woken;
	int known = since >= left;

	thread->left = 0;
	thread->woken = 0;
	if (!left)
		return;
	u64 time = known && now > since ? now - since : 0;

	if (histograms)
		count_wait(&thread->slot, kind, time, known);
	if (time < late || !known || !cpu)
		return;
	const u64 *begun = map_lookup(&attached_at, &zero);

	if (!begun || since < *begun)
		return;
	u64 quota = quota_time(next) - thread->quota;

	cpu->since = since;
	cpu->until = now;
	cpu->reservation = thread->throttled;
	cpu->quota = thread->queue == (u32)(u64)next->se.cfs_rq ? quota : 0;
	cpu->slot = thread->slot;
	cpu->kind = kind;
	if (ringbuf_output(&late_waits, cpu, sizeof(*cpu), BPF_RB_NO_WAKEUP))
		count_lost(&thread->slot);
}

// (bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
SECTION("tp_btf/sched_switch") int on_switch(u64 *context)
{
	u64 now = ktime();
	struct task_struct *prev = (void *)context[1], *next = (void *)context[2];
	// An idle CPU's thread is never followed, and takes part in most switches of most hosts.
	struct thread *thread = prev->pid ? followed(prev) : 0;
	struct cpu *cpu = note_run(prev, thread, now);

	if (thread)
		note_leaving(prev, thread, context[0] ? 0 : context[3], cpu, now);
	if (next->pid)
		note_coming(next, cpu, now);
	return 0;
}

INLINE int note_waking(struct task_struct *task)
{
	struct thread *thread = followed(task);

	if (!thread)
		return 0;
	u64 now = ktime();

	// What woke it while it ran is of no worth: it goes to sleep of its own will after that.
	if (!thread->left || thread->woken < thread->left) {
		// Few threads have a limit, and to look for one of a thread of another CPU takes long.
		if (thread->left && thread->limited)
			begin(thread, task);
		thread->woken = now;
	}
	return 0;
}

// (struct task_struct *task)
SECTION("tp_btf/sched_waking") int on_waking(u64 *context)
{
	return note_waking((void *)context[0]);
}

SECTION("tp_btf/sched_wakeup_new") int on_wakeup_new(u64 *context)
{
	return note_waking((void *)context[0]);
}

// (unsigned int vector)
SECTION("tp_btf/softirq_entry") int on_softirq(void)
{
	u32 zero = 0;
	struct cpu *cpu = map_lookup(&cpus, &zero);

	if (cpu)
		cpu->softirq_since = ktime();
	return 0;
}

SECTION("tp_btf/softirq_exit") int on_softirq_end(void)
{
	u32 zero = 0;
	struct cpu *cpu = map_lookup(&cpus, &zero);

	if (cpu && cpu->softirq_since) {
		cpu->softirq += ktime() - cpu->softirq_since;
		cpu->softirq_since = 0;
	}
	return 0;
}

// By its name alone, since the module that has it may come later: its arguments are not looked at.
SECTION("raw_tp/kvm_entry") int on_entry(void)
{
	struct thread *thread = followed(current_task());

	if (!thread || thread->entered)
		return 0;
	thread->entered = 1;
	struct meter *meter = map_lookup(&meters, &thread->slot);

	if (meter)
		meter->entered = 1;
	return 0;
}
