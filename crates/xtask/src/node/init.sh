#!/bin/busybox sh
# First process of the QEMU node: makes a node of the bare kernel, runs /node/command with its output on two serial
# ports, and powers off. On a third port it says that it is up, then the program's exit code, followed by a tar archive
# of the paths in /node/outputs.

/bin/busybox mkdir -p /proc /sys /dev /tmp /run /root
/bin/busybox --install -s /bin
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin HOME=/root RUST_BACKTRACE=1

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount -t tracefs tracefs /sys/kernel/tracing
for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
    echo "+$controller" > /sys/fs/cgroup/cgroup.subtree_control
done
ip link set lo up
# The network card, where there is one; the address is what QEMU's user network forwards to.
if [ -d /node/modules ]; then
    for module in /node/modules/*; do insmod "$module"; done
    ip addr add 10.0.2.15/24 dev eth0
    ip link set eth0 up
fi
hostname node
# As systemd sets it for services.
ulimit -Hn 524288

# Raw: the lines' own default would turn each \n into \r\n.
for port in 1 2 3; do stty -F /dev/ttyS$port raw; done
mkfifo /run/stdout /run/stderr
echo up > /dev/ttyS3
cat /run/stdout > /dev/ttyS1 & stdout_pid=$!
cat /run/stderr > /dev/ttyS2 & stderr_pid=$!
cd /root
sh /node/command < /dev/null > /run/stdout 2> /run/stderr
code=$?

# What the program left running may hold the pipes open; kernel threads do not mind the signal.
for directory in /proc/[0-9]*; do
    case "${directory#/proc/}" in
        1 | "$stdout_pid" | "$stderr_pid") ;;
        *) kill -9 "${directory#/proc/}" 2> /dev/null ;;
    esac
done
wait
{
    echo "exit $code"
    while read -r path; do set -- "$@" "${path#/}"; done < /node/outputs
    [ $# = 0 ] || tar -c -C / "$@"
} > /dev/ttyS3
poweroff -f
