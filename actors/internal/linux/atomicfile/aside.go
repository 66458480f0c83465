package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// keptAside is how many unreadable versions of one checkpoint are kept; then the oldest goes.
const keptAside = 5

// keepAside moves the file out of the way, to the next free path.corrupt-<n>, and says where.
func keepAside(path string) (string, error) {
	lock := writerOf(path)
	lock.Lock()
	defer lock.Unlock()
	numbers, err := asides(path)
	if err != nil {
		return "", err
	}
	next := 1
	if len(numbers) > 0 {
		next = numbers[len(numbers)-1] + 1
	}
	kept := aside(path, next)
	if err := os.Rename(path, kept); err != nil {
		return "", err
	}
	var errs []error
	for _, n := range numbers[:max(0, len(numbers)+1-keptAside)] {
		errs = append(errs, os.RemoveAll(aside(path, n)))
	}
	return kept, errors.Join(append(errs, syncDir(filepath.Dir(path)))...)
}

func aside(path string, n int) string { return fmt.Sprintf("%s.corrupt-%d", path, n) }

// asides lists the numbers of what was kept aside before, sorted.
func asides(path string) ([]int, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, e := range entries {
		text, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+".corrupt-")
		if n, err := strconv.Atoi(text); ok && err == nil && n > 0 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}
