// Package translate converts a pod's spec into requests to a container runtime.
//
// NewSandboxConfig and NewContainerConfig build the requests that the kubelet would send, byte for byte in the parts that others
// read: labels, annotations, attempts, hashes and log paths. The package also has the rules for reading the spec: QoS classes,
// restart policies, requests and limits, the environment, name servers. All of it is pure except for HostPaths and
// ReadResolvConf, which read the machine's files: no clock, no disk, no environment.
package translate
