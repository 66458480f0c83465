package messages

import (
	"errors"
	"fmt"
)

// Cause is why something waits or failed, as a code with the fields that its sentence names. It is attached where the failure
// arises; the package explain makes the sentence and the remedy of it.
type Cause struct {
	// Code is empty where only Text is known.
	Code CauseCode
	// Kind is the kind of an API object, e.g. "Secret"; Name is its namespace and name, or the name of another thing.
	Kind, Name string
	// Detail is a second field: a key of the object, a folder.
	Detail string
	// Text is the error in one line, without credentials: of the runtime, the registry or the application alone where one
	// of them failed.
	Text string
}

// CauseCode is one kind of failure. The comment of a code names the fields that it fills.
type CauseCode string

// Failures of the machine, wherever they arise.
const (
	CauseDiskFull      CauseCode = "DiskFull"
	CauseWrongPlatform CauseCode = "WrongPlatform" // an image or a program is for another architecture
)

// Failures of pulls.
const (
	CauseImageNotFound        CauseCode = "ImageNotFound"
	CauseRegistryUnresolved   CauseCode = "RegistryUnresolved" // the host name of the registry has no address
	CauseRegistryUnreachable  CauseCode = "RegistryUnreachable"
	CausePlainHTTP            CauseCode = "PlainHTTP" // the registry has no TLS
	CauseUntrustedCertificate CauseCode = "UntrustedCertificate"
	CauseTooManyRequests      CauseCode = "TooManyRequests"
	CauseUnauthorized         CauseCode = "Unauthorized"
	CausePulling              CauseCode = "Pulling" // no failure. Name: the registry
	CauseQueued               CauseCode = "Queued"  // no failure. Name: the registry, Detail: the place in its queue
)

// Failures of sandboxes and of the network.
const (
	CausePluginAbsent   CauseCode = "PluginAbsent" // Name: the CNI plugin, Detail: the folders
	CauseNoAddress      CauseCode = "NoAddress"    // the pods' network has no free address
	CauseNoNetwork      CauseCode = "NoNetwork"    // the runtime has no network configuration
	CauseHandlerAbsent  CauseCode = "HandlerAbsent"
	CauseNoUserRange    CauseCode = "NoUserRange"    // Detail: the number of ranges in use
	CauseFQDNTooLong    CauseCode = "FQDNTooLong"    // Name: the name
	CauseNoSandboxImage CauseCode = "NoSandboxImage" // Name: the image
)

// Failures to reach the container runtime.
const (
	CauseSocketAbsent    CauseCode = "SocketAbsent"
	CauseNobodyListens   CauseCode = "NobodyListens" // the socket is there
	CauseSocketForbidden CauseCode = "SocketForbidden"
	CauseSilent          CauseCode = "Silent" // it accepts connections and does not answer
	CauseStarting        CauseCode = "Starting"
)

// Failures of container starts.
const (
	CausePostStart         CauseCode = "PostStart"       // the post-start hook failed
	CauseCommandAbsent     CauseCode = "CommandAbsent"   // Name: the command; empty where the runtime does not name it
	CauseCommandRefused    CauseCode = "CommandRefused"  // the command may not be executed; Name as in CauseCommandAbsent
	CauseCommandIsFolder   CauseCode = "CommandIsFolder" // Name: the command
	CauseMountPointAbsent  CauseCode = "MountPointAbsent"
	CauseWorkingDirRefused CauseCode = "WorkingDirRefused" // Name: the folder
	// CauseNoIDMap: a mount for a pod with hostUsers: false. Name: the path on the host, Detail: its file system.
	CauseNoIDMap CauseCode = "NoIDMap"
	// CauseInitEnded: the container's first process ended before it ran the command; the runtime does not know why.
	CauseInitEnded CauseCode = "InitEnded"
	// CauseStartOutOfMemory: the kernel killed that process, because the memory limit is used up.
	CauseStartOutOfMemory CauseCode = "StartOutOfMemory"
	// CauseUnmounted: a volume of the container was unmounted by others, or its folder removed. The pod has it mounted again.
	// Name: the volume, Detail: its path on the host.
	CauseUnmounted CauseCode = "Unmounted"
)

// Ends of running containers. Without a code, Text is the reason, and the container is not replaced for a fault of its own.
const (
	CauseProbeFailed  CauseCode = "ProbeFailed" // Name: the kind of probe, Detail: the container's restart policy
	CauseOutdated     CauseCode = "Outdated"    // the spec has changed
	CauseResized      CauseCode = "Resized"     // a resize needs a restart
	CauseRenewed      CauseCode = "Renewed"     // a client requested a restart
	CauseStateUnknown CauseCode = "StateUnknown"
	CauseAllRestarted CauseCode = "AllRestarted" // all containers of the pod are restarted. Text: the reason
)

// Failures of API objects and volumes.
const (
	CauseObjectAbsent CauseCode = "ObjectAbsent" // Kind, Name
	CauseKeyAbsent    CauseCode = "KeyAbsent"    // Kind, Name, Detail: the key
	CauseObjectUnread CauseCode = "ObjectUnread" // Kind, Name, Detail: why it could not be read
	CauseDriverAbsent CauseCode = "DriverAbsent" // Name: the CSI driver, which is not registered
	CauseDriverCall   CauseCode = "DriverCall"   // Name: the CSI driver, which fails, or has not answered yet
	CauseNotAttached  CauseCode = "NotAttached"  // Name: the PersistentVolume
	CauseAttachLimit  CauseCode = "AttachLimit"  // Name: the PersistentVolume; the node has no place for another volume
	CauseClaimPending CauseCode = "ClaimPending" // Kind, Name: a claim or PersistentVolume that cannot be used yet
	CauseVolumeInUse  CauseCode = "VolumeInUse"  // Name: the PersistentVolume, Detail: the UID of the pod that has it
	CauseHostPath     CauseCode = "HostPath"     // Name: the path, which is not of the type asked for
	CauseVolumeMode   CauseCode = "VolumeMode"   // Name: the PersistentVolume, which containers use in the other mode
	CauseMounting     CauseCode = "Mounting"     // the mount goes on after its question's deadline
	CauseCertificate  CauseCode = "Certificate"  // Name: the signer, Detail: the PodCertificateRequest, which is not issued
)

