#!/bin/busybox sh
# Init of the cluster node's initramfs: loads the modules, mounts the disk, adds the run's files (certificates, images,
# configuration) and starts systemd.

/bin/busybox mkdir -p /proc /sys /dev /disk
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in /modules/*; do insmod "$module"; done
mount -t ext4 /dev/vda /disk
tar -x -f /dev/vdb -C /disk
umount /proc /sys
mount --move /dev /disk/dev
exec switch_root /disk /sbin/init
