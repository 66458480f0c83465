package explain

import (
	"strings"

	"github.com/playlet-dev/playlet/messages"
)

// sentence is the text for a cause and its remedy. The placeholders {kind}, {name}, {detail} and {text} stand for the cause's
// fields.
type sentence struct{ cause, remedy string }

func (s sentence) about(c messages.Cause) (cause, remedy string) {
	fill := strings.NewReplacer("{kind}", c.Kind, "{name}", c.Name, "{detail}", c.Detail, "{text}", short(c.Text))
	return fill.Replace(s.cause), fill.Replace(s.remedy)
}

// put fills in the sentence for the cause's code, or otherwise if the list has none.
func put(list map[messages.CauseCode]sentence, c messages.Cause, otherwise sentence) (cause, remedy string) {
	if s, ok := list[c.Code]; ok {
		return s.about(c)
	}
	return otherwise.about(c)
}

const roomRemedy = "free disk space on the node, e.g. by removing unused images"

// ofImages follow "image NAME ".
var ofImages = map[messages.CauseCode]sentence{
	messages.CauseDiskFull: {"cannot be pulled: no space is left on the node's disk", roomRemedy},
	messages.CauseRegistryUnresolved: {"cannot be pulled: the name of its registry cannot be resolved",
		"correct the image's name, or the node's DNS"},
	messages.CauseRegistryUnreachable: {"cannot be pulled: its registry does not answer",
		"check that the registry is running and reachable from this node"},
	messages.CausePlainHTTP: {"cannot be pulled: its registry uses plain HTTP, and the runtime expects HTTPS",
		"give the registry a certificate, or configure the runtime to use plain HTTP for it"},
	messages.CauseUntrustedCertificate: {"cannot be pulled: the runtime does not trust its registry's certificate",
		"add the registry's CA to the runtime's or the node's trusted ones"},
	messages.CauseWrongPlatform: {"is not built for this node's architecture", "use an image built for this architecture"},
	messages.CauseTooManyRequests: {"cannot be pulled: its registry limits the number of requests",
		"wait, or pull with credentials"},
	messages.CauseUnauthorized: {"cannot be pulled: its registry denied access",
		"correct the image's name, or name a Secret with credentials in imagePullSecrets"},
	messages.CauseImageNotFound: {"not found in its registry", "correct the image's name or tag, or push the image"},
	messages.CausePulling:       {"is being pulled from the registry {name}", ""},
	messages.CauseQueued:        {"is {detail} in the queue of the registry {name}", ""},
}

// ofSandboxes stand by themselves.
var ofSandboxes = map[messages.CauseCode]sentence{
	messages.CausePluginAbsent: {"the CNI plugin {name} is not installed in {detail}",
		"install the CNI plugins there; see playlet doctor"},
	messages.CauseNoAddress: {"the pods' network has no address left for the pod",
		"remove pods, or give the node a larger pod CIDR; playlet doctor shows unused leases"},
	messages.CauseNoNetwork: {"the runtime has no network configuration", "install a network (CNI); see playlet doctor"},
	messages.CauseHandlerAbsent: {`the runtime has no handler "{name}", which the pod's RuntimeClass names`,
		"configure the handler in the runtime, or name another RuntimeClass"},
	messages.CauseNoUserRange: {"the node has no free range of user IDs for a pod with hostUsers: false: {detail}",
		"remove pods with hostUsers: false, or give user kubelet more IDs in /etc/subuid and /etc/subgid"},
	messages.CauseNoSandboxImage: {"the sandbox image {name} cannot be pulled",
		"check that its registry is reachable, or configure another sandbox image in the runtime"},
	messages.CauseFQDNTooLong: {"the pod's FQDN is too long for its hostname (setHostnameAsFQDN)",
		"shorten the pod's name, hostname or subdomain"},
	messages.CauseDiskFull: {"the pod's sandbox cannot be created: no space is left on the node's disk", roomRemedy},
}

