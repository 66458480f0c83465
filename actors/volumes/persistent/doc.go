// Package persistent has the kinds of persistent volumes, and the volumes of CSI drivers. It has no actor: the actor of volumes
// mounts them as it does other kinds, and unstages them with the reconciler of staged.go.
//
// How to read the folder: a claim (claims.go) refers to a PersistentVolume, and the plugin of its kind does the work: csi.go,
// nfs.go, iscsi.go, local.go, or hostPath of the package kinds. A local volume that is a block device has its file system mounted
// once for all pods (filesystem.go); the reconciler of staged.go unmounts it after the last one. A local volume with volumeMode
// Block is a link to its device (block.go); maps by a kubelet are undone (package blockmap). The mount reads claims, volumes and
// attachments on demand (objects.go, attach.go, gather.go): a node may get the objects of its pods, but neither list nor watch
// them. CSIDrivers are watched (driverobjects.go). The package csi calls drivers, and actors/internal/pluginwatch registers them.
// Storage (storage.go) holds the drivers and the state of volumes (podvolumes.go) and lives as long as the process. Each driver
// has its own limit of concurrent calls, with shares by namespace and pod. A driver, or a namespace with volumes that hang,
// therefore does not block other volumes.
//
// A mount that depends on others (they bind, attach, register a driver, release the volume) ends with a kinds.WaitError. For two
// minutes a pending attachment is no failure and has no Event. Its claim and volume are read once. Several volumes of a pod may
// have one claim: they share one place and one record, and are mounted one after another.
//
// grow.go grows a volume if its claim leaves that to the node. It reads the claim each minute while the volume is mounted, for
// drivers that can grow volumes. Former in-tree kinds (awsElasticBlockStore …) are translated to CSI when they are read.
//
// A record on the disk, vol_data.json in the kubelet's format, is written before the first call of a driver and removed last.
// The records of pods count the users of a volume. A staged volume without a record of a pod is unstaged. Such volumes are the
// objects of a second reconciler (staged.go). Its inventory finds them after each pod's end and with each sweep, so that it also
// finds volumes left by a killed agent. Staging a volume and looking up its users run one at a time for each volume.
// inuse.go lists the volumes in use: desired, or with a record.
//
// An iSCSI volume (iscsi.go, package iscsi) waits for the Node like an attachable volume of a driver, without a VolumeAttachment.
// Its first pod logs in and mounts the file system for the node, and each pod binds it. The order is: record, login, scan, format
// and mount, bind. The Unstager undoes the steps in the opposite order when no pod has the volume. An interruption between two
// steps leaves the record, by which either continues. Logins and logouts of one target run one at a time.
//
// A volume is not unstaged while its file system is mounted elsewhere (references.go): by an administrator, by a container, or
// by a part that is still bound. The mounts of the node are compared by device and root. The same check precedes the
// unpublishing of an attached volume by a driver that does not stage. A mount without a record blocks the unstaging of the
// volume with its device (lost.go), or of all volumes if no device identifies the volume.
//
// Block volumes of CSI drivers (devices.go) are staged, published, grown and unstaged like others. Their folders and records are
// in the package csi, and each pod has a link that claims the volume. A device is not unstaged while others use it: a mount, a
// device over it, or a process. A lost record is rebuilt from the PersistentVolume.
package persistent
