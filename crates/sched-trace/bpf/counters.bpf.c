// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The CPU counters of all cgroups in one call: what cpu.stat prints, without its text, and the quota and its period.
 *
 * User space runs the program (BPF_PROG_TEST_RUN); it is never attached. It follows the scheduler's list of task groups
 * once around and writes one record for each group of a cgroup. The list also contains autogroups and its own head,
 * which have no subsystem, and removed groups until the kernel releases them, which are not online. Groups more levels
 * below the root than the caller asks for get no record: a container may create thousands.
 *
 * On cgroup v1 a second program reads what cpuacct.usage prints: it follows the cgroups of that hierarchy, which may be
 * others than those of the cpu controller.
 *
 * The groups are read without a lock, as their files are. The programs run under RCU, and the kernel frees a group only
 * after a grace period, so that a walk cannot leave its list.
 */
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* include/uapi/linux/bpf.h */
static u64 (*const bpf_get_current_task)(void) = (void *)35;
static void *(*const bpf_map_lookup_percpu_elem)(void *map, const void *key, u32 cpu) = (void *)195;

enum { BPF_MAP_TYPE_PERCPU_ARRAY = 6 };

#define CSS_ONLINE 2 /* include/linux/cgroup-defs.h */
#define MAX_DEPTH 64
#define MAX_STEPS 65536 /* along the list, removed groups included */
#define MAX_CPUS 16	/* GroupCounters::MAX_CPUS */
#define SUBSYSTEMS 16	/* more than any kernel has */

/* Set by the loader: on cgroup v2 the hierarchy of the cpu controller also has the usage. */
const volatile u32 has_usage = 0;
/* Set by the loader: number of possible CPUs, at most MAX_CPUS. */
const volatile u32 cpus = 0;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct task_cputime {
	u64 stime;
	u64 utime;
	unsigned long long sum_exec_runtime;
};

struct cgroup_base_stat {
	struct task_cputime cputime;
};

struct prev_cputime {
	u64 utime;
	u64 stime;
};

struct cgroup___counters {
	struct kernfs_node *kn;
	int level; /* of the root: 0 */
	struct cgroup_base_stat bstat;
	struct prev_cputime prev_cputime;
};

struct cgroup_subsys_state___counters {
	struct cgroup *cgroup;
	void *ss;
	unsigned int flags;
};

struct cfs_bandwidth {
	s64 period; /* nanoseconds */
	u64 quota;  /* nanoseconds; all bits without one */
	int nr_periods;
	int nr_throttled;
	int nr_burst; /* since 5.14, with burst_time */
	u64 throttled_time;
	u64 burst_time;
};

struct task_group___counters {
	struct cgroup_subsys_state___counters css;
	struct task_group *parent;
	struct list_head list;
	struct cfs_bandwidth cfs_bandwidth;
};

struct cgroup_subsys {
	const char *name;
};

struct cgroup_subsys_state___tree {
	struct cgroup *cgroup;
	struct cgroup_subsys *ss;
	struct list_head sibling;
	struct list_head children;
	unsigned int flags;
	struct cgroup_subsys_state___tree *parent;
};

struct cpuacct {
	u64 *cpuusage; /* per CPU */
};

struct css_set {
	struct cgroup_subsys_state___tree *subsys[SUBSYSTEMS];
};

struct task_struct___groups {
	struct css_set *cgroups;
};

struct bpf_array {
	void *pptrs[1];
};

#pragma clang attribute pop

/* Of one cgroup. The usage is 0 without has_usage. */
struct group {
	u64 cgroup;
	u64 throttled_ns;
	u64 burst_ns;
	u64 usage_ns; /* as of the last flush, which a read of an ancestor's cpu.stat does */
	u64 user_ns;  /* before they are scaled to the usage */
	u64 system_ns;
	u64 shown_user_ns; /* as the file printed them last */
	u64 shown_system_ns;
	u32 periods;
	u32 throttled_periods;
	u32 burst_periods;
	u32 has_burst;
	u64 quota_ns;
	u64 period_ns;
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_UINT(map_flags, BPF_F_MMAPABLE);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct group);
} groups SEC(".maps");

struct walk {
	struct task_group___counters *group, *root;
	void *subsystem;
	u64 levels;
	u32 written, is_complete;
};

