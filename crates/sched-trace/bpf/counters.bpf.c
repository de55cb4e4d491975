// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The CPU counters of all cgroups in one call: what cpu.stat prints, without its text.
 *
 * User space runs the program (BPF_PROG_TEST_RUN); it is never attached. It follows the scheduler's list of task groups
 * once around and writes one record for each group of a cgroup. The list also contains autogroups and its own head,
 * which have no subsystem, and removed groups until the kernel releases them, which are not online.
 *
 * The groups are read without a lock, as their files are. The program runs under RCU, and the kernel frees a group only
 * after a grace period, so that the walk cannot leave the list.
 */
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static u64 (*const bpf_get_current_task)(void) = (void *)35; /* include/uapi/linux/bpf.h */

#define CSS_ONLINE 2 /* include/linux/cgroup-defs.h */
#define MAX_DEPTH 64
#define MAX_STEPS 65536 /* along the list, removed groups included */

/* Set by the loader: on cgroup v2 the hierarchy of the cpu controller also has the usage. */
const volatile u32 has_usage = 0;

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
	struct cgroup_base_stat bstat;
	struct prev_cputime prev_cputime;
};

struct cgroup_subsys_state___counters {
	struct cgroup *cgroup;
	void *ss;
	unsigned int flags;
};

struct cfs_bandwidth {
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
	u32 flags = 0;

	peek(subsystem, group->css.ss);
	peek(flags, group->css.flags);
	peek(cgroup, group->css.cgroup);
	if (subsystem == walk->subsystem && flags & CSS_ONLINE && cgroup) {
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

/* Returns the number of records; 0 if there is no room for all. */
SEC("raw_tp/counters")
int collect(u64 __attribute__((unused)) *context)
{
	struct walk walk = {};

	walk.root = root_group();
	if (!walk.root)
		return 0;
	walk.group = walk.root;
	peek(walk.subsystem, walk.root->css.ss);
	bpf_loop(MAX_STEPS, step, &walk, 0);
	return walk.is_complete ? walk.written : 0;
}
