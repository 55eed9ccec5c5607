# A machine of its own for systemd: namespaces, a root that is this one with every change kept in memory, PID 1.
#
#   machine.sh SCRATCH PREPARE    run as root: PREPARE (a shell script) is sourced with $R, the new root, ready
#
# Namespaces of mounts, processes, names, IPC and network (only loopback) end with the process, and so does all in them.
set -eu
scratch=$1
prepare=$2
if [ "${3:-}" != inside ]; then
    # systemd wants a control group hierarchy to call its own: a directory of the one made for it, shown as its root.
    groups=$scratch/cgroups
    mkdir -p "$groups"
    mount --make-rprivate /
    mount -t cgroup -o none,name=systemd cgroup "$groups"
    mkdir -p "$groups/cleaner-test-$$"
    echo $$ > "$groups/cleaner-test-$$/cgroup.procs"
    echo "cleaner-test-$$" > "$scratch/cgroup-name"
    exec unshare --cgroup --pid --fork --mount --uts --ipc --net --kill-child /bin/sh "$0" "$scratch" "$prepare" inside
fi
mount --make-rprivate /
umount "$scratch/cgroups"
mount -t tmpfs -o size=500m tmpfs "$scratch"
mkdir "$scratch/changes" "$scratch/work" "$scratch/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/changes,workdir=$scratch/work" "$scratch/root"
R=$scratch/root
mount -t proc proc "$R/proc"
mount -t tmpfs -o mode=755 tmpfs "$R/run"
mount -t tmpfs -o mode=755 tmpfs "$R/dev"
mkdir "$R/dev/shm" "$R/dev/pts" "$R/dev/mqueue" "$R/dev/hugepages"
mount -t devpts -o newinstance,mode=620 devpts "$R/dev/pts"
ln -s pts/ptmx "$R/dev/ptmx"
for device in null zero full random urandom tty; do
    : > "$R/dev/$device"
    mount --bind "/dev/$device" "$R/dev/$device"
done
mount -t sysfs -o ro sysfs "$R/sys"
mount -t tmpfs tmpfs "$R/sys/fs/cgroup"
mkdir "$R/sys/fs/cgroup/systemd"
mount -t cgroup -o none,name=systemd cgroup "$R/sys/fs/cgroup/systemd"
ip link set lo up
# Nothing of this machine's own services is started.
rm -rf "$R"/etc/systemd/system/* "$R"/usr/lib/systemd/system/*.wants "$R"/etc/systemd/system.conf.d
cat > "$R/etc/systemd/system/test.target" <<E
[Unit]
Description=Nothing but what a test starts
DefaultDependencies=no
AllowIsolate=yes
E
for unit in sysinit basic local-fs; do  # what services wait for: here all of it is there
    printf '[Unit]\nDefaultDependencies=no\n' > "$R/etc/systemd/system/$unit.target"
done
. "$prepare"
mkdir "$R/before"
cd "$R"
pivot_root . before
umount -l /before
export container=unshare SYSTEMD_LOG_TARGET=console SYSTEMD_LOG_LEVEL=info
exec /lib/systemd/systemd --system --unit=test.target --show-status=no
