// Package volumes contains the actor that mounts and unmounts the volumes of pods. It compares the desired with the observed
// volumes, and the plugin of each kind does the work.
//
// How to read the folder: the volumes of a pod are one object of the reconciler (actors/internal/reconcile). actor.go handles
// the messages of pods. driver.go has the reconciler's driver and policy. state.go has the state of a pod's volumes, each with
// its own back-off. mount.go and disk.go do the work outside the mailbox. The package kinds has the kinds of volumes and their
// folders. The kinds of persistent volumes are in this package.
//
// The actor keeps no state across a restart. After a restart it knows no pod. When a pod asks again, the actor repeats all work,
// which changes nothing that is already done. Operations in progress are joined by their key.
//
// Parts of volumes (subPath). The start of a container binds them, because their names may depend on its environment. The bind
// is made from a descriptor opened below the volume, so that links swapped by the pod cannot lead elsewhere. It is a slave
// mount. The next start compares the existing mount, and keeps or replaces it. volumes unmounts all parts of a pod at its end,
// before the volumes.
//
// Persistent volumes. A claim (claims.go) refers to a PersistentVolume, and the plugin of its kind does the work: csi.go,
// localpv.go, or hostPath. The mount reads claims, volumes and attachments on demand: a node may get the objects of its pods,
// but neither list nor watch them. CSIDrivers are watched (driverobjects.go). The package csi calls drivers, and pluginwatch
// registers them. Storage (storage.go) holds the drivers and lives as long as the process. Each driver has its own limit of
// concurrent calls, and pods with persistent volumes have a lane without a limit. A hung driver therefore does not block other
// pods' volumes.
//
// A mount that depends on others (they bind, attach, register a driver, release the volume) ends with a waitError (waiting.go),
// so that it occupies no place in a lane. If the end of the wait can be observed, e.g. the attachment on the Node, the mount is
// retried only then. For two minutes a pending attachment is no failure and has no Event. Its claim and volume are read once.
//
// grow.go grows a volume if its claim leaves that to the node. It reads the claim each minute while the volume is mounted, for
// drivers that can grow volumes. Former in-tree kinds (awsElasticBlockStore …) are translated to CSI when they are read.
//
// A record on the disk, vol_data.json in the kubelet's format, is written before the first call of a driver and removed last.
// The records of pods count the users of a volume. A staged volume without a record of a pod is unstaged. Such volumes are the
// objects of a second reconciler (staged.go). Its inventory finds them after each pod's end and with each sweep, so that it also
// finds volumes left by a killed agent. Staging a volume and looking up its users run one at a time for each volume.
// storageactor.go reports the drivers and the volumes in use (desired, or with a record) to registration.
//
// A volume is not unstaged while its file system is mounted elsewhere (references.go): by an administrator, by a container, or
// by a part that is still bound. The mounts of the node are compared by device and root. The same check precedes the
// unpublishing of an attached volume by a driver that does not stage. A mount without a record blocks the unstaging of the
// volume with its device (lost.go), or of all volumes if no device identifies the volume.
//
// Data is kept. Only the agent's own folders (emptyDir, files of objects, notes, termination logs) are removed with their
// content. Any other folder is unmounted, its record unlinked, and the folder removed if it is empty. Otherwise it is kept,
// together with the pod's folder. leftover finds such folders, and the state of a kubelet that only a kubelet can undo.
// holding.go reports them. It also reports each failed removal of a pod's folder, with the error, until a removal succeeds.
//
// Mounts that request a token have separate lanes, so that an API server that does not answer does not block other pods'
// volumes.
package volumes
