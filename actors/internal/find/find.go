// Package find searches lists.
package find

// In returns a pointer to the first element of the list that satisfies is, or nil.
func In[T any](list []T, is func(*T) bool) *T {
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}
