// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Who makes whom wait for a CPU: one program on every context switch.
 *
 * The wait of the task that comes in began at sched_info.last_queued. What happened on this CPU since then is known
 * from two histories: the slices (who ran when), and for each CFS run queue that was ever throttled the spans in which
 * it was. The wait is cut at the spans; what lies inside is throttling, the rest is shared out to who ran then. All
 * times are the run queue's own clock, that of run_delay in /proc/PID/schedstat.
 *
 * Everything is per CPU and runs with interrupts off, so there are no locks and no atomics. User space maps the tables
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
#define MAX_RT_PRIO 100
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
	u64 padding[6];
	struct slice slices[SLICES];
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
	u64 padding[1];
	struct span spans[SPANS]; /* the newest first */
};

/* What happened to one cgroup's tasks on one CPU. What every wait adds to is in the first cache line. */
struct cgroup_waits {
	u64 cgroup; /* 0: free */
	u64 latency_ns;
	u32 latencies[BUCKETS];
	u64 self_ns;
	u64 throttled_ns, idle_ns, unknown_ns;
	u64 smt_self_ns, smt_idle_ns;
	u64 stall_ns;
	u32 stalls[BUCKETS];
	u64 padding[5];
};

/* What one cgroup did to another on one CPU. */
struct pair {
	u64 victim; /* 0: free */
	u64 holder;
	u64 wait_ns; /* the victim waited while the holder ran */
	u64 smt_ns;  /* the victim ran while the holder ran on the sibling thread */
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

MAPPED_ARRAY(controls, control);     /* one */
MAPPED_ARRAY(cpus, cpu);             /* CPUs */
MAPPED_ARRAY(throttles, throttle);   /* CPUs * slots */
MAPPED_ARRAY(cgroups, cgroup_waits); /* CPUs * halves * slots */
MAPPED_ARRAY(pairs, pair);           /* CPUs * halves * slots */

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

/* Charges to a pair; returns what found no slot. */
NOINLINE u64 charge_pair(u32 table, u64 victim, u64 holder, u64 ns, u32 beside)
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
			if (beside)
				pair->smt_ns += ns;
			else
				pair->wait_ns += ns;
			return 0;
		}
	}
	return ns;
}

/* A wait, or a turn beside the sibling thread, that is being shared out from new to old. */
struct share {
	u64 cgroup;         /* whose it is */
	u64 lo, hi;         /* what is left of it */
	u64 position, left; /* the slice that is next, and how many there are */
	u32 table;          /* of this CPU and half */
	u32 beside;         /* the slices are the sibling's */
	u64 self_ns, idle_ns, lost_ns;
};

struct cursor {
	struct share *share;
	struct cpu *cpu;
};

static ALWAYS_INLINE void charge(struct share *share, u64 holder, u64 ns)
{
	if (holder == share->cgroup)
		share->self_ns += ns;
	else if (holder == IDLE)
		share->idle_ns += ns;
	else
		share->lost_ns += charge_pair(share->table, share->cgroup, holder, ns, share->beside);
}

