// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Who makes whom wait for a CPU: one program on every context switch, and one on every move of a task to another CPU.
 *
 * The wait of the task that comes in began at sched_info.last_queued. What happened on this CPU since then is known
 * from two histories: the slices (who ran when), and for each CFS run queue that was ever throttled the spans in which
 * it was. The wait is cut at the spans; what lies inside is throttling, the rest is shared out to who ran then. All
 * times are the run queue's own clock, that of run_delay in /proc/PID/schedstat.
 *
 * Where a task is moved while it waits, the kernel begins a new wait. The part before is accounted at the move, on the
 * old CPU: its length is what the kernel has added to run_delay since the task last came in.
 *
 * From the same walk over the slices comes the time that each pod lost: the union of its threads' waits for others. Four
 * times a second the waits in progress are counted too, up to then.
 *
 * Everything is per CPU and runs with interrupts off under the lock of its run queue, so there are no locks and no
 * atomics, but for the walk by user space, which does not hold that lock. User space maps the tables
 * and reads one half of them while the program fills the other.
 */
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Cgroup ids are inodes, from 1, the root. These are none. */
#define NOBODY 0
#define ROOT 1
#define IDLE (~0ULL)

#define SLICES 1024    /* of one CPU; a power of two */
#define SPANS 16       /* of one run queue: a thread among many may wait for that many periods */
#define PROBES 8       /* slots that are looked at before a table counts as full */
#define BUCKETS 10     /* of a histogram, the last without an upper bound */
#define MAX_DEPTH 8    /* of a run queue below the top */
#define SIBLING_SLICES 32
#define TIMED_EVERY 1024
#define NOTES_BITS 12
#define LATE_NS 10000000ULL    /* a wakeup that waited for so long is late */
#define SETTLE_NS (1ULL << 28) /* between two walks over the waits in progress: 268 ms */
#define SETTLE_TASKS 256       /* of a run queue whose waits in progress are counted */
#define PODS 64                /* that wait on one CPU at the same time */
#define BESIDE (~0ULL)
#define MAX_RT_PRIO 100
#define MIGRATING 2            /* of on_rq: queued before and after */
#define SESSION_SHIFT 22       /* above the bits of a pid */
#define NO_SLOT (~0U)
#define NEW (1U << 31)

/* Set by the loader, frozen before the program is verified. */
const volatile u32 pair_mask = 0;
const volatile u32 cgroup_mask = 0;
const volatile u32 throttle_mask = 0;
const volatile u32 smt = 0;
const volatile u64 latency_bounds[BUCKETS - 1] = {};
const volatile u64 stall_bounds[BUCKETS - 1] = {};

/* One holder's turn on a CPU, until the next slice begins. */
struct slice {
	u64 start;
	u64 cgroup;
	u64 pod;
	u32 covered;     /* the pod's lost time is counted from so long before the start; at most 4 s */
	u32 unthrottled; /* the part of it after the last throttle of the cgroup */
};

/* From when on a pod's lost time is counted by the walk over waits in progress at a moment. */
struct coverage {
	u64 pod, at, from;
};

/*
 * A wait, or a turn beside the sibling thread, that is being shared out from new to old.
 *
 * A pod loses the time in which at least one of its threads waits here and others run. Waits overlap, and each part may
 * count only once. A wait ends with a slice of the pod, at whose start everything back to the beginning of the wait is
 * counted. The slice keeps this beginning. A later wait of the pod that walks back over the slice leaves out what lies
 * between the two.
 */
struct share {
	u64 cgroup, pod;    /* whose it is */
	u64 lo, hi;         /* what is left of it */
	u64 position, left; /* the slice that is next, and how many there are */
	u64 floor, fresh;   /* the pod's lost time between the two is not yet counted */
	u32 table;          /* of this CPU and half */
	u32 beside;         /* the slices are the sibling's */
	u64 self_ns, idle_ns, dropped_ns;
	u64 lost_idle_ns, lost_unknown_ns;
};

struct cpu {
	u64 session;  /* of the slices */
	u64 pushed;   /* slices in this session; the newest is pushed - 1 */
	u64 smt_from; /* up to here the sibling's company is accounted */
	u64 sibling;  /* 1 + the other thread of the core, by the loader; 0: none */
	u64 switches;
	u64 timed_runs; /* runs whose duration was taken, and the durations' sum */
	u64 timed_ns;
	u64 lost_waits; /* waits, and their time, that found a table full */
	u64 lost_ns;
	u64 evicted; /* throttle histories that had to make room */
	u64 began;   /* when the session did */
	u64 settled; /* waits in progress are counted up to here, in run queues that were never throttled */
	u64 rq, next; /* addresses, as numbers: the run queue, and the task that comes in */
	u64 walked;   /* when a walk over the waits in progress was last tried */
	u64 moves;    /* of tasks, queued or asleep, to another CPU, seen on this one */
	u64 is_walked; /* by user space, now: no move may account a wait */
	struct share share; /* of one wait at a time; with several on the stack, that would be too large */
	u64 padding[1];
	struct slice slices[SLICES];
	struct coverage coverage[PODS];
};

struct span {
	u64 start, end;
};

/* Throttle history of one CFS run queue. */
struct throttle {
	u64 css; /* serial number of its cgroup's cpu state, which is never used again; 0: free */
	u64 session;
	u64 total;  /* the kernel's cumulative throttled time when last looked at */
	u64 opened; /* when the throttle began that a task was seen to leave with; 0: none */
	u64 opened_pelt;
	u64 queued; /* since when own tasks are known to wait in the throttle that is open; 0: not known (PELT only) */
	u64 looked;
	u64 since; /* when the history began */
	struct span spans[SPANS]; /* the newest first */
};

