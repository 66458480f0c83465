package config

import (
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	netutils "k8s.io/utils/net"
)

func validateImages(p *problems, n *Node) {
	c := n.Kubelet
	atLeast(p, "registryPullQPS", orZero(c.RegistryPullQPS), 0)
	atLeast(p, "registryBurst", c.RegistryBurst, 0)
	high, low := orZero(c.ImageGCHighThresholdPercent), orZero(c.ImageGCLowThresholdPercent)
	within(p, "imageGCHighThresholdPercent", high, 0, 100)
	within(p, "imageGCLowThresholdPercent", low, 0, 100)
	p.check(low < high, "imageGCLowThresholdPercent", low, "must be less than imageGCHighThresholdPercent, which is %d", high)
	youngest, oldest := c.ImageMinimumGCAge.Duration, c.ImageMaximumGCAge.Duration
	atLeast(p, "imageMinimumGCAge", youngest, 0)
	atLeast(p, "imageMaximumGCAge", oldest, 0)
	if oldest > 0 {
		p.check(oldest > youngest, "imageMaximumGCAge", oldest, "must be more than imageMinimumGCAge, which is %v", youngest)
		needsGate(p, n, "imageMaximumGCAge", oldest, "ImageMaximumGCAge")
	}
	if parallel := c.MaxParallelImagePulls; parallel != nil {
		atLeast(p, "maxParallelImagePulls", *parallel, 1)
		p.check(*parallel <= 1 || !n.SerialImagePulls(), "maxParallelImagePulls", *parallel,
			"more than 1 needs serializeImagePulls to be false")
	}
	validatePullCredentials(p, n)
}

func validatePullCredentials(p *problems, n *Node) {
	c := n.Kubelet
	const policyPath, listPath = "imagePullCredentialsVerificationPolicy", "preloadedImagesVerificationAllowlist"
	policy, list := c.ImagePullCredentialsVerificationPolicy, c.PreloadedImagesVerificationAllowlist
	if !n.FeatureEnabled("KubeletEnsureSecretPulledImages") {
		p.check(policy == "", policyPath, policy, "needs the feature gate KubeletEnsureSecretPulledImages")
		p.check(len(list) == 0, listPath, strings.Join(list, ","), "needs the feature gate KubeletEnsureSecretPulledImages")
		return
	}
	oneOf(p, policyPath, policy, kubeletconfig.NeverVerify, kubeletconfig.NeverVerifyPreloadedImages,
		kubeletconfig.NeverVerifyAllowlistedImages, kubeletconfig.AlwaysVerify)
	p.check(len(list) == 0 || policy == kubeletconfig.NeverVerifyAllowlistedImages, listPath, strings.Join(list, ","),
		"only %s %q has a list", policyPath, kubeletconfig.NeverVerifyAllowlistedImages)
	for i, image := range list {
		p.check(imagePattern.MatchString(image), fmt.Sprintf("%s[%d]", listPath, i), image,
			"must be an image without tag and digest, or end in /*")
	}
}

// imagePattern matches registry[:port]/path without tag or digest; the last element of the path may be a lone *.
var imagePattern = regexp.MustCompile(
	`^[a-zA-Z0-9][a-zA-Z0-9._-]*(:[0-9]+(/[a-z0-9._-]+)*(/\*|/[a-z0-9._-]+)|(/[a-z0-9._-]+)*(/\*)?)$`)

