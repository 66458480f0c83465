package cli

import (
	"strings"
	"testing"
)

func TestSortBy(t *testing.T) {
	type size struct {
		Memory string `json:"memory,omitempty"`
	}
	type item struct {
		Name string `json:"name"`
		Size size   `json:"size"`
		Runs int    `json:"runs"`
	}
	for path, want := range map[string]string{
		"": "c a b d", ".name": "a b c d", "{.size.memory}": "d b a c", "size.memory": "d b a c", ".runs": "b c a d",
	} {
		items := []item{{"c", size{"1Gi"}, 9}, {"a", size{"500Mi"}, 10}, {"b", size{"1Ki"}, 2}, {"d", size{}, 11}}
		if err := SortBy(items, path, func(i *item) any { return i }); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, i := range items {
			got = append(got, i.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", path, got, want)
		}
	}
	err := SortBy([]item{{Name: "a"}}, ".nope", func(i *item) any { return i })
	if err == nil || err.Error() != "--sort-by=.nope: nothing that is listed has this field (-o yaml shows the fields)" {
		t.Error(err)
	}
	if err := SortBy(nil, ".nope", func(i *item) any { return i }); err != nil {
		t.Error(err)
	}
	err = SortBy([]item{{}}, "{.name", func(i *item) any { return i })
	if err == nil || err.Error() != "--sort-by={.name: write a path to one field, as .metadata.name" {
		t.Error(err)
	}
}
