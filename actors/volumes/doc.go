// Package volumes contains the actor that mounts and unmounts the volumes of pods. It compares the desired with the observed
// volumes, and the plugin of each kind does the work.
//
// How to read the folder: the volumes of a pod are one object of the reconciler (actors/internal/reconcile). actor.go handles
// the messages of pods. driver.go has the reconciler's driver and policy. state.go has the state of a pod's volumes, each with
// its own back-off. mount.go and disk.go do the work outside the mailbox. The package kinds has the local kinds of volumes and
// their folders.
//
// The actor keeps no state across a restart. After a restart it knows no pod. When a pod asks again, the actor repeats all work,
// which changes nothing that is already done. Operations in progress are joined by their key.
//
// Parts of volumes (subPath). The start of a container binds them, because their names may depend on its environment. The bind
// is made from a descriptor opened below the volume, so that links swapped by the pod cannot lead elsewhere. It is a slave
// mount. The next start compares the existing mount, and keeps or replaces it. volumes unmounts all parts of a pod at its end,
// before the volumes.
//
// Persistent volumes, those of claims and of CSI drivers, are in the package persistent. persistence.go is the part of the actor
// that unstages them, and that reports drivers and volumes in use to registration. A mount that depends on others ends with a
// kinds.WaitError, so that it occupies no place in a lane. If the end of the wait can be observed, e.g. the attachment on the
// Node, the mount is retried only then. Pods with persistent volumes have a lane without a limit, since each driver has its own.
//
// Mounts that others undo. VolumesMounted names the volumes with a mount of their own. The container's actor checks them right
// before it creates and starts a container, and otherwise the pod asks for its volumes again.
//
// Data is kept. Only the agent's own folders (emptyDir, files of objects, notes, termination logs) are removed with their
// content. Any other folder is unmounted, its record unlinked, and the folder removed if it is empty. Otherwise it is kept,
// together with the pod's folder. leftover finds such folders, and the state of a kubelet that only a kubelet can undo.
// holding.go reports them. It also reports each failed removal of a pod's folder, with the error, until a removal succeeds.
//
// NFS volumes (kinds/nfs.go, package nfs). A process mounts and another one unmounts each, because only a process can be killed
// or left behind while a server hangs. The first ends with its pod (UnmountVolumes, and again before each unmount) or the agent.
// Until it has ended, its operation is in progress, so that no retry begins. A lost message costs a retry: the mount is found on
// the disk. A server that hangs delays only the end of its own pod, also after a restart: served.go finds the pods with mounts.
//
// iSCSI volumes (persistent/iscsi.go) are mounted once for all pods, like file systems on local devices. iscsiadm ends with its
// deadline of 150 s for each portal. A pod that ends while a login is in progress ends after it.
//
// Mounts that request a token have separate lanes, so that an API server that does not answer does not block other pods'
// volumes.
package volumes
