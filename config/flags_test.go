package config

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/playlet-dev/playlet/config/flagvalue"
)

// flagsOf136 are the flags of the kubelet of Kubernetes 1.36 on Linux, without help and version.
const flagsOf136 = `address allowed-unsafe-sysctls anonymous-auth application-metrics-count-limit authentication-token-webhook
authentication-token-webhook-cache-ttl authorization-mode authorization-webhook-cache-authorized-ttl
authorization-webhook-cache-unauthorized-ttl boot-id-file bootstrap-kubeconfig cert-dir cgroup-driver cgroup-root
cgroups-per-qos client-ca-file cloud-provider cluster-dns cluster-domain config config-dir container-hints
container-log-max-files container-log-max-size container-runtime-endpoint containerd containerd-namespace
contention-profiling cpu-cfs-quota cpu-cfs-quota-period cpu-manager-policy cpu-manager-policy-options
cpu-manager-reconcile-period enable-controller-attach-detach enable-debugging-handlers enable-load-reader enable-server
enforce-node-allocatable event-burst event-qps event-storage-age-limit event-storage-event-limit eviction-hard
eviction-max-pod-grace-period eviction-minimum-reclaim eviction-pressure-transition-period eviction-soft
eviction-soft-grace-period exit-on-lock-contention experimental-allocatable-ignore-eviction experimental-mounter-path
fail-cgroupv1 fail-swap-on feature-gates file-check-frequency global-housekeeping-interval hairpin-mode
healthz-bind-address healthz-port hostname-override housekeeping-interval http-check-frequency
image-credential-provider-bin-dir image-credential-provider-config image-gc-high-threshold image-gc-low-threshold
image-service-endpoint kernel-memcg-notification kube-api-burst kube-api-content-type kube-api-qps kube-reserved
kube-reserved-cgroup kubeconfig kubelet-cgroups local-storage-capacity-isolation lock-file log-cadvisor-usage
log-flush-frequency log-json-info-buffer-size log-json-split-stream log-text-info-buffer-size log-text-split-stream
logging-format machine-id-file make-iptables-util-chains manifest-url manifest-url-header max-open-files max-pods
maximum-dead-containers maximum-dead-containers-per-container memory-manager-policy minimum-container-ttl-duration
minimum-image-ttl-duration node-ip node-labels node-status-max-images node-status-update-frequency oom-score-adj pod-cidr
pod-manifest-path pod-max-pids pods-per-core port protect-kernel-defaults provider-id qos-reserved read-only-port
register-node register-with-taints registry-burst registry-qps reserved-cpus reserved-memory resolv-conf root-dir
rotate-certificates rotate-server-certificates runonce runtime-cgroups runtime-request-timeout seccomp-default
serialize-image-pulls storage-driver-buffer-duration storage-driver-db storage-driver-host storage-driver-password
storage-driver-secure storage-driver-table storage-driver-user streaming-connection-idle-timeout sync-frequency
system-cgroups system-reserved system-reserved-cgroup tls-cert-file tls-cipher-suites tls-min-version
tls-private-key-file topology-manager-policy topology-manager-policy-options topology-manager-scope v vmodule
volume-plugin-dir volume-stats-agg-period`

// parse is the command's way from arguments to flags.
func parse(args ...string) (*Flags, *pflag.FlagSet, error) {
	fs := pflag.NewFlagSet("playlet", pflag.ContinueOnError)
	fs.Usage = func() {}
	flags := AddFlags(fs)
	return flags, fs, fs.Parse(args)
}

func TestEveryFlagOfTheKubeletExists(t *testing.T) {
	_, fs, err := parse()
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Fields(flagsOf136)
	for _, name := range known {
		switch flag := fs.Lookup(name); {
		case flag == nil:
			t.Errorf("--%s is missing", name)
		case flag.Hidden:
			t.Errorf("--%s belongs into the help text", name)
		}
	}
	fs.VisitAll(func(flag *pflag.Flag) {
		if flag.Usage == "" {
			t.Errorf("--%s has no usage", flag.Name)
		}
		if !flag.Hidden && flag.Name != "admin-socket" && !slices.Contains([]string{"object-dir", "log-links-dir", "evict-static-pods", "enable-chaos", "enable-manifest-submission", "observatory-address", "admin-socket-group", "cadvisor-port"}, flag.Name) &&
			!slices.Contains(known, flag.Name) {
			t.Errorf("--%s is shown but no flag of the kubelet", flag.Name)
		}
	})
}

// sample is a value other than any default that a flag's type accepts.
func sample(t *testing.T, flag *pflag.Flag) string {
	t.Helper()
	samples := map[string]string{
		"int32": "7", "int64": "7", "Level": "7", "duration": "77s", "string": "sample", "stringSlice": "one,two",
		"mapStringString": "key=value", "mapStringBool": "AllAlpha=true", "taints": "k=v:NoSchedule",
		"colonSeparatedMultimapStringString": "name:value", "pattern=N,...": "file=7",
		"quantity": "7", "node:type=quantity": "0:memory=1Gi",
	}
	if flag.Value.Type() == "bool" {
		return map[string]string{"true": "false", "false": "true"}[flag.DefValue]
	}
	if flag.Name == "eviction-hard" || flag.Name == "eviction-soft" {
		return "signal<quantity" // of the same type as maps with =
	}
	value, found := samples[flag.Value.Type()]
	if !found {
		t.Fatalf("--%s: no sample for type %q", flag.Name, flag.Value.Type())
	}
	return value
}

