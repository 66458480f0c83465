// Package find looks things up in lists.
package find

// In is the first of a list of which that is so; nil where there is none. It points into the list.
func In[T any](list []T, is func(*T) bool) *T {
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}