/* Charges the newest slice that has a part in what is left; 1 ends the loop. */
static long charge_slice(u32 __attribute__((unused)) index, struct cursor *cursor)
{
	struct share *share = cursor->share;
	struct slice *slice = &cursor->cpu->slices[share->position & (SLICES - 1)];
	u64 start = slice->start;

	if (start < share->hi) {
		u64 from = start > share->lo ? start : share->lo;

		charge(share, slice->cgroup, share->hi - from);
		share->hi = from;
		if (from == share->lo)
			return 1;
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
static NOINLINE u32 close_throttles(struct task_struct *next, u32 id, u64 now, u32 waits)
{
	struct level level = { .now = now, .queued = next->sched_info.last_queued, .id = id };
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

static ALWAYS_INLINE void account_wait(struct cpu *cpu, u32 id, u32 table, struct task_struct *next, u64 cgroup, u64 now)
{
	u64 queued = next->sched_info.last_queued, throttled = 0, wait = now - queued;
	struct share share = { .cgroup = cgroup, .lo = queued, .hi = now, .table = table };
	struct cgroup_waits *victim;
	u32 slot;

	if (!queued || queued >= now)
		return;
	slot = cgroup_slot(table, cgroup);
	victim = bpf_map_lookup_elem(&cgroups, &slot);
	if (!victim) {
		cpu->lost_waits++;
		cpu->lost_ns += wait;
		return;
	}
	share.position = cpu->pushed - 1;
	share.left = cpu->pushed < SLICES ? cpu->pushed : SLICES;
	if (unlikely(throttle_total(next->se.cfs_rq)) && next->prio >= MAX_RT_PRIO) {
		slot = close_throttles(next, id, now, slot);
		/* Nothing is known of the past: the whole wait may have been a throttle. */
		if (slot & NEW) {
			victim->unknown_ns += wait;
			return;
		}
		throttled = charge_throttled(&share, id, slot);
		victim->throttled_ns += throttled;
	} else {
		charge_slices(&share, id);
	}
	victim->self_ns += share.self_ns;
	if (share.idle_ns)
		victim->idle_ns += share.idle_ns;
	if (unlikely(share.hi != share.lo))
		victim->unknown_ns += share.hi - share.lo;
	victim->latency_ns += wait - throttled;
	observe(victim->latencies, latency_bounds, wait - throttled);
	if (unlikely(share.lost_ns)) {
		cpu->lost_waits++;
		cpu->lost_ns += share.lost_ns;
	}
}

/* The turn that ends now, by what the other thread of the core ran meanwhile. */
static ALWAYS_INLINE void account_smt(struct cpu *cpu, u32 table, u64 cgroup, u64 now)
{
	struct share share = { .cgroup = cgroup, .lo = cpu->smt_from, .hi = now, .table = table, .beside = 1 };
	u32 other = cpu->sibling - 1, slot;
	struct cpu *sibling = bpf_map_lookup_elem(&cpus, &other);
	struct cgroup_waits *victim;

	if (!sibling || sibling->session != cpu->session)
		return;
	slot = cgroup_slot(table, cgroup);
	victim = bpf_map_lookup_elem(&cgroups, &slot);
	if (!victim)
		return;
	share.position = sibling->pushed - 1;
	share.left = sibling->pushed < SIBLING_SLICES ? sibling->pushed : SIBLING_SLICES;
	charge_slices(&share, other);
	victim->smt_self_ns += share.self_ns;
	victim->smt_idle_ns += share.idle_ns;
}

SEC("tp_btf/sched_switch")
int sched_switch(u64 *context)
{
	struct task_struct *prev = (void *)context[1], *next = (void *)context[2];
	u32 zero = 0, id = bpf_get_smp_processor_id();
	struct control *settings = bpf_map_lookup_elem(&controls, &zero);
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &id);
	u64 now = next->se.cfs_rq->rq->clock, cgroup = cgroup_of(next);
	u64 began = 0, reading = 0, holder;
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
		holder = IDLE;
	} else {
		holder = cpu->slices[(cpu->pushed - 1) & (SLICES - 1)].cgroup;
		if (smt && holder != IDLE && holder != ROOT && cpu->sibling)
			account_smt(cpu, table, holder, now);
		if (holder != IDLE && unlikely(throttle_start(prev->se.cfs_rq, now)) && prev->prio >= MAX_RT_PRIO)
			open_throttles(prev, id, now);
	}
	cpu->smt_from = now;
	if (cgroup != IDLE && cgroup != ROOT)
		account_wait(cpu, id, table, next, cgroup, now);
	if (!cpu->pushed || holder != cgroup) {
		slice = &cpu->slices[cpu->pushed & (SLICES - 1)];
		slice->start = now;
		slice->cgroup = cgroup;
		cpu->pushed++;
	}
	if (unlikely(began)) {
		u64 took = bpf_ktime_get_ns() - began;

		/* A reading of the clock may take longer than all the rest, on a virtual machine. */
		cpu->timed_ns += took > reading ? took - reading : 0;
		cpu->timed_runs++;
	}
	return 0;
}
