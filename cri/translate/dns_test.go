package translate

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDNSPolicies(t *testing.T) {
	cluster := DNSFacts{
		ClusterDNS: []string{"10.96.0.10", "FD00:0:0::A"}, ClusterDomain: "cluster.local",
		Host: ResolvConf{Servers: []string{"192.0.2.53"}, Searches: []string{"example.org", "cluster.local"},
			Options: []string{"ndots:2"}},
	}
	standalone := DNSFacts{Host: cluster.Host}
	deaf := DNSFacts{NoHost: true, NodeIPs: []string{"192.0.2.1", "2001:db8::1"}}
	hostConf := "192.0.2.53|example.org,cluster.local|ndots:2"
	clusterConf := "10.96.0.10,fd00::a|shop.svc.cluster.local,svc.cluster.local,cluster.local,example.org|ndots:5"
	for _, tc := range []struct {
		name        string
		policy      v1.DNSPolicy
		hostNetwork bool
		facts       DNSFacts
		want        string
		warnings    int
	}{
		{"default", v1.DNSDefault, false, cluster, hostConf, 0},
		{"cluster first", v1.DNSClusterFirst, false, cluster, clusterConf, 0},
		{"not set", "", false, cluster, clusterConf, 0},
		{"cluster first on the host's network", v1.DNSClusterFirst, true, cluster, hostConf, 0},
		{"with host net", v1.DNSClusterFirstWithHostNet, true, cluster, clusterConf, 0},
		{"none", v1.DNSNone, false, cluster, "||", 0},
		{"no cluster DNS", v1.DNSClusterFirst, false, standalone, hostConf, 1},
		{"no resolver at all", v1.DNSDefault, false, deaf, "127.0.0.1,::1|.|", 0},
		{"no resolver and no address", v1.DNSDefault, false, DNSFacts{NoHost: true}, "127.0.0.1|.|", 0},
		{"no cluster domain", v1.DNSClusterFirst, false, DNSFacts{ClusterDNS: []string{"10.96.0.10"}, Host: cluster.Host},
			"10.96.0.10|example.org,cluster.local|ndots:5", 0},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"},
			Spec: v1.PodSpec{DNSPolicy: tc.policy, HostNetwork: tc.hostNetwork}}
		c, warnings := NewDNSConfig(pod, tc.facts)
		got := strings.Join(c.Servers, ",") + "|" + strings.Join(c.Searches, ",") + "|" + strings.Join(c.Options, ",")
		if got != tc.want || len(warnings) != tc.warnings {
			t.Errorf("%s: %s, %v", tc.name, got, warnings)
		}
	}
	if !reflect.DeepEqual(standalone.Host.Searches, []string{"example.org", "cluster.local"}) {
		t.Error("the node's facts were changed")
	}
}

// A nameserver with a zone of the node is reached only on the host's network (kubernetes/kubernetes#140880).
func TestDNSPolicies_Zones(t *testing.T) {
	facts := DNSFacts{Host: ResolvConf{Servers: []string{"fe80::1%3", "192.0.2.1", "fe80::2"}}}
	for _, tc := range []struct {
		policy      v1.DNSPolicy
		hostNetwork bool
		servers     string
		warnings    int
	}{
		{v1.DNSDefault, false, "192.0.2.1 fe80::2", 1},
		{v1.DNSClusterFirst, false, "192.0.2.1 fe80::2", 2}, // there is no clusterDNS
		{v1.DNSDefault, true, "fe80::1%3 192.0.2.1 fe80::2", 0},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{DNSPolicy: tc.policy, HostNetwork: tc.hostNetwork}}
		config, warnings := NewDNSConfig(pod, facts)
		if got := strings.Join(config.Servers, " "); got != tc.servers || len(warnings) != tc.warnings {
			t.Errorf("%s, host network %t: %q, %v", tc.policy, tc.hostNetwork, got, warnings)
		}
	}
}