// TestEachFlagSetsItsField sets every mirrored flag and finds that the field it names, and no other, has changed.
func TestEachFlagSetsItsField(t *testing.T) {
	for _, row := range allRows() {
		if row.name == gatesRow.name || row.legacy || row.field == "" {
			continue // not written to the configuration directly
		}
		t.Run(row.name, func(t *testing.T) {
			before, after := newTarget(nil), newTarget(nil)
			flag := row.flagOn(after)
			if err := flag.Value.Set(sample(t, flag)); err != nil {
				t.Fatal(err)
			}
			var changed []string
			old, fresh := map[string]string{}, map[string]string{}
			fieldsOf(t, reflect.ValueOf(*before.kubelet), "", old)
			fieldsOf(t, reflect.ValueOf(*after.kubelet), "", fresh)
			for path, value := range fresh {
				if old[path] != value {
					changed = append(changed, path)
				}
			}
			if len(changed) != 1 || changed[0] != row.field {
				t.Errorf("changed %v, want [%s]", changed, row.field)
			}
		})
	}
}

// TestEachFlagIsAnswered checks that every flag without effect, or with a successor, produces a warning with its name.
func TestEachFlagIsAnswered(t *testing.T) {
	quiet := strings.Fields(`config config-dir kubeconfig bootstrap-kubeconfig hostname-override node-ip node-labels root-dir
		cert-dir cloud-provider runtime-cgroups image-credential-provider-config image-credential-provider-bin-dir lock-file
		exit-on-lock-contention admin-socket admin-socket-group enable-chaos enable-manifest-submission observatory-address cadvisor-port object-dir log-links-dir evict-static-pods housekeeping-interval v vmodule log-flush-frequency provider-id fail-cgroupv1`)
	for _, row := range allRows() {
		if wantQuiet := slices.Contains(quiet, row.name); (row.answer() == "") != wantQuiet {
			t.Errorf("--%s: warning %q", row.name, row.answer())
		}
		if strings.Contains(row.answer(), "the flag wins") && row.pending() {
			t.Errorf("--%s has no effect, and claims to: %q", row.name, row.answer())
		}
		if strings.Contains(row.answer(), "\n") {
			t.Errorf("--%s: the warning has more than one line", row.name)
		}
	}
}

func TestFlagNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range allRows() {
		if seen[row.name] {
			t.Errorf("--%s is in the tables twice", row.name)
		}
		seen[row.name] = true
	}
}

func TestBadFlagsAreNamed(t *testing.T) {
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"--no-such-flag"}, []string{"--no-such-flag"}},
		{[]string{"--max-pods=many"}, []string{"max-pods", "many"}},
		{[]string{"--fail-swap-on=perhaps"}, []string{"fail-swap-on", "perhaps"}},
		{[]string{"--feature-gates=A"}, []string{"feature-gates", "A"}},
		{[]string{"--eviction-hard=memory.available=1"}, []string{"eviction-hard"}},
		{[]string{"--register-with-taints=key"}, []string{"register-with-taints", `"key"`}},
		{[]string{"--register-with-taints=key=v:"}, []string{"register-with-taints", "no effect"}},
		{[]string{"--register-with-taints=a=b:NoSchedule,a=c:NoSchedule"}, []string{"twice"}},
		{[]string{"--register-with-taints=a=b:Sometimes"}, []string{"Sometimes"}},
		{[]string{"--sync-frequency=often"}, []string{"sync-frequency", "often"}},
		{[]string{"--vmodule=file"}, []string{"vmodule", "file"}},
		{[]string{"-v=x"}, []string{"v", "x"}},
	} {
		_, _, err := parse(test.args...)
		if err == nil {
			t.Errorf("%v: accepted", test.args)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %q does not name %q", test.args, err, want)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %q has more than one line", test.args, err)
		}
	}
}

func TestValueFlagsShowWhatTheyHold(t *testing.T) {
	for _, test := range []struct{ flag, given, want string }{
		{"register-with-taints", "a=b:NoSchedule,c:NoExecute", "a=b:NoSchedule,c=:NoExecute"},
		{"address", "::1", "::1"},
		{"node-labels", "b=2,a=1", "a=1,b=2"},
	} {
		_, fs, err := parse("--" + test.flag + "=" + test.given)
		if err != nil {
			t.Errorf("--%s: %v", test.flag, err)
			continue
		}
		if got := fs.Lookup(test.flag).Value.String(); got != test.want {
			t.Errorf("--%s: shows %q, want %q", test.flag, got, test.want)
		}
	}
	// Help text is made from values bound to nothing.
	if zero := (&flagvalue.Taints{}); zero.String() != "" {
		t.Errorf("%T: shows %q", zero, zero.String())
	}
}

func TestFlagsDoNotShareState(t *testing.T) {
	flags, fs, err := parse("--node-labels=a=b", "--cluster-dns=192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	first, _ := mustLoad(t, flags, fs)
	second, _ := mustLoad(t, flags, fs)
	first.NodeLabels["a"] = "changed"
	first.Kubelet.ClusterDNS[0] = "changed"
	one, err := json.Marshal(second.NodeLabels)
	if err != nil {
		t.Fatal(err)
	}
	if string(one) != `{"a":"b"}` || second.Kubelet.ClusterDNS[0] != "192.0.2.1" {
		t.Errorf("a second Load sees the first: %s %v", one, second.Kubelet.ClusterDNS)
	}
}
