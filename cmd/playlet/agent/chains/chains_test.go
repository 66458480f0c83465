package chains

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-iptables/iptables"
)

// filters are the chains of one family, with their rules, in memory.
type filters struct {
	chains map[string][]string // by table and name
	err    error
}

func (f *filters) ChainExists(table, chain string) (bool, error) {
	_, there := f.chains[table+" "+chain]
	return there, f.err
}

func (f *filters) NewChain(table, chain string) error {
	f.chains[table+" "+chain] = nil
	return f.err
}

func (f *filters) InsertUnique(table, chain string, at int, rule ...string) error {
	rules, text := f.chains[table+" "+chain], strings.Join(rule, " ")
	if !slices.Contains(rules, text) {
		f.chains[table+" "+chain] = slices.Insert(slices.Clone(rules), at-1, text)
	}
	return f.err
}

func (f *filters) AppendUnique(table, chain string, rule ...string) error {
	return f.InsertUnique(table, chain, len(f.chains[table+" "+chain])+1, rule...)
}

func TestChainsAreMadeAndMended(t *testing.T) {
	v4 := &filters{chains: map[string][]string{"filter INPUT": {"-j OTHER"}}}
	v6 := &filters{chains: map[string][]string{}}
	for _, change := range []func(){
		func() {},
		func() {}, // nothing is added a second time
		func() { clear(v6.chains); delete(v4.chains, "mangle KUBE-IPTABLES-HINT") },
		func() { v4.chains["filter KUBE-FIREWALL"], v4.chains["filter INPUT"] = nil, []string{"-j OTHER"} },
	} {
		change()
		if err := errors.Join(makeChains(v4, iptables.ProtocolIPv4), makeChains(v6, iptables.ProtocolIPv6)); err != nil {
			t.Fatal(err)
		}
		_, hint4 := v4.chains["mangle KUBE-IPTABLES-HINT"]
		_, hint6 := v6.chains["mangle KUBE-IPTABLES-HINT"]
		if !hint4 || !hint6 || len(v6.chains) != 1 {
			t.Errorf("hints: %v, %v", v4.chains, v6.chains)
		}
		jump := "-j KUBE-FIREWALL"
		if !slices.Equal(v4.chains["filter INPUT"], []string{jump, "-j OTHER"}) || !slices.Equal(v4.chains["filter OUTPUT"], []string{jump}) ||
			len(v4.chains["filter KUBE-FIREWALL"]) != 1 {
			t.Errorf("%v", v4.chains)
		}
	}
	v4.err = errors.New("locked")
	if err := makeChains(v4, iptables.ProtocolIPv4); !errors.Is(err, v4.err) {
		t.Errorf("what cannot be done is told as %v", err)
	}
}