func TestPodDNSConfigIsMergedAndCut(t *testing.T) {
	three, long := "3", strings.Repeat("d", 254)
	pod := &v1.Pod{Spec: v1.PodSpec{DNSPolicy: v1.DNSDefault, DNSConfig: &v1.PodDNSConfig{
		Nameservers: []string{"192.0.2.1", "192.0.2.53", "192.0.2.2", "192.0.2.3"},
		Searches:    []string{"a.example", "example.org", long, "b.example"},
		Options:     []v1.PodDNSConfigOption{{Name: "ndots", Value: &three}, {Name: "edns0"}},
	}}}
	c, warnings := NewDNSConfig(pod, DNSFacts{Host: ResolvConf{
		Servers: []string{"192.0.2.53"}, Searches: []string{"example.org"}, Options: []string{"ndots:2", "rotate"},
	}})
	if got := strings.Join(c.Servers, " "); got != "192.0.2.53 192.0.2.1 192.0.2.2" {
		t.Error(got)
	}
	if got := strings.Join(c.Searches, " "); got != "example.org a.example b.example" {
		t.Error(got)
	}
	if got := strings.Join(c.Options, " "); got != "ndots:3 rotate edns0" {
		t.Error(got)
	}
	if len(warnings) != 2 || warnings[0].Reason != "DNSConfigForming" {
		t.Errorf("%v", warnings)
	}

	var many, wide []string
	for i := range 40 {
		many = append(many, strings.Repeat("x", i+1))
		wide = append(wide, strings.Repeat("y", 200)+strings.Repeat("z", i))
	}
	for name, searches := range map[string][]string{"many": many, "wide": wide} {
		pod := &v1.Pod{Spec: v1.PodSpec{DNSPolicy: v1.DNSNone, DNSConfig: &v1.PodDNSConfig{Searches: searches}}}
		c, warnings := NewDNSConfig(pod, DNSFacts{})
		line := strings.Join(c.Searches, " ")
		if len(c.Searches) == 0 || len(c.Searches) > 32 || len(line) > 2048 || len(warnings) != 1 {
			t.Errorf("%s: %d domains, %d characters, %v", name, len(c.Searches), len(line), warnings)
		}
		if next := searches[len(c.Searches)]; len(c.Searches) < 32 && len(line)+1+len(next) <= 2048 {
			t.Errorf("%s: %s would have fitted", name, next)
		}
	}
}

func TestParseResolvConf(t *testing.T) {
	got, err := ParseResolvConf(strings.NewReader(`# nameserver 192.0.2.99
; comment
 nameserver	192.0.2.1 trailing
nameserver 192.0.2.2
domain ignored.example
search old.example
search a.example. . b.example
options ndots:2 rotate
options ndots:4
`))
	want := ResolvConf{
		Servers: []string{"192.0.2.1", "192.0.2.2"}, Searches: []string{"a.example", "b.example"},
		Options: []string{"ndots:4", "rotate"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := ParseResolvConf(strings.NewReader("nameserver\n")); err == nil {
		t.Error("a server without an address was accepted")
	}
	if _, err := ParseResolvConf(strings.NewReader(strings.Repeat("#", maxResolvConf+1))); err == nil {
		t.Error("a file without end was accepted")
	}
}

// The domain line is the search list of a file that has none, as for the machine itself.
func TestParseResolvConf_Domain(t *testing.T) {
	for text, want := range map[string][]string{
		"domain home.example. x\nnameserver 192.0.2.1\n": {"home.example"},
		"domain old.example\ndomain home.example\n":      {"home.example"},
		"domain .\n": nil,
		"domain\n":   nil,
		"search a.example\ndomain home.example\n": {"a.example"},
		"search .\ndomain home.example\n":         nil,
	} {
		if got, err := ParseResolvConf(strings.NewReader(text)); err != nil || !reflect.DeepEqual(got.Searches, want) {
			t.Errorf("%q: got %q (%v), want %q", text, got.Searches, err, want)
		}
	}
}

func TestReadResolvConf(t *testing.T) {
	if got, err := ReadResolvConf(""); err != nil || !reflect.DeepEqual(got, ResolvConf{}) {
		t.Errorf("%v, %v", got, err)
	}
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if _, err := ReadResolvConf(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a missing file: %v", err)
	}
	for text, fine := range map[string]bool{"nameserver 192.0.2.1": true, "nameserver": false} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadResolvConf(path); (err == nil) != fine {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestResolvConfProblem(t *testing.T) {
	domains := func(n, length int) string {
		return "search" + strings.Repeat(" "+strings.Repeat("a", length), n) + "\n"
	}
	for name, c := range map[string]struct{ text, domain, want string }{
		"fine":                  {domains(29, 10), "cluster.local", ""},
		"too many in a cluster": {domains(30, 10), "cluster.local", "Resolv.conf file 'PATH' contains search line consisting of more than 29 domains!"},
		"none of a cluster":     {domains(32, 10), "", ""},
		"too many":              {domains(33, 10), "", "Resolv.conf file 'PATH' contains search line consisting of more than 32 domains!"},
		"too long a domain":     {domains(1, 254), "", `Resolv.conf file "PATH" contains a search path which length is more than allowed 253 chars!`},
		"too long together":     {domains(20, 200), "", "Resolv.conf file 'PATH' contains search line which length is more than allowed 2048 chars!"},
		"unreadable":            {"nameserver\n", "", "resolver configuration PATH: a nameserver line names none"},
	} {
		path := filepath.Join(t.TempDir(), "resolv.conf")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, want := ResolvConfProblem(path, c.domain), strings.ReplaceAll(c.want, "PATH", path); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if got := ResolvConfProblem("", "cluster.local"); got != "" {
		t.Errorf("without a file: %q", got)
	}
}