/* What happened to one cgroup's tasks on one CPU. What every wait adds to is in the first cache line. */
struct cgroup_waits {
	u64 cgroup; /* 0: free */
	u64 latency_ns;
	u32 latencies[BUCKETS];
	u32 wakeups, late_wakeups;
	u64 self_ns;
	u64 throttled_ns, idle_ns, unknown_ns;
	u64 lost_idle_ns, lost_unknown_ns; /* parts of the two that the pod lost */
	u64 smt_self_ns, smt_idle_ns;
	u64 stall_ns;
	u32 stalls[BUCKETS];
	u64 padding[2];
};

/* What one cgroup did to another on one CPU. */
struct pair {
	u64 victim; /* 0: free */
	u64 holder;
	u64 wait_ns; /* the victim waited while the holder ran */
	u64 lost_ns; /* the part that is not a wait of another thread of the victim's pod at the same time */
	u64 smt_ns;  /* the victim ran while the holder ran on the sibling thread */
};

/* The tasks, of all with this hash, that were preempted last and came in last. */
struct task_note {
	u32 preempted; /* pid */
	u32 slept;     /* how often it had, until then */
	u32 came;      /* pid, and the session */
	u32 delay;     /* its run_delay by then, in 1024 ns */
};

struct control {
	u64 session; /* changes when the program is attached again */
	u64 half;    /* of the tables, that is being filled: 0 or 1 */
};

#define MAPPED_ARRAY(name, item)                    \
	struct {                                    \
		MAP_UINT(type, BPF_MAP_TYPE_ARRAY); \
		MAP_UINT(map_flags, BPF_F_MMAPABLE); \
		MAP_UINT(max_entries, 1);           \
		MAP_TYPE(key, u32);                 \
		MAP_TYPE(value, struct item);       \
	} name SEC(".maps")

MAPPED_ARRAY(controls, control);      /* one */
MAPPED_ARRAY(cpus, cpu);              /* CPUs */
MAPPED_ARRAY(notes, task_note);       /* 1 << NOTES_BITS */
MAPPED_ARRAY(throttles, throttle);    /* CPUs * slots */
MAPPED_ARRAY(cgroups, cgroup_waits);  /* CPUs * halves * slots */
MAPPED_ARRAY(pairs, pair);            /* CPUs * halves * slots */

static ALWAYS_INLINE u32 hash(u64 a, u64 b)
{
	return (a * 0x9e3779b97f4a7c15ULL + b * 0xc2b2ae3d27d4eb4fULL) >> 32;
}

/*
 * Functions that are not static are verified once, by themselves, not again in each state that they are called
 * in; they take and return numbers only. Without them the verifier gives up at a million instructions.
 */

/* The cgroup's slot in this CPU's table, taken if it has none; NO_SLOT: the table is full. */
NOINLINE u32 cgroup_slot(u32 table, u64 cgroup)
{
	u32 first = hash(cgroup, 0), base = table * (cgroup_mask + 1);

	for (u32 i = 0; i < PROBES; i++) {
		u32 slot = base + ((first + i) & cgroup_mask);
		struct cgroup_waits *waits = bpf_map_lookup_elem(&cgroups, &slot);

		if (!waits)
			return NO_SLOT;
		if (likely(waits->cgroup == cgroup))
			return slot;
		if (waits->cgroup == NOBODY) {
			waits->cgroup = cgroup;
			return slot;
		}
	}
	return NO_SLOT;
}

/* Charges to a pair; returns what found no slot. `lost`: the part of a wait that the pod lost, or BESIDE. */
NOINLINE u64 charge_pair(u32 table, u64 victim, u64 holder, u64 ns, u64 lost)
{
	u32 first = hash(victim, holder), base = table * (pair_mask + 1);

	for (u32 i = 0; i < PROBES; i++) {
		u32 slot = base + ((first + i) & pair_mask);
		struct pair *pair = bpf_map_lookup_elem(&pairs, &slot);

		if (!pair)
			return ns;
		if (pair->victim == NOBODY) {
			pair->holder = holder;
			pair->victim = victim;
		}
		if (likely(pair->victim == victim && pair->holder == holder)) {
			if (lost == BESIDE) {
				pair->smt_ns += ns;
			} else {
				pair->wait_ns += ns;
				pair->lost_ns += lost;
			}
			return 0;
		}
	}
	return ns;
}

struct cursor {
	struct share *share;
	struct cpu *cpu;
};

/* The part of `from` up to what is left of a wait that the pod has lost and that is not yet counted. */
static ALWAYS_INLINE u64 lost_part(struct share *share, u64 from)
{
	u64 lo = from > share->floor ? from : share->floor, hi = share->hi < share->fresh ? share->hi : share->fresh;

	return hi > lo ? hi - lo : 0;
}

static ALWAYS_INLINE void charge(struct share *share, struct slice *slice, u64 from)
{
	u64 holder = slice->cgroup, ns = share->hi - from, lost, dropped;

	if (holder == share->cgroup) {
		share->self_ns += ns;
		return;
	}
	lost = share->beside ? BESIDE : slice->pod == share->pod ? 0 : lost_part(share, from);
	if (holder == IDLE) {
		share->idle_ns += ns;
		share->lost_idle_ns += lost;
		return;
	}
	dropped = charge_pair(share->table, share->cgroup, holder, ns, lost);
	if (unlikely(dropped)) {
		share->dropped_ns += dropped;
		share->lost_unknown_ns += lost;
	}
}

/* Charges the newest slice that has a part in what is left; 1 ends the loop. */
static long charge_slice(u32 __attribute__((unused)) index, struct cursor *cursor)
{
	struct share *share = cursor->share;
	struct slice *slice = &cursor->cpu->slices[share->position & (SLICES - 1)];
	u64 start = slice->start;

	if (start < share->hi) {
		u64 from = start > share->lo ? start : share->lo;

		charge(share, slice, from);
		share->hi = from;
		if (from == share->lo)
			return 1;
	}
	if (slice->pod == share->pod) {
		/* Only the tasks of the same cgroup were throttled at the same time. */
		u64 covered = start - (slice->cgroup == share->cgroup ? slice->covered : slice->unthrottled);

		if (covered < share->fresh)
			share->fresh = covered;
	}
	share->position--;
	share->left--;
	return 0;
}