// validateContainers is about the runtime, logs and the network of pods.
func validateContainers(p *problems, n *Node) {
	c := n.Kubelet
	p.check(c.ContainerRuntimeEndpoint != "", "containerRuntimeEndpoint", "", "an endpoint is needed")
	validEndpoint(p, "containerRuntimeEndpoint", c.ContainerRuntimeEndpoint)
	validEndpoint(p, "imageServiceEndpoint", c.ImageServiceEndpoint)
	positive(p, "runtimeRequestTimeout", c.RuntimeRequestTimeout.Duration)
	_, err := resource.ParseQuantity(c.ContainerLogMaxSize)
	p.check(err == nil, "containerLogMaxSize", c.ContainerLogMaxSize, "must be a quantity such as 10Mi")
	atLeast(p, "containerLogMaxFiles", orZero(c.ContainerLogMaxFiles), 2)
	atLeast(p, "containerLogMaxWorkers", orZero(c.ContainerLogMaxWorkers), 1)
	atLeast(p, "containerLogMonitorInterval", orZero(c.ContainerLogMonitorInterval).Duration, 3*time.Second)
	logs := c.PodLogsDir
	p.check(filepath.IsAbs(logs), "podLogsDir", logs, "must be an absolute path")
	p.check(filepath.Clean(logs) == logs || filepath.Clean(logs)+"/" == logs, "podLogsDir", logs,
		"must be a path without ., .. and doubled slashes")
	p.check(!strings.ContainsFunc(logs, func(r rune) bool { return r > unicode.MaxASCII }), "podLogsDir", logs,
		"must be ASCII, because metrics show it")
	for i, server := range c.ClusterDNS {
		p.check(netutils.ParseIPSloppy(server) != nil, fmt.Sprintf("clusterDNS[%d]", i), server, "must be an IP address")
	}
	for cidr := range strings.SplitSeq(c.PodCIDR, ",") {
		_, err := netip.ParsePrefix(strings.TrimSpace(cidr))
		p.check(c.PodCIDR == "" || err == nil, "podCIDR", c.PodCIDR, "must be a CIDR, or two of different families")
	}
	if own := c.UserNamespaces; own != nil && own.IDsPerPod != nil {
		ids := *own.IDsPerPod
		p.check(ids >= idsUnit && ids%idsUnit == 0 && ids <= math.MaxUint32, "userNamespaces.idsPerPod", ids,
			"must be a multiple of %d, and at most %d", idsUnit, int64(math.MaxUint32))
	}
	validateSysctls(p, c)
	validateCrashLoop(p, n)
}

func validateCrashLoop(p *problems, n *Node) {
	const path = "crashLoopBackOff.maxContainerRestartPeriod"
	limit := n.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod
	if !n.FeatureEnabled("KubeletCrashLoopBackOffMax") {
		p.check(limit == nil, path, orZero(limit).Duration, "needs the feature gate KubeletCrashLoopBackOffMax")
		return
	}
	within(p, path, orZero(limit).Duration, time.Second, crashBackOffMax)
}

// sysctlPattern is a kernel parameter with dots or slashes, or the start of some with a * at the end.
var sysctlPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*([./][a-zA-Z0-9_-]+)*([./])?\*?$`)

// namespacedSysctls are the groups of kernel parameters a pod has its own copy of.
var namespacedSysctls = []string{"kernel.shm", "kernel.msg", "kernel.sem", "kernel.domainname", "fs.mqueue.", "net.", "user."}

func validateSysctls(p *problems, c *KubeletConfiguration) {
	for i, name := range c.AllowedUnsafeSysctls {
		dotted := strings.ReplaceAll(strings.TrimSuffix(name, "*"), "/", ".")
		known := slices.ContainsFunc(namespacedSysctls, func(group string) bool { return strings.HasPrefix(dotted, group) })
		p.check(sysctlPattern.MatchString(name) && known, fmt.Sprintf("allowedUnsafeSysctls[%d]", i), name,
			"must be a sysctl, or the start of some and *, and in a group that pods have of their own: %s",
			strings.Join(namespacedSysctls, " "))
	}
}

// validEndpoint accepts unix:///path, the one kind of CRI endpoint there is on Linux.
func validEndpoint(p *problems, path, value string) {
	socket, found := strings.CutPrefix(value, "unix://")
	p.check(value == "" || found && filepath.IsAbs(socket), path, value, "must be a unix socket, unix:///path/to.sock")
}
