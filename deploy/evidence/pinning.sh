#!/bin/bash
# What CPUs of its own do for a latency-sensitive server beside two noisy neighbors: nginx under wrk, unpinned, pinned
# with FullPCPUs, and pinned with SpreadByPCPUs + PCPULevel. Prints the results and writes them, and a chart of them, as
# pinning.txt and pinning.svg into DIRECTORY (the present one).
#
#   sudo deploy/evidence/pinning.sh target/release/cpuwarden [SECONDS [DIRECTORY]]
#
# Needs root, bash, and the Debian packages nginx-light and wrk. The server gets half of the CPUs that are left when a
# quarter of them is kept for wrk; on fewer than 4 CPUs nothing is kept, and wrk has the last CPU with real-time priority
# instead, so that what it measures is the server's wait and not its own. Everything runs in cgroups of its own, which are
# removed again.
set -euo pipefail

agent=$(realpath "${1:?the cpuwarden binary}")
seconds=${2:-20}
results=${3:-.}/pinning.txt
chart=$(dirname "$(realpath "$0")")/chart.awk
for tool in nginx wrk; do
    command -v "$tool" >/dev/null || { echo "pinning.sh: no $tool: apt-get install nginx-light wrk" >&2; exit 69; }
done

load=$(cut -d' ' -f1 /proc/loadavg)
cpus=$(nproc)
kept=$((cpus / 4 * (cpus >= 4)))
server_cpus=$(((cpus - kept) / 2))
work=$(mktemp -d)
top=cpuwarden-evidence-$$
pids=()

if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    roots=(/sys/fs/cgroup)
else
    roots=(/sys/fs/cgroup/cpu /sys/fs/cgroup/cpuset)
fi

clean_up() {
    kill "${pids[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    for root in "${roots[@]}"; do
        [ -d "$root/$top" ] || continue
        for _ in $(seq 50); do find "$root/$top" -depth -type d -exec rmdir {} \; 2>/dev/null && break; sleep 0.1; done
    done
    rm -rf "$work"
}
trap clean_up EXIT

# cgroup PATH: below $top, in every hierarchy, as the kubelet and the runtime would make it.
cgroup() {
    for root in "${roots[@]}"; do
        mkdir "$root/$1"
        parent=$(dirname "$root/$1")
        [ ! -e "$root/cgroup.controllers" ] || echo "+cpu +cpuset" >"$parent/cgroup.subtree_control"
        for file in cpuset.cpus cpuset.mems; do
            [ -e "$root/cgroup.controllers" ] || [ ! -e "$root/$1/$file" ] || cat "$parent/$file" >"$root/$1/$file"
        done
    done
}

# weight PATH CPUS: the weight that the kubelet sets for a request of this number of CPUs.
weight() {
    for root in "${roots[@]}"; do
        [ ! -e "$root/$1/cpu.shares" ] || echo $((1024 * $2)) >"$root/$1/cpu.shares"
        [ ! -e "$root/$1/cpu.weight" ] || echo $((39 * $2 < 10000 ? 39 * $2 : 10000)) >"$root/$1/cpu.weight"
    done
}

# in_cgroup PATH COMMAND...: in the background, in this cgroup.
in_cgroup() {
    local path=$1 root; shift
    (
        for root in "${roots[@]}"; do echo "$BASHPID" >"$root/$path/cgroup.procs"; done
        exec "$@"
    ) &
    pids+=($!)
}

uid() { printf '8e0d3a0c-5f4b-4f60-9f2a-%012d' "$1"; }
id() { printf '%064d' "$1"; }
container() { echo "$top/kubepods/burstable/pod$(uid "$1")/$(id "$1")"; }

# pod NUMBER NAME CLASS CPUS: as the kubelet lists it, with the resource-spec in $spec.
pod() {
    cat <<JSON
{"metadata": {"namespace": "evidence", "name": "$2", "uid": "$(uid "$1")", "labels": {"koordinator.sh/qosClass": "$3"},
  "annotations": {"scheduling.koordinator.sh/resource-spec": "$spec"}},
 "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "$4"}, "limits": {"cpu": "$4"}}}]},
 "status": {"phase": "Running", "containerStatuses": [{"name": "c", "containerID": "containerd://$(id "$1")",
  "restartCount": 0, "state": {"running": {}}}]}}
JSON
}

# A server of this configuration in $work/NAME.
nginx_config() {
    mkdir -p "$work/$1"
    cat >"$work/$1/nginx.conf" <<CONF
daemon off; worker_processes $3; pid $work/$1/pid; error_log $work/$1/error.log;
events { worker_connections 4096; }
http { access_log off; keepalive_requests 1000000; server { listen 127.0.0.1:$2; location / { $4 } } }
CONF
}