// ofStarts follow "container NAME". The name has a space and quotes, where there is one.
var ofStarts = map[messages.CauseCode]sentence{
	messages.CausePostStart: {": its post-start hook failed: {text}", "fix the hook (lifecycle.postStart); its output is " +
		"not shown, " +
		"because it may hold secrets: run it with playlet exec"},
	messages.CauseCommandIsFolder: {`: its command{name} is a directory`, "correct the container's command"},
	messages.CauseCommandAbsent:   {`: its command{name} is not in the image`, "correct the container's command, or its image"},
	messages.CauseCommandRefused: {`: its command{name} may not be executed by its user`,
		"correct the command, its mode in the image, or runAsUser"},
	messages.CauseMountPointAbsent: {`: the mount at{name} has no mount point, and none can be made: the image's root ` +
		`or the volume around it is read-only`,
		"create the mount point in the image or the volume, or make the mount around it writable"},
	messages.CauseWrongPlatform: {": its command is not a program for this node's architecture",
		"use an image built for this architecture"},
	messages.CauseNoIDMap: {`: the file system of{name}, {detail}, cannot be mounted on this kernel for a ` +
		`pod with hostUsers: false`,
		"use a volume on another file system, a newer kernel, or hostUsers: true"},
	messages.CauseStartOutOfMemory: {": the kernel most likely killed its first process, because the memory limit is used up",
		"raise the memory limit, or lower the sizeLimit of emptyDir volumes in memory, and remove files there: they count " +
			"towards the limit, and stay when a container restarts"},
	messages.CauseUnmounted: {`: its volume{name} is not mounted at {detail} any more: another program unmounted or removed it`,
		"the volume is mounted again automatically; leave the folders of pods to the agent"},
	messages.CauseWorkingDirRefused: {`: its working directory{name} cannot be entered`, "correct the container's workingDir"},
	messages.CauseDiskFull:          {" cannot be started: no space is left on the node's disk", roomRemedy},
}

// ofObjects are followed by the container or volume that needs the object.
var ofObjects = map[messages.CauseCode]sentence{
	messages.CauseObjectAbsent: {"{kind} {name} does not exist", "create the {kind} {name}, or mark the reference optional"},
	messages.CauseKeyAbsent:    {`{kind} {name} has no key "{detail}"`, "add the key to the {kind}, or correct the reference"},
	messages.CauseObjectUnread: {"{kind} {name}: {detail}",
		"check that the API server can be reached, or that --object-dir has the object"},
}

// ofWaits follow "containers wait for volume NAME: ".
var ofWaits = map[messages.CauseCode]sentence{
	messages.CauseDriverAbsent: {"{text}",
		"check that the driver's pod runs on this node and has registered its socket in plugins_registry"},
	messages.CauseDriverCall: {"{text}", "see the log of the pod of CSI driver {name} on this node; " +
		"the call is repeated automatically"},
	messages.CauseNotAttached: {"{text}", "see kubectl get volumeattachments, and the log of the driver's attacher"},
	messages.CauseAttachLimit: {"{text}",
		"a controller replaces the pod on another node; free a place here by removing pods with volumes of the same driver"},
	messages.CauseClaimPending: {"{text}", "see kubectl describe of the claim, and the log of its provisioner"},
	messages.CauseVolumeInUse:  {"{text}", "remove the pod that uses the volume"},
	messages.CauseCertificate: {"{text}",
		"check that the controller of signer {name} runs; see kubectl get podcertificaterequests -n NAMESPACE -o yaml"},
}

