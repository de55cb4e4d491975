# Prints a recording of this node as a tar archive in base64: cgroups twice, processes, /sys, and the containers of containerd.
# An empty line after each step keeps the connection from timing out; base64 skips it.
set -e
out=$(mktemp -d /run/recording.XXXXXX)
trap 'rm -rf "$out"' EXIT

tree() {
    mkdir "$out/$1"
    cd /sys/fs/cgroup
    date --utc +%FT%TZ > "$out/$1/TIME"
    cut --delimiter=' ' --fields=1 /proc/uptime > "$out/$1/TIME.uptime"
    for file in cgroup.controllers cgroup.subtree_control cpu.pressure cpu.stat cpuset.cpus.effective cpuset.mems.effective \
        io.pressure memory.pressure; do
        cp "$file" "$out/$1/"
    done
    find kubepods.slice -type f \( -name 'cpu.*' -o -name 'cpuset.*' -o -name 'pids.*' -o -name '*.pressure' \
        -o -name cgroup.controllers -o -name cgroup.procs -o -name cgroup.subtree_control -o -name cgroup.threads \
        -o -name cgroup.type -o -name memory.current -o -name memory.high -o -name memory.low -o -name memory.max \
        -o -name memory.min \) ! -name 'cpu.uclamp.*' ! -name pids.events ! -name pids.peak ! -name irq.pressure \
        ! -name cgroup.pressure ! -name cpuset.cpus.exclusive\* -exec cp --parents --target-directory="$out/$1" {} +
    echo
}

# Idle pods change nothing in between but the counters.
tree cgroup-t0
mkdir "$out/ctr"
for container in $(ctr --namespace k8s.io containers list --quiet); do
    ctr --namespace k8s.io containers info "$container" > "$out/ctr/$container.json"
    echo
done
for process in $(find /sys/fs/cgroup/kubepods.slice -name cgroup.procs -exec cat {} +); do
    mkdir --parents "$out/proc/$process"
    cp "/proc/$process/cgroup" "/proc/$process/comm" "/proc/$process/stat" "$out/proc/$process/"
    grep --extended-regexp '^(Name|State|Pid|PPid|NSpid|Threads|Cpus_allowed|Cpus_allowed_list|Mems_allowed_list|.*ctxt_switches):' \
        "/proc/$process/status" > "$out/proc/$process/status"
    echo
done
cd /
find sys/devices/system/node/ sys/devices/system/cpu/ \( -path '*/topology/*' -o -path '*/cache/*' -o -name online \
    -o -name possible -o -name present -o -name 'has_*' -o -name cpumap -o -name cpulist -o -name distance \
    -o -path '*/node[0-9]*/meminfo' \) ! -path '*/power/*' ! -path '*/hotplug/*' -type f -readable \
    -exec cp --parents --target-directory="$out" {} +
cp /etc/kubernetes/kubelet.yaml /etc/containerd/config.toml /var/lib/kubelet/cpu_manager_state "$out/"
journalctl --unit=kubelet --output=cat --no-pager --lines=300 > "$out/kubelet.log"
{
    kubelet --version
    containerd --version
    runc --version | head -1
    uname -a
    echo "nproc $(nproc)"
    systemctl --version | head -1
    grep ' /sys/fs/cgroup ' /proc/mounts
} > "$out/versions.txt"
sleep 5
tree cgroup-t1
tar --create --gzip --directory="$out" . | base64
