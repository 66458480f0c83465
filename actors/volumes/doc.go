// Package volumes is the actor behind which every kind of volume is built: it holds what is wanted against what is
// found, and lets the plugin of each kind do the work.
//
// How to read the folder: the volumes of a pod are one object of the reconciler (actors/internal/reconcile). actor.go
// says what pods ask and are told, driver.go is the reconciler's driver and policy, state.go is what is known of one
// pod's volumes, each with a back-off of its own. mount.go and disk.go do the work outside the mailbox. The kinds of
// volume are in the package kinds, with the folders in which they lie; those of persistent volumes are here.
//
// Nothing is remembered across a restart: an actor that starts knows no pod, and answers the pods that ask again by
// doing all of it again, which changes nothing where it was done. Work in flight is joined by its key.
//
// Parts of volumes (subPath). The start of a container binds them, since their names may depend on its environment. The
// bind is made from a descriptor that was opened below the volume, so that links which the pod swaps lead nowhere else. It
// is a slave mount. The next start finds it by what is mounted, and keeps or replaces it. volumes unmounts all of a pod's
// parts at its end, before the volumes.
//
// Persistent volumes. A claim (claims.go) leads to a PersistentVolume, whose kind does the work: csi.go, localpv.go, or
// hostPath. The mount reads claims, volumes and attachments when it needs them: a node may get those of its pods, and neither
// list nor watch them. CSIDrivers are watched (driverobjects.go). Drivers are called by the leaf package csi, register by
// pluginwatch, and are known to Storage (storage.go), which lives as long as the process; each driver has places of its own
// for calls, and pods with persistent volumes a lane without a bound, so that a driver that hangs keeps no other pod's volumes.
//
// A mount that others have to go on with (they bind, attach, register a driver, release the volume) ends with a waitError
// (waiting.go). It holds no place. Where the end of the wait can be observed, as attaching on the Node, the volume is mounted
// again then and not before. Attaching is no failure and no Event for two minutes; its claim and volume are read once.
//
// Volumes grow by grow.go: the claim says that this is left to the node, and is read each minute while the volume is mounted, of
// drivers that can grow volumes. Kinds that Kubernetes had itself (awsElasticBlockStore …) are translated where they are read.
//
// Before a driver is asked for anything there is a record on the disk, vol_data.json, in the kubelet's form; it goes
// last. Who has a volume is counted by the records of pods. A volume that is staged and of which no pod has a record is
// unstaged: it is an object of a second reconciler (staged.go), found by its inventory after each pod's end and with
// each sweep, so also what an agent that was killed left. Staging, and looking who has a volume, are one operation at a
// time for each volume. storageactor.go tells registration which volumes are in use (those wanted, and those with a
// record) and which drivers there are.
//
// A volume is not unstaged while its file system is mounted elsewhere (references.go): by an administrator, by a container, or by
// a part that is still bound. The mounts of the node are compared by device and root. The same holds before a driver that does
// not stage unpublishes an attached volume. A mount without a record holds the staged volume with its device (lost.go), and all
// volumes where no device shows which one it is.
//
// Data is kept. Only folders whose content the agent wrote (emptyDir, files of objects, notes, termination logs) are removed with
// it. Any other folder is unmounted, its record unlinked, and removed if it is empty. Otherwise it stays with its pod's folder.
// leftover finds such folders and the state of a kubelet that only a kubelet can undo; holding.go reports them. It also reports
// each pod's folder whose removal failed, with the error, until a removal succeeds.
//
// Mounts that request a token run in lanes of their own, so that an API server that does not answer holds up no other
// pod's volumes.
package volumes