/* Shares out lo..hi to the slices of a CPU; what is older than they stays in lo..hi. */
NOINLINE int charge_slices(struct share *share, u32 id)
{
	struct cursor cursor = { .share = share, .cpu = bpf_map_lookup_elem(&cpus, &id) };

	if (!share || !cursor.cpu || !share->left || share->left > SLICES)
		return 0;
	/* Most waits are as short as the newest slice, and the call of a loop is dear. */
	if (!charge_slice(0, &cursor) && share->left < SLICES)
		bpf_loop(share->left, charge_slice, &cursor, 0);
	if (unlikely(share->hi != share->lo) && !share->beside)
		share->lost_unknown_ns += lost_part(share, share->lo);
	return 0;
}

static ALWAYS_INLINE void observe(u32 *counts, const volatile u64 *bounds, u64 ns)
{
	for (u32 i = 0; i < BUCKETS - 1; i++) {
		if (ns <= bounds[i]) {
			counts[i]++;
			return;
		}
	}
	counts[BUCKETS - 1]++;
}

/* One run queue at one moment, in numbers. */
struct level {
	u64 css;   /* serial number of its cgroup's cpu state */
	u64 total; /* cumulative time in which it or one above it was throttled; 0: never was */
	u64 start; /* of the throttle in force, for a run queue that a task is leaving; 0: none */
	u64 pelt;  /* the PELT clock; 0: the total counts no time without a task, and needs no scaling */
	u64 tasks; /* that are on it, where the PELT clock is read */
	u64 now;
	u64 queued; /* since when the task waits that is coming in */
	u64 stall_from, stall_left; /* own tasks waited from then on, and for that long at most */
	u32 id;     /* CPU */
};

static ALWAYS_INLINE void reset_throttle(struct throttle *throttle, struct level *level, u64 session)
{
	throttle->css = level->css;
	throttle->session = session;
	throttle->total = level->total;
	throttle->opened = 0;
	throttle->queued = 0;
	throttle->looked = level->now;
	throttle->since = level->now;
	for (u32 i = 0; i < SPANS; i++) {
		throttle->spans[i].start = 0;
		throttle->spans[i].end = 0;
	}
}

/* The slot of a run queue's history; with NEW if its past is not known. The least lately used one makes room. */
NOINLINE u32 throttle_slot(struct level *level)
{
	u32 first, base, oldest = NO_SLOT;
	u64 oldest_looked = ~0ULL;
	struct throttle *throttle;
	struct cpu *cpu;
	u32 id;

	if (!level)
		return NO_SLOT;
	id = level->id;
	cpu = bpf_map_lookup_elem(&cpus, &id);
	if (!cpu)
		return NO_SLOT;
	first = hash(level->css, 0);
	base = id * (throttle_mask + 1);
	for (u32 i = 0; i < PROBES; i++) {
		u32 slot = base + ((first + i) & throttle_mask);

		throttle = bpf_map_lookup_elem(&throttles, &slot);
		if (!throttle)
			return NO_SLOT;
		if (likely(throttle->css == level->css)) {
			if (likely(throttle->session == cpu->session))
				return slot;
			reset_throttle(throttle, level, cpu->session);
			return slot | NEW;
		}
		if (throttle->looked < oldest_looked) {
			oldest = slot;
			oldest_looked = throttle->looked;
		}
	}
	throttle = bpf_map_lookup_elem(&throttles, &oldest);
	if (!throttle)
		return NO_SLOT;
	if (throttle->css && throttle->session == cpu->session)
		cpu->evicted++;
	reset_throttle(throttle, level, cpu->session);
	return oldest | NEW;
}

/* Keeps the newest spans, by their ends. */
NOINLINE int add_span(u32 slot, u64 start, u64 end)
{
	struct throttle *throttle = bpf_map_lookup_elem(&throttles, &slot);

	if (!throttle)
		return 0;
	for (u32 i = 0; i < SPANS; i++) {
		struct span older = throttle->spans[i];

		if (end > older.end) {
			throttle->spans[i].start = start;
			throttle->spans[i].end = end;
			start = older.start;
			end = older.end;
		}
	}
	return 0;
}

/*
 * What the kernel has added to a run queue's throttled time since the last look. The PELT clock runs slower than the
 * clock while the CPU is below its highest frequency, and catches up while it is idle: the ratio of the two since the
 * throttle began turns one into the other.
 */
static ALWAYS_INLINE u64 take_length(struct throttle *throttle, struct level *level)
{
	u64 length = level->total - throttle->total, real, pelt;

	throttle->total = level->total;
	if (!level->pelt || !throttle->opened)
		return length;
	real = level->now - throttle->opened;
	pelt = level->pelt - throttle->opened_pelt;
	if (!pelt || (real | pelt | length) >> 42)
		return length;
	return length * ((real << 10) / pelt) >> 10;
}

/*
 * A span begins where the throttle was seen to begin; else with the wait of the task that comes in, which is what
 * started it (a wake-up into a throttled group), or as late as it can have begun. Returns where it begins.
 */
static ALWAYS_INLINE u64 close_span(u32 slot, struct throttle *throttle, struct level *level, u64 length)
{
	u64 start = throttle->opened, end;

	if (!start)
		start = length < level->now - level->queued ? level->queued : level->now - length;
	end = start + length;
	add_span(slot, start, end < level->now ? end : level->now);
	throttle->opened = 0;
	return start;
}

