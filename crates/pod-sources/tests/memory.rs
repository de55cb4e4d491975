//! Memory use of a large list: 5 MB with 250 pods must not raise the peak by more than 8 MiB. This
//! test needs its own process, because it counts every allocation and resets the kernel's
//! high-water mark.

#[path = "it/support/mod.rs"]
mod support;
#[path = "../../kubepods/tests/support/synthetic.rs"]
mod synthetic;

use kubepods::Lookup;
use peak_alloc::PeakAlloc;
use support::node;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const MIB: usize = 1 << 20;

/// Peak resident set of this process, bytes (`VmHWM`).
fn peak_rss() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs is mounted");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .expect("the kernel prints VmHWM");
    let kib: usize = line.trim().trim_end_matches(" kB").parse().expect("a number of kB");
    kib * 1024
}

/// Resets the peak to the current resident set (proc(5), `clear_refs`).
fn reset_peak_rss() {
    std::fs::write("/proc/self/clear_refs", "5").expect("own clear_refs can be written");
}

#[tokio::test]
async fn a_large_list_is_parsed_as_it_arrives() {
    let node = node().await;
    // The one-time cost of the first connection, mainly TLS, is not part of the list's cost.
    drop(node.start_known().await);
    let list = synthetic::pod_list(250, 5_000_000);
    assert!((4_900_000..5_100_000).contains(&list.len()), "{}", list.len());
    node.stub.set_pods(list);

    reset_peak_rss();
    HEAP.reset_peak_usage();
    let (heap, rss) = (HEAP.current_usage(), peak_rss());
    let pods = node.start_known().await;
    let (heap, rss) = (HEAP.peak_usage() - heap, peak_rss() - rss);

    println!("peak of the heap +{} KiB, of the resident set +{} KiB", heap / 1024, rss / 1024);
    assert!(heap < 8 * MIB && rss < 8 * MIB, "heap +{heap}, rss +{rss}");
    let index = pods.index();
    assert_eq!(index.pods().len(), 250);
    let last = index.container(&synthetic::uid(249), &synthetic::id(499));
    assert!(matches!(last, Lookup::Named { container, .. } if &*container.name == "proxy"));
}
