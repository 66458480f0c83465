package configfile

import "testing"

func TestClosest(t *testing.T) {
	known := []string{"pods", "port-forward", "healthzPort", "run", "rm"}
	for word, want := range map[string]string{
		"healthzPrt": "healthzPort", "HEALTHZPORT": "healthzPort", "pood": "pods", "port-froward": "port-forward", "ru": "rm",
		"sorcery": "", "": "", "x": "", "run": "run", "foo": "", "rod": "",
	} {
		if got := Closest(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
