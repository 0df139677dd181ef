#!/bin/sh
# A host of the tests, in namespaces of its own (network, mounts, names):
# host.sh DIRECTORY NAME NUMBER. The machine's programs, with /etc, /var and /run of its own;
# what it writes goes to DIRECTORY/NAME, and is forgotten.
set -eu
dir=$1 name=$2 number=$3
mount --make-rprivate /
hostname "$name"
own=$dir/$name
echo $$ >"$own.pid"
for tree in etc var usr/bin; do
    mkdir -p "$own/$tree" "$own/work/$tree"
    mount -t overlay overlay "/$tree" \
        -o "lowerdir=/$tree,upperdir=$own/$tree,workdir=$own/work/$tree"
done
mount -t tmpfs run /run
mkdir -p /run/lock /run/tailbound-host
for file in "$dir"/bin/*; do
    cp "$file" /usr/bin/
done
# Its addresses among hosts, and the wire that guests share with others.
printf '127.0.0.1 localhost\n10.0.0.1 h1\n10.0.0.2 h2\n' >/etc/hosts
ip link set lo up
until [ -e "$dir/cabled" ]; do sleep 0.01; done
ip address add "10.0.0.$number/24" dev eth0
ip link set eth0 up
ip link set eth1 up
# A new host has no domains, hooks or guests, even if this computer has some: what is removed
# here stays in the layer below.
rm -rf /var/lib/libvirt/qemu /var/log/libvirt/qemu/* /etc/libvirt/qemu /etc/libvirt/hooks \
    /etc/libvirt/storage /etc/libvirt/secrets /etc/tailbound /var/lib/tailbound
mkdir -p /etc/libvirt/qemu/networks
install -D -m 644 -t /etc/systemd/system "$dir/contrib/tailbound-host.service"
mkdir -p /var/lib/libvirt/images
cp "$dir/kernel" /var/lib/libvirt/images/vmlinuz
cp "$dir/image" /var/lib/libvirt/images/guest.img
# The machine's control groups are not this host's to change.
printf 'cgroup_controllers = []\n' >>/etc/libvirt/qemu.conf
: >"$own/ready"
exec sleep 600