cgroup "$top"; cgroup "$top/kubepods"; cgroup "$top/kubepods/burstable"; cgroup "$top/kubepods/besteffort"
for number in 1 2 3; do
    cgroup "$(dirname "$(container $number)")"; cgroup "$(container $number)"
done
# What else runs on this machine is not to decide; between the pods, requests do.
weight "$top" 256
weight "$(dirname "$(container 1)")" "$server_cpus"
# Compressing a page costs the server enough that wrk, at real-time priority, stays far from the kernel's RT limit.
seq 4000 >"$work/page"
nginx_config server 18080 "$server_cpus" "root $work; gzip on; gzip_comp_level 6; gzip_types text/plain; default_type text/plain;"
nginx_config kubelet 18081 1 "root $work; default_type application/json;"
chmod -R a+rX "$work"
nginx -c "$work/kubelet/nginx.conf" & pids+=($!)
in_cgroup "$(container 1)" nginx -c "$work/server/nginx.conf"
for number in 2 3; do
    for _ in $(seq "$cpus"); do in_cgroup "$(container $number)" bash -c 'while :; do :; done'; done
done
echo '{"policyName":"none"}' >"$work/cpu_manager_state"

reserved=() loader=(taskset -c "$((cpus - 1))" chrt -f 1)
if [ "$kept" -gt 0 ]; then
    reserved=("--reserved-cpus=$((cpus - kept))-$((cpus - 1))")
    loader=(taskset -c "$((cpus - kept))-$((cpus - 1))")
fi

# Nothing is measured before the server has its CPUs.
until_pinned() {
    for _ in $(seq 60); do
        ! "$agent" pins "${options[@]}" | grep -q evidence/server || return 0
        sleep 1
    done
    echo "pinning.sh: the server has no CPUs of its own after a minute" >&2
    exit 70
}

# measure NAME CLASS: lines of NAME P50 P99 REQUESTS/S (milliseconds).
measure() {
    {
        echo '{"kind": "PodList", "apiVersion": "v1", "items": ['
        pod 1 server "$2" "$server_cpus"; echo ,; spec='{}'; pod 2 noisy-1 LS 1; echo ,; pod 3 noisy-2 LS 1
        echo ']}'
    } >"$work/pods"
    options=(--kubepods="$top/kubepods" --state-dir="$work/state" --cpu-manager-state="$work/cpu_manager_state"
        --pod-source=readonly --kubelet-readonly-url=http://127.0.0.1:18081 --share-floor=1 "${reserved[@]}" --log=warn)
    "$agent" run --listen=127.0.0.1:0 --pinning=enforce "${options[@]}" & local running=$!
    pids+=("$running")
    sleep 4
    [ "$2" = LS ] || until_pinned
    "$agent" pins "${options[@]}" >&2
    "${loader[@]}" wrk -t1 "-c$((server_cpus * 8))" "-d$seconds" --latency -H 'Accept-Encoding: gzip' \
        http://127.0.0.1:18080/page >"$work/wrk"
    kill "$running"; wait "$running" || true
    "$agent" drain "${options[@]}" >&2
    awk -v name="$1" '
        function ms(t) { return t ~ /us$/ ? t / 1000 : t ~ /ms$/ ? t + 0 : t * 1000 }
        $1 == "50%" { p50 = ms($2) } $1 == "99%" { p99 = ms($2) } $1 == "Requests/sec:" { rate = $2 }
        END { printf "%s %.3f %.3f %.0f\n", name, p50, p99, rate }' "$work/wrk"
}

cores=$(sort -u /sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list | wc -l)
same=$([ "$cores" -lt "$cpus" ] || echo ' of one thread (both policies are the same there)')
version=$([ ${#roots[@]} = 1 ] && echo v2 || echo v1)
cat >"$results" <<TEXT
# $cpus CPUs$same, $server_cpus for the server; Linux $(uname -r), cgroup $version, load $load before
# $(nginx -v 2>&1 | cut -d' ' -f3) compressing a page for wrk, $((server_cpus * 8)) connections, $seconds s each, beside two pods that spin on every CPU
TEXT
spec='{}'; measure unpinned LS >>"$results"
spec='{\"requiredCPUBindPolicy\": \"FullPCPUs\"}'; measure FullPCPUs LSE >>"$results"
spec='{\"preferredCPUBindPolicy\": \"SpreadByPCPUs\", \"preferredCPUExclusivePolicy\": \"PCPULevel\"}'
measure SpreadByPCPUs+PCPULevel LSE >>"$results"

awk -f "$chart" "$results" >"${results%.txt}.svg"
awk '
    BEGIN { printf "%-24s %10s %10s %12s\n", "", "p50 ms", "p99 ms", "requests/s" }
    /^#/ { print; next }
    { printf "%-24s %10.3f %10.3f %12d\n", $1, $2, $3, $4 }' "$results"