/* A task leaves a throttled run queue. */
NOINLINE int open_throttle(struct level *level)
{
	u32 slot = throttle_slot(level) & ~NEW;
	struct throttle *throttle = bpf_map_lookup_elem(&throttles, &slot);
	u64 length;

	if (!throttle || !level)
		return 0;
	/* A throttle that ended while the task ran: since 6.18 that may be, in the kernel. */
	length = take_length(throttle, level);
	if (length)
		close_span(slot, throttle, level, length);
	if (!throttle->opened) {
		throttle->opened = level->start;
		throttle->opened_pelt = level->pelt;
		throttle->queued = level->tasks ? level->start : 0;
	}
	throttle->looked = level->now;
	return 0;
}

/*
 * Counts a throttle as a stall of the cgroup in `waits`, as far as tasks of its own waited in it; returns how long they
 * did.
 */
static ALWAYS_INLINE u64 count_stall(u32 slot, struct level *level, u64 start, u64 end)
{
	struct cgroup_waits *waits = bpf_map_lookup_elem(&cgroups, &slot);
	u64 length;

	if (start < level->stall_from)
		start = level->stall_from;
	if (end <= start)
		return 0;
	length = end - start;
	if (length > level->stall_left)
		length = level->stall_left;
	level->stall_left -= length;
	if (waits && length) {
		waits->stall_ns += length;
		observe(waits->stalls, stall_bounds, length);
	}
	return length;
}

/*
 * Adds what a run queue further up was throttled since `looked` to the history in `own`, and what own tasks waited of it
 * to the stalls in `waits`; returns how much of the own run queue's throttled time that explains.
 */
NOINLINE u64 absorb(struct level *above, u32 own, u64 looked, u32 waits)
{
	struct throttle *to = bpf_map_lookup_elem(&throttles, &own), *from;
	u32 slot = throttle_slot(above) & ~NEW;
	u64 absorbed = 0, length;

	from = bpf_map_lookup_elem(&throttles, &slot);
	if (!from || !to || !above)
		return 0;
	length = take_length(from, above);
	if (length)
		close_span(slot, from, above, length);
	from->looked = above->now;
	for (u32 i = 0; i < SPANS; i++) {
		u64 start = from->spans[i].start, end = from->spans[i].end;

		if (end > looked) {
			u64 stalled = count_stall(waits, above, start, end);

			add_span(own, start, end);
			absorbed += above->pelt ? end - start : stalled;
		}
	}
	return absorbed;
}

static ALWAYS_INLINE u64 throttle_total(struct cfs_rq *queue)
{
	if (field_exists(queue->throttled_clock_self_time))
		return queue->throttled_clock_self_time;
	/* Until 6.5; in PELT time. */
	if (field_exists(queue->throttled_clock_pelt_time))
		return queue->throttled_clock_pelt_time;
	return 0;
}

static ALWAYS_INLINE u64 throttle_start(struct cfs_rq *queue, u64 now)
{
	if (field_exists(queue->throttled_clock_self))
		return queue->throttled_clock_self;
	/* There a throttled run queue is left at once, and not entered again. */
	if (field_exists(queue->throttled_clock_pelt_time))
		return queue->throttle_count ? now : 0;
	return 0;
}

static ALWAYS_INLINE void read_level(struct level *level, struct cfs_rq *queue)
{
	level->css = queue->tg->css.serial_nr;
	level->total = throttle_total(queue);
	level->start = throttle_start(queue, level->now);
	if (!field_exists(queue->throttled_clock_self_time)) {
		level->pelt = queue->rq->clock_pelt - queue->rq->lost_idle_time;
		level->tasks = queue->nr_running;
	}
}

/*
 * The quota may be one of a group further up, and other groups below that may have tasks that wait on this CPU: so
 * every level that is throttled gets to know.
 */
static NOINLINE int open_throttles(struct task_struct *prev, u32 id, u64 now)
{
	struct level level = { .now = now, .queued = now, .id = id };
	struct sched_entity *entity = &prev->se;

	for (u32 depth = 0; depth < MAX_DEPTH && entity; depth++) {
		read_level(&level, entity->cfs_rq);
		if (!level.start)
			break;
		open_throttle(&level);
		entity = entity->parent;
	}
	return 0;
}

/* Adds a throttle by the run queue's own quota to its history and to the stalls. */
NOINLINE int close_own_span(u32 slot, struct level *level, u64 length, u32 waits)
{
	struct throttle *own = bpf_map_lookup_elem(&throttles, &slot);
	u64 start;

	if (!own || !level)
		return 0;
	start = close_span(slot, own, level, length);
	count_stall(waits, level, start, start + length);
	return 0;
}

/* Brings the history of a run queue up to date, a task of which comes in, and the stalls of its cgroup in `waits`. */
static NOINLINE u32 close_throttles(struct task_struct *next, u64 queued, u32 id, u64 now, u32 waits)
{
	struct level level = { .now = now, .queued = queued, .id = id };
	struct sched_entity *entity = next->se.parent;
	u64 looked, length, absorbed = 0;
	struct throttle *own;
	u32 slot;

	read_level(&level, next->se.cfs_rq);
	slot = throttle_slot(&level);
	own = bpf_map_lookup_elem(&throttles, &slot);
	if (!own)
		return slot;
	looked = own->looked;
	own->looked = now;
	if (likely(own->total == level.total))
		return slot;
	length = take_length(own, &level);
	/*
	 * The kernel's total holds only time in which the run queue had tasks, whichever of them came in first. Until 6.5
	 * it goes on while all of them sleep: what counts there is since when this task, or those that were on the run
	 * queue when the throttle began, have waited.
	 */
	level.stall_left = level.pelt ? ~0ULL : length;
	level.stall_from = !level.pelt ? 0 : own->queued && own->queued < level.queued ? own->queued : level.queued;
	for (u32 depth = 0; depth < MAX_DEPTH && entity; depth++) {
		read_level(&level, entity->cfs_rq);
		if (level.total)
			absorbed += absorb(&level, slot, looked, waits);
		entity = entity->parent;
	}
	if (length > absorbed)
		close_own_span(slot, &level, length - absorbed, waits);
	own->opened = 0;
	own->queued = 0;
	return slot;
}

