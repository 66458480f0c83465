// Package iscsi logs in to iSCSI targets by the host's program iscsiadm, as the kubelet does, and finds their disks. It has no
// actor and no state: the disk has the records (record.go), and the kernel the sessions (sysfs.go). The package persistent mounts
// the disks.
//
// source.go describes a volume, admin.go runs iscsiadm and reads its exit code, login.go and logout.go have the order of steps,
// and chap.go hands credentials to open-iscsi by its record and not by arguments. A record is written before the first login, and
// removed after the last logout. A session that others logged in is marked by a file, and stays logged in.
package iscsi
