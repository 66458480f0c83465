package messages

import (
	"strings"
	"testing"
)

func TestUIDsAreOneElementOfAPath(t *testing.T) {
	for _, uid := range []string{"c7f0b1de-8a55-4d0a-9a7e-0f1c8a3a9f10", "0123456789abcdef0123456789abcdef", "x", "a.b_c-d"} {
		if err := CheckUID(uid); err != nil {
			t.Errorf("%q: %v", uid, err)
		}
	}
	for _, uid := range []string{"", ".", "..", "a/b", "x/../../victim", "a b", "a\n", "-x", "x.", strings.Repeat("a", 129)} {
		if CheckUID(uid) == nil {
			t.Errorf("%q is taken", uid)
		}
	}
}