/* Cuts lo..hi of a wait at the throttles of its run queue, and shares out what lies outside; returns what lies inside. */
NOINLINE u64 charge_throttled(struct share *share, u32 id, u32 slot)
{
	struct throttle *throttle = bpf_map_lookup_elem(&throttles, &slot);
	u64 lo, hi, throttled = 0, unknown = 0;

	if (!share || !throttle)
		return 0;
	lo = share->lo;
	hi = share->hi;
	for (u32 i = 0; i < SPANS; i++) {
		u64 start = throttle->spans[i].start, end = throttle->spans[i].end;

		if (end <= lo)
			break;
		if (start >= hi)
			continue;
		if (end < hi) {
			share->lo = end;
			share->hi = hi;
			charge_slices(share, id);
			unknown += share->hi - share->lo;
			hi = end;
		}
		if (start < lo)
			start = lo;
		throttled += hi - start;
		hi = start;
	}
	share->lo = lo;
	share->hi = hi;
	/* Before the oldest span that is kept there may have been another. */
	if (hi > lo && throttle->spans[SPANS - 1].end <= lo)
		charge_slices(share, id);
	share->hi += unknown;
	return throttled;
}

static ALWAYS_INLINE u64 cgroup_of(struct task_struct *task)
{
	u64 id;

	if (!task->pid)
		return IDLE;
	/* The group that the scheduler knows it by: the cpu controller's, v1 or v2. None: an autogroup, of the root. */
	id = task->sched_task_group->css.cgroup->kn->id;
	return id ? id : ROOT;
}

/* All containers of a pod have the same group above them. The address is only compared. */
static ALWAYS_INLINE u64 pod_of(struct task_struct *task)
{
	return (u64)task->sched_task_group->parent;
}

/* Neighbors in pid are often threads of one process on several CPUs, which should not share a cache line. */
static ALWAYS_INLINE struct task_note *note_of(u32 pid)
{
	u32 slot = (pid * 0x9e3779b1U) >> (32 - NOTES_BITS);

	return bpf_map_lookup_elem(&notes, &slot);
}

static ALWAYS_INLINE void note_preemption(struct task_struct *prev)
{
	u32 pid = prev->pid;
	struct task_note *note = note_of(pid);

	if (note) {
		note->preempted = pid;
		note->slept = prev->nvcsw;
	}
}

static ALWAYS_INLINE void note_delay(struct task_note *note, u32 pid, u64 session, u64 delay)
{
	note->came = pid | (u32)session << SESSION_SHIFT;
	note->delay = delay >> 10;
}

/*
 * Notes that a task comes in after a wait; returns whether it was woken. A task that was preempted and has not slept
 * since was not, on whatever CPU it waits by now.
 */
static ALWAYS_INLINE u32 note_arrival(struct task_struct *next, u64 session, u64 wait)
{
	u32 pid = next->pid;
	struct task_note *note = note_of(pid);

	if (!note)
		return 1;
	note_delay(note, pid, session, next->sched_info.run_delay + wait);
	return note->preempted != pid || note->slept != (u32)next->nvcsw;
}

/* How long a task that is moved has waited on the old CPU; 0: not known, or it has not. */
static ALWAYS_INLINE u64 waited_before_move(struct task_struct *task, u64 session)
{
	u64 delay = task->sched_info.run_delay;
	u32 pid = task->pid, before;
	struct task_note *note = note_of(pid);
	s32 waited;

	if (!note)
		return 0;
	before = note->delay;
	if (note->came != (pid | (u32)session << SESSION_SHIFT)) {
		/* A new task has waited nowhere else. */
		before = 0;
		if (task->sched_info.pcount)
			delay = 0;
	}
	waited = (u32)(delay >> 10) - before;
	note_delay(note, pid, session, task->sched_info.run_delay);
	return waited > 0 ? (u64)waited << 10 : 0;
}

static ALWAYS_INLINE void add_share(struct cpu *cpu, struct cgroup_waits *victim, struct share *share)
{
	if (share->self_ns)
		victim->self_ns += share->self_ns;
	if (share->idle_ns) {
		victim->idle_ns += share->idle_ns;
		victim->lost_idle_ns += share->lost_idle_ns;
	}
	if (unlikely(share->hi != share->lo))
		victim->unknown_ns += share->hi - share->lo;
	if (unlikely(share->lost_unknown_ns))
		victim->lost_unknown_ns += share->lost_unknown_ns;
	if (unlikely(share->dropped_ns)) {
		cpu->lost_waits++;
		cpu->lost_ns += share->dropped_ns;
	}
}

static ALWAYS_INLINE struct share *begin_share(struct cpu *cpu, u32 table, u64 cgroup, u64 pod, u64 lo, u64 hi)
{
	struct share *share = &cpu->share;

	share->cgroup = cgroup;
	share->pod = pod;
	share->lo = lo;
	share->hi = hi;
	share->position = cpu->pushed - 1;
	share->left = cpu->pushed < SLICES ? cpu->pushed : SLICES;
	share->floor = cpu->settled > cpu->began ? cpu->settled : cpu->began;
	share->fresh = hi;
	share->table = table;
	share->beside = 0;
	share->self_ns = share->idle_ns = share->dropped_ns = 0;
	share->lost_idle_ns = share->lost_unknown_ns = 0;
	return share;
}

