package config

import (
	"crypto/tls"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cliflag "k8s.io/component-base/cli/flag"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	netutils "k8s.io/utils/net"

	"github.com/playlet-dev/playlet/config/flagvalue"
)

func validateServer(p *problems, n *Node) {
	c := n.Kubelet
	within(p, "port", c.Port, 1, 65535)
	within(p, "readOnlyPort", c.ReadOnlyPort, 0, 65535)
	within(p, "healthzPort", orZero(c.HealthzPort), 0, 65535)
	validIP(p, "address", c.Address)
	validIP(p, "healthzBindAddress", c.HealthzBindAddress)
	oneOf(p, "authorization.mode", c.Authorization.Mode,
		kubeletconfig.KubeletAuthorizationModeAlwaysAllow, kubeletconfig.KubeletAuthorizationModeWebhook)
	p.check(!n.EnableManifestSubmission || !orZero(c.Authentication.Anonymous.Enabled) ||
		c.Authorization.Mode == kubeletconfig.KubeletAuthorizationModeWebhook, "--enable-manifest-submission", true,
		"everybody who connects could run pods here: set authentication.anonymous.enabled to false, or authorization.mode "+
			"to Webhook")
	if orZero(c.EnableSystemLogQuery) {
		needsGate(p, n, "enableSystemLogQuery", true, "NodeLogQuery")
		p.check(orZero(c.EnableSystemLogHandler), "enableSystemLogQuery", true, "needs enableSystemLogHandler")
	}
	validateTLS(p, n)
	if c.Tracing != nil {
		addList(p, tracingapi.ValidateTracingConfiguration(c.Tracing, nil, field.NewPath("tracing")))
	}
}

func validateTLS(p *problems, n *Node) {
	c := n.Kubelet
	if c.ServerTLSBootstrap {
		needsGate(p, n, "serverTLSBootstrap", true, "RotateKubeletServerCertificate")
	}
	for i, suite := range c.TLSCipherSuites {
		if _, err := cliflag.TLSCipherSuites([]string{suite}); err != nil {
			p.add(fmt.Sprintf("tlsCipherSuites[%d]", i), suite, "this program has no such cipher suite; it has %s",
				strings.Join(cliflag.TLSCipherPossibleValues(), ", "))
		}
	}
	if _, err := cliflag.TLSVersion(c.TLSMinVersion); err != nil {
		p.add("tlsMinVersion", c.TLSMinVersion, "must be one of %s", strings.Join(cliflag.TLSPossibleVersions(), ", "))
	}
	for i, curve := range c.TLSCurvePreferences {
		_, err := cliflag.TLSCurvePreferences([]int32{curve})
		p.check(err == nil, fmt.Sprintf("tlsCurvePreferences[%d]", i), curve,
			"no such key exchange; see crypto/tls.CurveID, such as %d for X25519", tls.X25519)
	}
}

// validateAPI checks the settings of the API server's client and of reports to it.
func validateAPI(p *problems, n *Node) {
	c := n.Kubelet
	atLeast(p, "eventRecordQPS", orZero(c.EventRecordQPS), 0)
	atLeast(p, "eventBurst", c.EventBurst, 0)
	atLeast(p, "kubeAPIQPS", orZero(c.KubeAPIQPS), 0)
	atLeast(p, "kubeAPIBurst", c.KubeAPIBurst, 0)
	atLeast(p, "nodeLeaseDurationSeconds", c.NodeLeaseDurationSeconds, 1)
	atLeast(p, "nodeStatusMaxImages", orZero(c.NodeStatusMaxImages), -1)
	atLeast(p, "nodeStatusUpdateFrequency", c.NodeStatusUpdateFrequency.Duration, time.Millisecond) // 0 would be always
	atLeast(p, "nodeStatusReportFrequency", c.NodeStatusReportFrequency.Duration, 0)
	oneOf(p, "configMapAndSecretChangeDetectionStrategy", c.ConfigMapAndSecretChangeDetectionStrategy,
		kubeletconfig.GetChangeDetectionStrategy, kubeletconfig.TTLCacheChangeDetectionStrategy,
		kubeletconfig.WatchChangeDetectionStrategy)
	for i, taint := range c.RegisterWithTaints {
		path := fmt.Sprintf("registerWithTaints[%d]", i)
		if err := flagvalue.CheckTaint(taint); err != nil {
			p.add(path, taint.ToString(), "%v", err)
		}
		p.check(taint.TimeAdded == nil, path+".timeAdded", taint.TimeAdded, "the control plane sets it")
	}
}

// validateSources is about where static pods come from.
func validateSources(p *problems, n *Node) {
	c := n.Kubelet
	positive(p, "fileCheckFrequency", c.FileCheckFrequency.Duration)
	positive(p, "httpCheckFrequency", c.HTTPCheckFrequency.Duration)
	if c.StaticPodURL != "" {
		u, err := url.Parse(c.StaticPodURL)
		p.check(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "",
			"staticPodURL", PresentableURL(c.StaticPodURL), "must be an absolute http or https URL")
	}
	for _, header := range slices.Sorted(maps.Keys(c.StaticPodURLHeader)) {
		if !httpguts.ValidHeaderFieldName(header) { // where name and value were written otherwise, it is the value
			p.add("staticPodURLHeader", masked, "no name of an HTTP header")
		}
	}
}

func validateLogging(p *problems, n *Node) {
	c := &n.Kubelet.Logging
	oneOf(p, "logging.format", c.Format, "text", "json")
	positive(p, "logging.flushFrequency", c.FlushFrequency.Duration.Duration)
	const most = 1<<31 - 1
	p.check(c.Verbosity <= most, "logging.verbosity", uint32(c.Verbosity), "must be at most %d", most)
	p.check(len(c.VModule) == 0 || c.Format == "text", "logging.vmodule", fmt.Sprint(c.VModule), "only the text format has it")
	for i, item := range c.VModule {
		path := fmt.Sprintf("logging.vmodule[%d]", i)
		p.check(item.FilePattern != "" && !strings.ContainsAny(item.FilePattern, "=,"), path+".filePattern", item.FilePattern,
			"must be a file name or pattern without = and ,")
		p.check(item.Verbosity <= most, path+".verbosity", uint32(item.Verbosity), "must be at most %d", most)
	}
}

func validIP(p *problems, path, value string) {
	p.check(netutils.ParseIPSloppy(value) != nil, path, value, "must be an IP address")
}

func positive(p *problems, path string, value time.Duration) {
	p.check(value > 0, path, value, "must be positive")
}

// addList adds the errors of a validator from Kubernetes' libraries.
func addList(p *problems, list field.ErrorList) {
	for _, one := range list {
		p.add(one.Field, one.BadValue, "%s", one.Detail)
	}
}