// ofClaims follow "the pod's ResourceClaims cannot be prepared: ".
var ofClaims = map[messages.CauseCode]sentence{
	messages.CauseClaimUnready: {"{text}",
		"see the status of the claim, with kubectl describe resourceclaim, and the log of the scheduler"},
	messages.CauseClaimDriverAbsent: {"DRA driver {name} of ResourceClaim {detail} is not registered on this node",
		"check that the driver's pod runs on this node and has registered its socket in plugins_registry"},
	messages.CauseClaimDriverFailed: {"DRA driver {name} fails for ResourceClaim {detail}: {text}",
		"see the log of the driver's pod on this node"},
}

// ofVolumes are the remedies for other failures of volumes.
var ofVolumes = map[messages.CauseCode]string{
	messages.CauseHostPath:           "create the path on the node, or correct the volume's path or type",
	messages.CauseVolumeMode:         "name a claim with volumeMode Block in volumeDevices, and any other in volumeMounts",
	messages.CauseMounting:           "check what the mount depends on: a server, a disk",
	messages.CauseMountProgramAbsent: "install the package {detail} on the node; the mount is retried automatically",
	messages.CauseServerUnresolved:   "correct the volume's server, or the node's DNS",
	messages.CauseServerUnreachable: "check that the server runs and that this node reaches it (nfs 4: TCP port 2049, iscsi: " +
		"3260); the mount is retried automatically",
	messages.CauseExportAbsent: "export the path on the server (see showmount -e there), or correct the volume's path",
	messages.CauseExportDenied: "allow this node's address in the server's exports, or correct the volume's path",
	messages.CauseMountOptions: "correct mountOptions of the PersistentVolume, or enable the version on the server",
	messages.CauseFileSystemAbsent: "use a kernel with the module nfs, or install its package of modules; see modprobe nfs on " +
		"the node",
	messages.CauseTargetRefused: "correct the volume's iqn, or permit this node's initiator on the target: see " +
		"/etc/iscsi/initiatorname.iscsi",
	messages.CauseTargetCredentials: "correct the Secret's node.session.auth.username and node.session.auth.password, or the " +
		"target's",
	messages.CauseISCSIInterface: "correct the volume's iscsiInterface (see iscsiadm -m iface), or load its transport's " +
		"module: modprobe iscsi_tcp",
	messages.CauseISCSIDaemon: "start iscsid on the node; the login is retried automatically",
	messages.CauseLUNAbsent:   "map the logical unit to this node's initiator on the target, or correct the volume's lun",
	messages.CauseLocksAbsent: "start rpc-statd on the node, or use nfs version 4, or the mount option nolock",
}

// ofRefusals are the reasons of admission for which the message alone is too terse.
var ofRefusals = map[messages.CauseCode]sentence{
	messages.CauseShortage: {"the node does not have enough {name} left for the pod ({detail})",
		"remove pods from this node, or ask for less"},
	messages.CauseNoCPUs: {"the node does not have enough CPUs left that the pod can have to itself: {detail}",
		"remove pods with exclusive CPUs, or ask for less; a fraction of a CPU uses the shared pool"},
	messages.CauseNoCores: {"the node cannot give the pod whole cores to itself, as full-pcpus-only demands: {detail}",
		"ask for a multiple of the CPUs of a core, remove pods with exclusive CPUs, or unset full-pcpus-only"},
	messages.CauseNoMemory: {"no NUMA nodes have enough memory left for the pod: {detail}",
		"remove pods of the QoS class Guaranteed, or ask for less memory"},
	messages.CauseNoAffinity: {"no NUMA nodes suit the pod as the topology manager's policy demands: {detail}",
		"remove pods that have these resources, ask for less, or configure another topologyManagerPolicy"},
	messages.CauseNoDevicePlugin: {"no device plugin for {name} is registered on this node",
		"check that the device plugin of this resource runs on this node, and see its log"},
	messages.CauseNoDevices: {"the node does not have enough {name} for the pod: {detail}",
		"remove pods that have such devices, or check the devices; see the log of their device plugin"},
	messages.CausePressure: {"the node is under pressure and does not admit such pods: {detail}",
		"free the resource; see playlet explain node"},
}