/* Where in `coverage` the pod is in the walk at `now`, or has a place; NULL: there are too many. */
static ALWAYS_INLINE struct coverage *coverage_of(struct cpu *cpu, u64 pod, u64 now)
{
	u32 first = hash(pod, 0);

	for (u32 i = 0; i < PROBES; i++) {
		struct coverage *coverage = &cpu->coverage[(first + i) & (PODS - 1)];

		if (coverage->at != now) {
			coverage->at = now;
			coverage->pod = pod;
			coverage->from = now;
			return coverage;
		}
		if (coverage->pod == pod)
			return coverage;
	}
	return NULL;
}

/*
 * Shares out a wait of a run queue that was ever throttled, which is not counted while it lasts: of what lies before the
 * last walk over waits in progress, other tasks of the pod may have counted a part in that walk.
 */
NOINLINE u64 charge_whole(u32 id, u32 slot)
{
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &id);
	struct throttle *throttle = bpf_map_lookup_elem(&throttles, &slot);
	struct coverage *coverage;
	struct share *share;
	u64 queued, throttled, unknown;

	if (!cpu || !throttle)
		return 0;
	share = &cpu->share;
	queued = share->lo;
	if (likely(queued >= cpu->settled))
		return charge_throttled(share, id, slot);
	share->lo = cpu->settled;
	throttled = charge_throttled(share, id, slot);
	/* It had no history then, and was counted too. */
	if (throttle->since > cpu->settled)
		return throttled;
	unknown = share->hi - share->lo;
	share->lo = queued;
	share->hi = cpu->settled;
	share->floor = cpu->began;
	coverage = coverage_of(cpu, share->pod, cpu->settled);
	if (coverage && coverage->from < share->fresh)
		share->fresh = coverage->from;
	throttled += charge_throttled(share, id, slot);
	share->hi += unknown;
	return throttled;
}

static ALWAYS_INLINE u32 capped(u64 ns)
{
	return ns < ~0U ? ns : ~0U;
}

/*
 * Accounts a wait that ends with a turn or with a move, from the start of the session on, and notes in the turn how far
 * back what the pod lost is counted. Returns how long the task waited but for throttling.
 */
static ALWAYS_INLINE u64 account_wait(struct cpu *cpu, u32 id, u32 table, u32 slot, struct task_struct *task, u64 queued,
				      struct slice *turn)
{
	u64 now = turn->start, throttled = 0, wait = now - queued, newest = 0;
	u64 from = queued > cpu->began ? queued : cpu->began;
	struct cgroup_waits *victim = bpf_map_lookup_elem(&cgroups, &slot);
	struct throttle *throttle;
	struct share *share;

	if (!victim)
		return 0;
	share = begin_share(cpu, table, turn->cgroup, turn->pod, from, now);
	if (unlikely(throttle_total(task->se.cfs_rq)) && task->prio >= MAX_RT_PRIO) {
		slot = close_throttles(task, queued, id, now, slot);
		/* Nothing is known of the past: the whole wait may have been a throttle. */
		if (slot & NEW) {
			if (share->lo < cpu->settled)
				share->lo = cpu->settled;
			victim->unknown_ns += now - share->lo;
			return 0;
		}
		throttled = charge_whole(id, slot);
		victim->throttled_ns += throttled;
		throttle = bpf_map_lookup_elem(&throttles, &slot);
		if (throttle)
			newest = throttle->spans[0].end;
	} else {
		if (unlikely(from < cpu->settled) && task->prio >= MAX_RT_PRIO)
			share->lo = cpu->settled;
		charge_slices(share, id);
	}
	add_share(cpu, victim, share);
	turn->covered = capped(wait);
	turn->unthrottled = newest > queued ? capped(now - newest) : turn->covered;
	return wait - throttled;
}

/* The wait of the task that comes in. */
static ALWAYS_INLINE void account_arrival(struct cpu *cpu, u32 id, u32 table, struct task_struct *next, struct slice *turn)
{
	u64 queued = next->sched_info.last_queued, now = turn->start, wait;
	struct cgroup_waits *victim;
	u32 slot, woken;

	if (!queued || queued > now) {
		note_arrival(next, cpu->session, 0);
		return;
	}
	wait = now - queued;
	woken = note_arrival(next, cpu->session, wait);
	slot = cgroup_slot(table, turn->cgroup);
	victim = bpf_map_lookup_elem(&cgroups, &slot);
	if (!victim) {
		cpu->lost_waits++;
		cpu->lost_ns += wait;
		return;
	}
	victim->wakeups += woken;
	if (!wait)
		return;
	wait = account_wait(cpu, id, table, slot, next, queued, turn);
	if (!turn->covered)
		return;
	victim->latency_ns += wait;
	observe(victim->latencies, latency_bounds, wait);
	if (unlikely(wait >= LATE_NS))
		victim->late_wakeups += woken;
}

/* The turn that ends now, by what the other thread of the core ran meanwhile. */
static ALWAYS_INLINE void account_smt(struct cpu *cpu, u32 table, u64 cgroup, u64 now)
{
	u32 other = cpu->sibling - 1, slot;
	struct cpu *sibling = bpf_map_lookup_elem(&cpus, &other);
	struct cgroup_waits *victim;
	struct share *share;

	if (!sibling || sibling->session != cpu->session)
		return;
	slot = cgroup_slot(table, cgroup);
	victim = bpf_map_lookup_elem(&cgroups, &slot);
	if (!victim)
		return;
	share = begin_share(cpu, table, cgroup, 0, cpu->smt_from, now);
	share->beside = 1;
	share->position = sibling->pushed - 1;
	share->left = sibling->pushed < SIBLING_SLICES ? sibling->pushed : SIBLING_SLICES;
	charge_slices(share, other);
	victim->smt_self_ns += share->self_ns;
	victim->smt_idle_ns += share->idle_ns;
}

