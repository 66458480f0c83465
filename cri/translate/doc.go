// Package translate turns a pod's spec into what a container runtime is asked for.
//
// NewSandboxConfig and NewContainerConfig make the requests that the kubelet would have sent, byte for byte where others can see
// it: labels, annotations, attempts, hashes and log paths. Beside them stand the rules by which they read the spec: QoS classes,
// restart policies, requests and limits, the environment, name servers. All of it is pure but for HostPaths and ReadResolvConf,
// which read the machine's files: no clock, no disk, no environment.
package translate
