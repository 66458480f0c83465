# Runs once in a new root file system, after the release's packages were installed and the files of guest were copied.
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
systemctl enable systemd-networkd containerd
# Tests start these themselves.
for unit in nfs-server rpcbind.service rpcbind.socket nfs-blkmap nfs-client.target remote-fs.target systemd-oomd; do
	systemctl disable $unit
done
systemctl mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer \
	dpkg-db-backup.timer systemd-networkd-wait-online.service
mkdir -p /srv/files /var/log/journal /etc/containerd/certs.d
: >/etc/machine-id
chmod 700 /root/.ssh
chmod 600 /root/.ssh/authorized_keys
echo machine >/etc/hostname
update-initramfs -u -k all
apt-get clean
rm -rf /var/lib/apt/lists/* /usr/share/locale /usr/share/doc/*
