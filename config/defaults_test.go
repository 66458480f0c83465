package config

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// fieldsOf returns the JSON of every field of v by its path. Structs that are no value of their own are looked into.
func fieldsOf(t *testing.T, v reflect.Value, path string, into map[string]string) {
	t.Helper()
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Type == reflect.TypeFor[metav1.TypeMeta]() {
			continue
		}
		if name == "" { // inlined
			fieldsOf(t, v.Field(i), path, into)
			continue
		}
		own := strings.TrimPrefix(path+"."+name, ".")
		_, isValue := v.Field(i).Interface().(json.Marshaler)
		if field.Type.Kind() == reflect.Struct && !isValue {
			fieldsOf(t, v.Field(i), own, into)
			continue
		}
		data, err := json.Marshal(v.Field(i).Interface())
		if err != nil {
			t.Fatalf("%s: %v", own, err)
		}
		into[own] = string(data)
	}
}

func defaultGates(t *testing.T) map[string]bool {
	t.Helper()
	gates, _, err := resolveGates(nil)
	if err != nil {
		t.Fatal(err)
	}
	return gates
}

// TestEveryDefault compares every field of KubeletConfiguration with the table. A field of a newer library version fails the
// test until its default is in the table.
func TestEveryDefault(t *testing.T) {
	c := &KubeletConfiguration{}
	setDefaults(c, defaultGates(t))
	defaultEviction(c)
	got := map[string]string{}
	fieldsOf(t, reflect.ValueOf(*c), "", got)

	for _, path := range slices.Sorted(maps.Keys(got)) {
		want, listed := documentedDefaults[path]
		switch {
		case !listed:
			t.Errorf("%s: not in the table; its default is %s here", path, got[path])
		case got[path] != want:
			t.Errorf("%s: default %s, want %s", path, got[path], want)
		}
	}
	for path := range documentedDefaults {
		if _, exists := got[path]; !exists {
			t.Errorf("%s: in the table, but no such field", path)
		}
	}
	if top := reflect.TypeFor[KubeletConfiguration]().NumField() - 1; top < 126 {
		t.Errorf("only %d fields looked at", top)
	}
}

func TestDefaultsKeepDecisions(t *testing.T) {
	no, zero, empty, many := false, int32(0), "", int64(5)
	c := &KubeletConfiguration{
		EnableServer: &no, RegistryPullQPS: &zero, ResolverConfig: &empty, PodPidsLimit: &many, HealthzPort: &zero,
		EnforceNodeAllocatable: []string{}, EvictionHard: map[string]string{},
	}
	setDefaults(c, defaultGates(t))
	defaultEviction(c)
	if *c.EnableServer || *c.RegistryPullQPS != 0 || *c.ResolverConfig != "" || *c.PodPidsLimit != 5 || *c.HealthzPort != 0 {
		t.Error("a value behind a pointer was replaced by the default")
	}
	if len(c.EnforceNodeAllocatable) != 0 || len(c.EvictionHard) != 0 {
		t.Error("an empty collection was replaced by the default")
	}
}

func TestDerivedDefaults(t *testing.T) {
	number := func(n int32) *int32 { return &n }
	limit := func(n int64) *int64 { return &n }
	yes := true
	for name, test := range map[string]struct {
		given KubeletConfiguration
		gates map[string]bool
		holds func(*KubeletConfiguration) bool
	}{
		"report frequency follows an explicit update frequency": {
			given: KubeletConfiguration{NodeStatusUpdateFrequency: metav1.Duration{Duration: time.Second}},
			holds: func(c *KubeletConfiguration) bool { return c.NodeStatusReportFrequency.Duration == time.Second }},
		"one parallel pull is serial": {
			given: KubeletConfiguration{MaxParallelImagePulls: number(1)},
			holds: func(c *KubeletConfiguration) bool { return *c.SerializeImagePulls }},
		"parallel pulls are not serial": {
			given: KubeletConfiguration{MaxParallelImagePulls: number(2)},
			holds: func(c *KubeletConfiguration) bool { return !*c.SerializeImagePulls }},
		"serial pulls asked for stay": {
			given: KubeletConfiguration{MaxParallelImagePulls: number(2), SerializeImagePulls: &yes},
			holds: func(c *KubeletConfiguration) bool { return *c.SerializeImagePulls }},
		"any negative pid limit is no limit": {
			given: KubeletConfiguration{PodPidsLimit: limit(-7)},
			holds: func(c *KubeletConfiguration) bool { return *c.PodPidsLimit == -1 }},
		"no cap of back-off without its gate": {
			gates: map[string]bool{"KubeletCrashLoopBackOffMax": false},
			holds: func(c *KubeletConfiguration) bool { return c.CrashLoopBackOff.MaxContainerRestartPeriod == nil }},
		"no credential policy without its gate": {
			gates: map[string]bool{"KubeletEnsureSecretPulledImages": false},
			holds: func(c *KubeletConfiguration) bool { return c.ImagePullCredentialsVerificationPolicy == "" }},
		"one threshold alone": {
			given: KubeletConfiguration{EvictionHard: map[string]string{"pid.available": "10%"}},
			holds: func(c *KubeletConfiguration) bool { return len(c.EvictionHard) == 1 }},
		"one threshold merged with the defaults": {
			given: KubeletConfiguration{EvictionHard: map[string]string{"memory.available": "1Gi"},
				MergeDefaultEvictionSettings: &yes},
			holds: func(c *KubeletConfiguration) bool {
				return c.EvictionHard["memory.available"] == "1Gi" && c.EvictionHard["nodefs.available"] == "10%" &&
					len(c.EvictionHard) == 5
			}},
	} {
		t.Run(name, func(t *testing.T) {
			gates := defaultGates(t)
			maps.Copy(gates, test.gates)
			c := test.given.DeepCopy()
			setDefaults(c, gates)
			defaultEviction(c)
			if !test.holds(c) {
				t.Errorf("does not hold: %+v", c)
			}
		})
	}
}

// Unlike the kubelet, the command line's defaults grant no anonymous access.
func TestTheCommandLineLetsNobodyIn(t *testing.T) {
	n, _, err := loadArgs(t, "--kubeconfig=/k")
	if err != nil {
		t.Fatal(err)
	}
	c := n.Kubelet
	if *c.Authentication.Anonymous.Enabled || !*c.Authentication.Webhook.Enabled || c.ReadOnlyPort != 0 ||
		c.Authorization.Mode != kubeletconfig.KubeletAuthorizationModeWebhook {
		t.Errorf("authentication %+v, authorization %q, read-only port %d", c.Authentication, c.Authorization.Mode,
			c.ReadOnlyPort)
	}
}