/* Another task of the cgroup goes on with its turn, `after` its start. */
static ALWAYS_INLINE void extend(struct slice *slice, u64 after, u32 covered, u32 unthrottled)
{
	if (covered > after && covered - after > slice->covered)
		slice->covered = covered - after;
	if (unthrottled > after && unthrottled - after > slice->unthrottled)
		slice->unthrottled = unthrottled - after;
}

/* All tasks that are queued on a CPU, and the one whose wait is looked at. */
struct walk {
	u64 node, head;  /* of the list of tasks */
	u64 rq, next;    /* as in struct cpu */
	u64 now;
	u64 queue;       /* the CFS run queue of the last task */
	u64 cgroup, pod; /* which they are; NOBODY: its waits count when they end */
	u32 id, table;
};

static long count_task(u32 __attribute__((unused)) index, struct walk *walk)
{
	if (!walk->node || walk->node == walk->head)
		return 1;
	peek(walk->node, ((struct list_head *)walk->node)->next);
	return 0;
}

/* Counts what a wait has lasted until now. */
NOINLINE int settle_wait(u32 id, u32 table, u64 cgroup, u64 pod, u64 queued)
{
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &id);
	u32 slot = cgroup_slot(table, cgroup);
	struct cgroup_waits *victim = bpf_map_lookup_elem(&cgroups, &slot);
	struct coverage *coverage;
	struct share *share;
	u64 lo, hi;

	if (!cpu)
		return 0;
	lo = queued > cpu->settled ? queued : cpu->settled;
	if (lo < cpu->began)
		lo = cpu->began;
	hi = cpu->walked;
	if (lo >= hi)
		return 0;
	if (!victim) {
		cpu->lost_ns += hi - lo;
		return 0;
	}
	share = begin_share(cpu, table, cgroup, pod, lo, hi);
	coverage = coverage_of(cpu, pod, hi);
	share->fresh = coverage ? coverage->from : 0;
	if (coverage && queued < coverage->from)
		coverage->from = queued;
	charge_slices(share, id);
	add_share(cpu, victim, share);
	return 0;
}

/* Looks at the run queue of a task. */
static ALWAYS_INLINE void enter_queue(struct walk *walk, struct cfs_rq *queue)
{
	struct task_group *group = NULL;
	struct cgroup *cgroup = NULL;
	struct kernfs_node *node = NULL;
	u64 rq = 0, throttled = 0;
	u32 count = 0;

	walk->queue = (u64)queue;
	walk->cgroup = NOBODY;
	peek(rq, queue->rq);
	if (field_exists(queue->throttled_clock_self_time)) {
		peek(throttled, queue->throttled_clock_self_time);
		if (!throttled)
			peek(throttled, queue->throttled_clock_self);
	} else if (field_exists(queue->throttled_clock_pelt_time)) {
		peek(throttled, queue->throttled_clock_pelt_time);
		peek(count, queue->throttle_count);
	}
	if (rq != walk->rq || throttled || count)
		return;
	peek(group, queue->tg);
	peek(cgroup, group->css.cgroup);
	peek(node, cgroup->kn);
	peek(walk->cgroup, node->id);
	peek(walk->pod, group->parent);
	if (walk->cgroup == ROOT)
		walk->cgroup = NOBODY;
}

static long settle_task(u32 __attribute__((unused)) index, struct walk *walk)
{
	struct task_struct *task = (void *)(walk->node - field_offset(((struct task_struct *)0)->se.group_node));
	struct cfs_rq *queue = NULL;
	u64 queued = 0;

	if (!walk->node || walk->node == walk->head)
		return 1;
	peek(walk->node, ((struct list_head *)walk->node)->next);
	peek(queued, task->sched_info.last_queued);
	if (!queued || queued >= walk->now || (u64)task == walk->next)
		return 0;
	peek(queue, task->se.cfs_rq);
	if ((u64)queue != walk->queue)
		enter_queue(walk, queue);
	if (walk->cgroup)
		settle_wait(walk->id, walk->table, walk->cgroup, walk->pod, queued);
	return 0;
}

/*
 * Counts the waits in progress, so that a task that starves shows before it runs. A queue that is too long for a walk is
 * left alone: its waits count when they end.
 */
NOINLINE int settle(u64 now, u32 id, u32 table)
{
	struct walk walk = { .now = now, .id = id, .table = table };
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &id);
	struct rq *rq;

	if (!cpu)
		return 0;
	rq = (void *)cpu->rq;
	cpu->walked = now;
	if (!field_exists(rq->cfs_tasks))
		return 0;
	walk.rq = cpu->rq;
	walk.next = cpu->next;
	walk.head = (u64)&rq->cfs_tasks;
	walk.node = walk.head;
	peek(walk.node, ((struct list_head *)walk.node)->next);
	bpf_loop(SETTLE_TASKS, count_task, &walk, 0);
	if (walk.node != walk.head)
		return 0;
	peek(walk.node, ((struct list_head *)walk.node)->next);
	bpf_loop(SETTLE_TASKS, settle_task, &walk, 0);
	cpu->settled = now;
	return 0;
}

