package shares

// Excess returns the index of the work to be dropped where there is too much, the oldest first, given its keys. It is the oldest
// of the outermost key that has the most, of the key below it that has the most, and so on. Work of SystemKey is kept until it is
// more than half.
func Excess(work [][]string) int {
	first := 0
	for depth := 0; depth < len(work[first]); depth++ {
		count, all := map[string]int{}, 0
		for _, keys := range work {
			if keys != nil {
				count[keys[depth]]++
				all++
			}
		}
		if 2*count[SystemKey] <= all {
			delete(count, SystemKey)
		}
		most := ""
		for _, keys := range work {
			if keys != nil && count[keys[depth]] > count[most] {
				most = keys[depth]
			}
		}
		first = -1
		for i, keys := range work {
			switch {
			case keys == nil:
			case keys[depth] != most:
				work[i] = nil
			case first < 0:
				first = i
			}
		}
	}
	return first
}
