/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the program needs of the kernel and of BPF, written down here: the handful of fields that it reads, which the
 * loader relocates to where the running kernel keeps them (CO-RE: preserve_access_index), and six helpers by their
 * numbers. A vmlinux.h says the same in 130,000 lines that change with the machine it was dumped on; this way the
 * object depends on the compiler alone, and a field that is read is a line that one can review.
 */
#ifndef CPUWARDEN_KERNEL_H
#define CPUWARDEN_KERNEL_H

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define NULL ((void *)0)

/* Map definitions: BTF of a variable in .maps. */
#define MAP_UINT(name, value) int(*name)[value]
#define MAP_TYPE(name, type) type *name

enum { BPF_MAP_TYPE_ARRAY = 2 };
enum { BPF_F_MMAPABLE = 1024 };

/* include/uapi/linux/bpf.h, by number. */
static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
static long (*const bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*const bpf_loop)(u32 iterations, void *callback, void *context, u64 flags) = (void *)181;

/* The running kernel has this field. */
#define field_exists(field) __builtin_preserve_field_info(field, 2)
/* Where the field is in its struct, in the running kernel. */
#define field_offset(field) __builtin_preserve_field_info(field, 0)
/* Reads a field by an address that the verifier knows nothing of; 0 if there is nothing. */
#define peek(to, field) bpf_probe_read_kernel(&(to), sizeof(to), &(field))

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	u64 serial_nr;
};

struct task_group {
	struct cgroup_subsys_state css;
	struct task_group *parent;
};

struct list_head {
	struct list_head *next;
};

struct rq {
	struct list_head cfs_tasks; /* all that are queued or run, but not in a throttled group since 6.18 */
	unsigned int nr_running;
	int cpu;
	u64 clock;
	u64 clock_pelt;
	u64 lost_idle_time;
};

struct cfs_rq {
	struct rq *rq;
	struct task_group *tg;
	unsigned int nr_running; /* read until 6.5 only; later kernels have another name for it */
	int throttle_count;
	u64 throttled_clock_pelt_time; /* until 6.5 the only one of these */
	u64 throttled_clock_self;
	u64 throttled_clock_self_time;
};

struct sched_entity {
	struct sched_entity *parent;
	struct list_head group_node;
	struct cfs_rq *cfs_rq;
};

struct sched_info {
	unsigned long pcount; /* how often it came in */
	unsigned long long run_delay; /* all waits that ended, each where it was moved to another CPU too */
	unsigned long long last_queued;
};

struct task_struct {
	int on_rq;
	int prio;
	s32 pid;
	struct sched_entity se;
	unsigned long nvcsw;
	struct sched_info sched_info;
	struct task_group *sched_task_group;
};

#pragma clang attribute pop

#endif
