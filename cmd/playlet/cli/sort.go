package cli

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"
)

// SortBy sorts items by a field, as kubectl's --sort-by does: items without it come first. A field that none of the items has is
// an error. An empty path leaves the order.
func SortBy[T any](items []T, path string, object func(*T) any) error {
	if path == "" {
		return nil
	}
	wrong := fmt.Errorf("--sort-by=%s: write a path to one field, as .metadata.name", path)
	p := jsonpath.New("sort-by").AllowMissingKeys(true)
	if p.Parse(braced(path)) != nil {
		return wrong
	}
	type keyedItem struct {
		key  any
		item T
	}
	all, known := make([]keyedItem, len(items)), len(items) == 0
	for i := range items {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object(&items[i]))
		if err != nil {
			return err
		}
		found, err := p.FindResults(fields)
		if err != nil {
			return wrong
		}
		if values := slices.Concat(found...); len(values) == 1 {
			all[i].key, known = values[0].Interface(), true
		}
		all[i].item = items[i]
	}
	if !known {
		return fmt.Errorf("--sort-by=%s: nothing that is listed has this field (-o yaml shows the fields)", path)
	}
	slices.SortStableFunc(all, func(x, y keyedItem) int { return compareFields(x.key, y.key) })
	for i := range all {
		items[i] = all[i].item
	}
	return nil
}

// compareFields compares numbers and quantities by value, and everything else as text.
func compareFields(x, y any) int {
	if x == nil || y == nil {
		return cmp.Compare(b2i(x != nil), b2i(y != nil))
	}
	a, b := fmt.Sprint(x), fmt.Sprint(y)
	p, errP := resource.ParseQuantity(a)
	q, errQ := resource.ParseQuantity(b)
	if errP == nil && errQ == nil {
		return p.Cmp(q)
	}
	return cmp.Compare(a, b)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
