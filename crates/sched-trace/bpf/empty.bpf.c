// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Nothing, on the hook of sched_trace.bpf.c: what benches/switch.rs takes off, and calls the price of the hook. */
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("tp_btf/sched_switch")
int sched_switch(u64 __attribute__((unused)) *context)
{
	return 0;
}