static ALWAYS_INLINE void read_usage(struct group *to, struct cgroup___counters *from)
{
	unsigned long long usage = 0;

	peek(usage, from->bstat.cputime.sum_exec_runtime);
	to->usage_ns = usage;
	peek(to->user_ns, from->bstat.cputime.utime);
	peek(to->system_ns, from->bstat.cputime.stime);
	peek(to->shown_user_ns, from->prev_cputime.utime);
	peek(to->shown_system_ns, from->prev_cputime.stime);
}

static ALWAYS_INLINE void read_group(struct group *to, struct task_group___counters *from,
				     struct cgroup___counters *cgroup)
{
	struct kernfs_node *node = NULL;

	peek(node, cgroup->kn);
	peek(to->cgroup, node->id);
	peek(to->periods, from->cfs_bandwidth.nr_periods);
	peek(to->throttled_periods, from->cfs_bandwidth.nr_throttled);
	peek(to->throttled_ns, from->cfs_bandwidth.throttled_time);
	peek(to->quota_ns, from->cfs_bandwidth.quota);
	peek(to->period_ns, from->cfs_bandwidth.period);
	to->has_burst = field_exists(from->cfs_bandwidth.nr_burst);
	if (to->has_burst) {
		peek(to->burst_periods, from->cfs_bandwidth.nr_burst);
		peek(to->burst_ns, from->cfs_bandwidth.burst_time);
	}
	if (has_usage)
		read_usage(to, cgroup);
}

/* Reads one group and steps to the next; 1 ends the walk. */
static long step(u32 __attribute__((unused)) index, struct walk *walk)
{
	struct task_group___counters *group = walk->group;
	struct cgroup___counters *cgroup = NULL;
	struct list_head *next = NULL;
	void *subsystem = NULL;
	u32 flags = 0, level = 0;

	peek(subsystem, group->css.ss);
	peek(flags, group->css.flags);
	peek(cgroup, group->css.cgroup);
	peek(level, cgroup->level);
	if (subsystem == walk->subsystem && flags & CSS_ONLINE && cgroup && level <= walk->levels) {
		struct group *to = bpf_map_lookup_elem(&groups, &walk->written);

		if (!to)
			return 1;
		read_group(to, group, cgroup);
		walk->written++;
	}
	peek(next, group->list.next);
	if (!next)
		return 1;
	walk->group = (void *)next - field_offset(group->list);
	walk->is_complete = walk->group == walk->root;
	return walk->is_complete;
}

static ALWAYS_INLINE struct task_group___counters *root_group(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct task_group *group = NULL, *parent = NULL;

	peek(group, task->sched_task_group);
	for (int depth = 0; depth < MAX_DEPTH; depth++) {
		parent = NULL;
		peek(parent, group->parent);
		if (!parent)
			return (void *)group;
		group = parent;
	}
	return NULL;
}

/* `context`: the number of levels below the root. Returns the number of records; 0 if there is no room for all. */
SEC("raw_tp/counters")
int collect(u64 *context)
{
	struct walk walk = { .levels = context[0] };

	walk.root = root_group();
	if (!walk.root)
		return 0;
	walk.group = walk.root;
	peek(walk.subsystem, walk.root->css.ss);
	bpf_loop(MAX_STEPS, step, &walk, 0);
	return walk.is_complete ? walk.written : 0;
}

/* Of one cgroup with cpuacct. */
struct usage {
	u64 cgroup;
	u64 usage_ns;
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_UINT(map_flags, BPF_F_MMAPABLE);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct usage);
} usages SEC(".maps");

/* One value on each CPU, of which both kinds of address are known: that of all, and that of each. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} landmark SEC(".maps");

/* Distance from the address of a per-CPU value to that on each CPU. */
struct offsets {
	u64 of[MAX_CPUS];
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct offsets);
} offsets SEC(".maps");

/* The verifier lets an address become a number where it is stored. */
static volatile u64 number;

static ALWAYS_INLINE struct offsets *cpu_offsets(void)
{
	u32 first = 0;
	struct offsets *to = bpf_map_lookup_elem(&offsets, &first);
	u64 all = 0, array;

	if (!to)
		return NULL;
	number = (u64)&landmark;
	array = number;
	bpf_probe_read_kernel(&all, sizeof(all), (void *)(array + field_offset(((struct bpf_array *)0)->pptrs)));
	for (u32 cpu = 0; cpu < MAX_CPUS; cpu++) {
		void *here;

		if (cpu >= cpus)
			break;
		here = bpf_map_lookup_percpu_elem(&landmark, &first, cpu);
		if (!here)
			return NULL;
		number = (u64)here;
		to->of[cpu] = number - all;
	}
	return to;
}

