package flagvalue

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Reservations is the value of --reserved-memory: memory of NUMA nodes, as "0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=2Gi". The
// first use replaces the value of the file, and further ones add to it.
type Reservations struct {
	To  *[]kubeletconfig.MemoryReservation
	set bool
}

// Set implements pflag.Value.
func (r *Reservations) Set(text string) error {
	var all []kubeletconfig.MemoryReservation
	for part := range strings.SplitSeq(text, ";") {
		if part == "" {
			continue
		}
		number, limits, found := strings.Cut(part, ":")
		node, err := strconv.ParseInt(number, 10, 32)
		if err != nil || !found {
			return fmt.Errorf("%q: must be node:type=quantity[,type=quantity...], with the number of a NUMA node", part)
		}
		one := kubeletconfig.MemoryReservation{NumaNode: int32(node), Limits: v1.ResourceList{}}
		for limit := range strings.SplitSeq(limits, ",") {
			name, value, _ := strings.Cut(limit, "=")
			q, err := resource.ParseQuantity(value)
			if err != nil {
				return fmt.Errorf("%q: must be type=quantity: %w", limit, err)
			}
			one.Limits[v1.ResourceName(name)] = q
		}
		all = append(all, one)
	}
	if r.set {
		all = append(slices.Clone(*r.To), all...)
	}
	*r.To, r.set = all, true
	return nil
}

// String implements pflag.Value.
func (r *Reservations) String() string {
	if r.To == nil {
		return ""
	}
	var parts []string
	for _, one := range *r.To {
		var limits []string
		for _, name := range slices.Sorted(maps.Keys(one.Limits)) {
			q := one.Limits[name]
			limits = append(limits, fmt.Sprintf("%s=%s", name, &q))
		}
		parts = append(parts, fmt.Sprintf("%d:%s", one.NumaNode, strings.Join(limits, ",")))
	}
	return strings.Join(parts, ";")
}

// Type implements pflag.Value.
func (*Reservations) Type() string { return "node:type=quantity" }
