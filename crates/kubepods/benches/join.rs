//! Cases:
//! - decode/5MB: a list of 250 pods, 5 MB, from memory: the cost of each poll apart from the
//!   network
//! - path/parse: one container's path, systemd driver
//! - index/lookup: one container by UID and id among 250 pods

#[path = "../tests/support/synthetic.rs"]
mod synthetic;

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kubepods::path::parse;
use kubepods::{PodIndex, read_pod_list};

fn decode(c: &mut Criterion) {
    let list = synthetic::pod_list(250, 5_000_000);
    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Bytes(list.len() as u64)).sample_size(20);
    group.bench_function("5MB", |b| {
        b.iter(|| read_pod_list(black_box(list.as_bytes())).expect("a list"));
    });
    group.finish();
}

fn join(c: &mut Criterion) {
    let path = "kubepods-burstable.slice/kubepods-burstable-pod00000007_0000_4000_8000_000000000000.slice/cri-containerd-\
                0000000000000000000000000000000000000000000000000000000000000010.scope";
    c.bench_function("path/parse", |b| b.iter(|| parse(black_box(path)).expect("a container")));
    let pods = read_pod_list(synthetic::pod_list(250, 500_000).as_bytes()).expect("a list");
    let index = PodIndex::build(&PodIndex::default(), pods, []);
    let (uid, id) = (synthetic::uid(249), synthetic::id(499));
    c.bench_function("index/lookup", |b| {
        b.iter(|| black_box(index.container(black_box(&uid), black_box(&id))));
    });
}

criterion_group!(benches, decode, join);
criterion_main!(benches);