struct tree_walk {
	struct cgroup_subsys_state___tree *at, *root;
	struct offsets *offsets;
	u64 levels;
	u32 is_complete, is_left; /* left: what is below `at` has been visited */
};

/* Number of records. The verifier would follow each value of a field of the walk. */
static volatile u32 written;

static ALWAYS_INLINE u64 usage_of(struct cgroup_subsys_state___tree *group, struct offsets *from)
{
	u64 all = 0, sum = 0;

	/* The state is the first field of struct cpuacct. */
	peek(all, ((struct cpuacct *)group)->cpuusage);
	for (u32 cpu = 0; cpu < MAX_CPUS; cpu++) {
		u64 ns = 0;

		if (cpu >= cpus)
			break;
		bpf_probe_read_kernel(&ns, sizeof(ns), (void *)(all + from->of[cpu]));
		sum += ns;
	}
	return sum;
}

/* Reads one cgroup, or leaves it; 1 ends the walk. */
static long visit(u32 __attribute__((unused)) index, struct tree_walk *walk)
{
	struct cgroup_subsys_state___tree *at = walk->at, *parent = NULL;
	struct list_head *next = NULL;

	if (!walk->is_left) {
		struct cgroup *cgroup = NULL;
		u32 flags = 0, level = 0;

		peek(flags, at->flags);
		peek(cgroup, at->cgroup);
		if (flags & CSS_ONLINE && cgroup) {
			u32 record = written;
			struct usage *to = bpf_map_lookup_elem(&usages, &record);
			struct kernfs_node *node = NULL;

			if (!to || !walk->offsets)
				return 1;
			peek(node, cgroup->kn);
			peek(to->cgroup, node->id);
			peek(level, ((struct cgroup___counters *)cgroup)->level);
			to->usage_ns = usage_of(at, walk->offsets);
			written = record + 1;
		}
		peek(next, at->children.next);
		if (!next)
			return 1;
		if (level < walk->levels && (void *)next != (void *)at + field_offset(at->children)) {
			walk->at = (void *)next - field_offset(at->sibling);
			return 0;
		}
	}
	walk->is_complete = at == walk->root;
	if (walk->is_complete)
		return 1;
	peek(parent, at->parent);
	peek(next, at->sibling.next);
	if (!parent || !next)
		return 1;
	walk->is_left = (void *)next == (void *)parent + field_offset(parent->children);
	walk->at = walk->is_left ? parent : (void *)next - field_offset(at->sibling);
	return 0;
}

/* The root of the hierarchy with cpuacct. */
static ALWAYS_INLINE struct cgroup_subsys_state___tree *acct_root(void)
{
	struct task_struct___groups *task = (void *)bpf_get_current_task();
	struct cgroup_subsys_state___tree *found = NULL, *parent = NULL;
	struct css_set *set = NULL;

	peek(set, task->cgroups);
	for (u32 at = 0; at < SUBSYSTEMS; at++) {
		struct cgroup_subsys_state___tree *state = NULL;
		struct cgroup_subsys *subsystem = NULL;
		const char *name = NULL;
		u64 text = 0;

		bpf_probe_read_kernel(&state, sizeof(state), (void *)set + field_offset(set->subsys) + at * sizeof(state));
		peek(subsystem, state->ss);
		peek(name, subsystem->name);
		bpf_probe_read_kernel(&text, sizeof(text), name);
		if (text == 0x0074636361757063) { /* "cpuacct" */
			found = state;
			break;
		}
	}
	for (int depth = 0; found && depth < MAX_DEPTH; depth++) {
		parent = NULL;
		peek(parent, found->parent);
		if (!parent)
			return found;
		found = parent;
	}
	return NULL;
}

/* As `collect`; 0 also if there is no cpuacct. */
SEC("raw_tp/usage")
int collect_usage(u64 *context)
{
	struct tree_walk walk = { .levels = context[0] };

	walk.root = acct_root();
	walk.offsets = cpu_offsets();
	if (!walk.root || !walk.offsets)
		return 0;
	walk.at = walk.root;
	written = 0;
	bpf_loop(2 * MAX_STEPS, visit, &walk, 0);
	return walk.is_complete ? written : 0;
}