SEC("tp_btf/sched_switch")
int sched_switch(u64 *context)
{
	struct task_struct *prev = (void *)context[1], *next = (void *)context[2];
	u32 zero = 0, id = bpf_get_smp_processor_id();
	struct control *settings = bpf_map_lookup_elem(&controls, &zero);
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &id);
	u64 now = next->se.cfs_rq->rq->clock, began = 0, reading = 0, holder;
	struct slice turn = { .start = now, .cgroup = cgroup_of(next), .pod = pod_of(next) };
	struct slice *slice;
	u32 table;

	if (!cpu || !settings)
		return 0;
	if (unlikely(!(cpu->switches++ & (TIMED_EVERY - 1)))) {
		reading = bpf_ktime_get_ns();
		began = bpf_ktime_get_ns();
		reading = began - reading;
	}
	table = id * 2 + (settings->half & 1);
	if (unlikely(cpu->session != settings->session)) {
		cpu->session = settings->session;
		cpu->pushed = 0;
		cpu->began = now;
		cpu->settled = 0;
		cpu->walked = 0;
		holder = IDLE;
	} else {
		holder = cpu->slices[(cpu->pushed - 1) & (SLICES - 1)].cgroup;
		if (smt && holder != IDLE && holder != ROOT && cpu->sibling)
			account_smt(cpu, table, holder, now);
		if (holder != IDLE && unlikely(throttle_start(prev->se.cfs_rq, now)) && prev->prio >= MAX_RT_PRIO)
			open_throttles(prev, id, now);
		/* It stays queued: preempted, or with nothing to sleep for. */
		if ((context[0] & 1) || !context[3])
			note_preemption(prev);
	}
	cpu->smt_from = now;
	if (turn.cgroup != IDLE && turn.cgroup != ROOT)
		account_arrival(cpu, id, table, next, &turn);
	if (!cpu->pushed || holder != turn.cgroup) {
		slice = &cpu->slices[cpu->pushed & (SLICES - 1)];
		*slice = turn;
		cpu->pushed++;
	} else {
		slice = &cpu->slices[(cpu->pushed - 1) & (SLICES - 1)];
		extend(slice, now - slice->start, turn.covered, turn.unthrottled);
	}
	if (unlikely(now - cpu->walked > SETTLE_NS)) {
		cpu->rq = (u64)next->se.cfs_rq->rq;
		cpu->next = (u64)next;
		settle(now, id, table);
	}
	if (unlikely(began)) {
		u64 took = bpf_ktime_get_ns() - began;

		/* A reading of the clock may take longer than all the rest, on a virtual machine. */
		cpu->timed_ns += took > reading ? took - reading : 0;
		cpu->timed_runs++;
	}
	return 0;
}

/*
 * The same for the CPU in the first argument, before user space reads the counts. Not attached, but run by user space:
 * first anywhere, which returns whether anything waits there, then on that CPU. There no switch can interrupt it. The run
 * queue is not locked, so tasks may come and go: of the list only numbers are followed, and a task that is on the way to
 * another CPU is none of this one's.
 */
SEC("raw_tp/settle")
int settle_cpu(u64 *context)
{
	u32 zero = 0, id = context[0], running = 0;
	struct control *settings = bpf_map_lookup_elem(&controls, &zero);
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &id);
	struct rq *rq;
	u64 now = 0;

	if (!cpu || !settings || !cpu->pushed || cpu->session != settings->session)
		return 0;
	rq = (void *)cpu->rq;
	peek(now, rq->clock);
	if (now <= cpu->walked)
		return 0;
	if (id != bpf_get_smp_processor_id()) {
		peek(running, rq->nr_running);
		return running > 1;
	}
	cpu->next = 0;
	if (__sync_val_compare_and_swap(&cpu->is_walked, 0, 1))
		return 0;
	settle(now, id, id * 2 + (settings->half & 1));
	__sync_val_compare_and_swap(&cpu->is_walked, 1, 0);
	return 0;
}

/* A wait of `turn` ended now by a move, while another task runs: what the pod lost is counted so far back. */
static ALWAYS_INLINE void note_move(struct cpu *cpu, struct slice *turn)
{
	struct slice *slice = &cpu->slices[(cpu->pushed - 1) & (SLICES - 1)];
	struct slice running = { .start = turn->start, .cgroup = slice->cgroup, .pod = slice->pod };

	if (slice->cgroup == turn->cgroup) {
		extend(slice, turn->start - slice->start, turn->covered, turn->unthrottled);
		return;
	}
	/* A turn without a length, then the one that goes on. */
	cpu->slices[cpu->pushed & (SLICES - 1)] = *turn;
	cpu->slices[(cpu->pushed + 1) & (SLICES - 1)] = running;
	cpu->pushed += 2;
}

/*
 * Runs on whatever CPU moves the task, and holds the lock of the old CPU's run queue if the task was queued there. A task
 * whose run queue is throttled now is left alone: when it ends is not known.
 */
SEC("tp_btf/sched_migrate_task")
int sched_migrate_task(u64 *context)
{
	struct task_struct *task = (void *)context[0];
	u32 zero = 0, id = bpf_get_smp_processor_id(), slot;
	struct control *settings = bpf_map_lookup_elem(&controls, &zero);
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &id);
	u64 now = task->se.cfs_rq->rq->clock, waited;
	struct slice turn = { .start = now, .cgroup = cgroup_of(task), .pod = pod_of(task) };

	if (!cpu || !settings)
		return 0;
	cpu->moves++;
	if (likely(task->on_rq != MIGRATING) || turn.cgroup == ROOT)
		return 0;
	waited = waited_before_move(task, settings->session);
	id = task->se.cfs_rq->rq->cpu;
	cpu = bpf_map_lookup_elem(&cpus, &id);
	if (!waited || waited >= now || !cpu || !cpu->pushed || cpu->session != settings->session)
		return 0;
	if (unlikely(throttle_start(task->se.cfs_rq, now)))
		return 0;
	if (__sync_val_compare_and_swap(&cpu->is_walked, 0, 1))
		return 0;
	slot = cgroup_slot(id * 2 + (settings->half & 1), turn.cgroup);
	if (slot == NO_SLOT) {
		cpu->lost_waits++;
		cpu->lost_ns += waited;
	} else {
		account_wait(cpu, id, id * 2 + (settings->half & 1), slot, task, now - waited, &turn);
		if (turn.covered)
			note_move(cpu, &turn);
	}
	__sync_val_compare_and_swap(&cpu->is_walked, 1, 0);
	return 0;
}