// Failures of volumes on file servers. Name: the server and its folder.
const (
	// CauseMountProgramAbsent: Name: the program that mounts such volumes, Detail: the packages that have it.
	CauseMountProgramAbsent CauseCode = "MountProgramAbsent"
	CauseServerUnresolved   CauseCode = "ServerUnresolved" // the name of the server has no address
	CauseServerUnreachable  CauseCode = "ServerUnreachable"
	CauseExportAbsent       CauseCode = "ExportAbsent" // the server does not have the folder
	CauseExportDenied       CauseCode = "ExportDenied" // the server denies access to the folder
	CauseMountOptions       CauseCode = "MountOptions"
	CauseFileSystemAbsent   CauseCode = "FileSystemAbsent" // the kernel does not have the file system
	CauseLocksAbsent        CauseCode = "LocksAbsent"      // the daemon for locks does not run on the node
)

// Failures of logins to iSCSI targets. Name: the target and its portal.
const (
	CauseTargetRefused     CauseCode = "TargetRefused"     // the target refuses the login
	CauseTargetCredentials CauseCode = "TargetCredentials" // the target refuses the name or the password
	CauseISCSIInterface    CauseCode = "ISCSIInterface"    // open-iscsi or the kernel lacks the interface or its transport
	CauseISCSIDaemon       CauseCode = "ISCSIDaemon"       // iscsid does not run on the node
	CauseLUNAbsent         CauseCode = "LUNAbsent"         // the target does not have the logical unit for this initiator
)

// Failures of ResourceClaims (KEP-4381).
const (
	// CauseClaimUnready: Kind, Name: a claim that the pod cannot use, or not yet.
	CauseClaimUnready CauseCode = "ClaimUnready"
	// CauseClaimDriverAbsent: Name: the DRA driver, which is not registered, Detail: the claims.
	CauseClaimDriverAbsent CauseCode = "ClaimDriverAbsent"
	// CauseClaimDriverFailed: Name: the DRA driver, Detail: the claims. Text: its error.
	CauseClaimDriverFailed CauseCode = "ClaimDriverFailed"
)

// Refusals of admission, and pods that the node ends.
const (
	CauseShortage CauseCode = "Shortage" // Name: the resource, Detail: the numbers
	CauseNoCPUs   CauseCode = "NoCPUs"   // Detail: the exclusive CPUs, requested and free, and the holders of others
	CauseNoCores  CauseCode = "NoCores"  // Detail: the same, with whole cores
	CauseNoMemory CauseCode = "NoMemory" // Detail: the memory by NUMA node, requested and free
	// CauseNoAffinity: no set of NUMA nodes suits the topology manager's policy. Detail: the resources and the nodes considered.
	CauseNoAffinity CauseCode = "NoAffinity"
	CauseNoDevices  CauseCode = "NoDevices" // Name: the resource, Detail: the devices, requested and free
	// CauseNoDevicePlugin: no plugin that offers the resource is connected. Name: the resource.
	CauseNoDevicePlugin CauseCode = "NoDevicePlugin"
	CausePressure       CauseCode = "Pressure"      // Detail: the node's conditions
	CauseLimitExceeded  CauseCode = "LimitExceeded" // the pod used more than its own limit of local storage
)

// CauseError is an error with its cause.
type CauseError interface {
	error
	Cause() Cause
}

// causedError is an error of ours with its cause.
type causedError struct {
	error
	cause Cause
}

func (e causedError) Cause() Cause  { return e.cause }
func (e causedError) Unwrap() error { return e.error }

// Errorf returns an error with the cause c. Its text is for logs and the API's messages, and is made as by fmt.Errorf.
func (c Cause) Errorf(format string, args ...any) error {
	return causedError{fmt.Errorf(format, args...), c}
}

// Absent is the error about an API object, by Kind and Name, that does not exist.
func (c Cause) Absent() error {
	c.Code = CauseObjectAbsent
	return c.Errorf("%s %s does not exist", c.Kind, c.Name)
}

// LacksKey is the error about an API object that has no such key.
func (c Cause) LacksKey(key string) error {
	c.Code, c.Detail = CauseKeyAbsent, key
	return c.Errorf("%s %s has no key %q", c.Kind, c.Name, key)
}

// Unread is the error about an API object that could not be read.
func (c Cause) Unread(err error) error {
	c.Code, c.Detail = CauseObjectUnread, OneLine(err)
	return c.Errorf("%s %s: %w", c.Kind, c.Name, err)
}

// CauseOf returns the cause of the first CauseError in the chain of err, which is not nil. A cause without a text gets the
// text of err.
func CauseOf(err error) Cause {
	var c Cause
	if e, ok := errors.AsType[CauseError](err); ok {
		c = e.Cause()
	}
	if c.Text == "" {
		c.Text = OneLine(err)
	}
	return c
}
