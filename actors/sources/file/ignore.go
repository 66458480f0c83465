package file

import "strings"

// ignored says whether a file of this name in a manifest folder is not meant as a manifest: hidden files, as the kubelet
// ignores them (an atomically swapped ConfigMap's "..data" among them), and what editors leave beside the file being
// edited: copies (x~), Emacs' autosaves (#x#), Vim's swap files and its probe for a writable folder (4913).
func ignored(name string) bool {
	switch {
	case name == "", name[0] == '.', name == "4913":
		return true
	case strings.HasSuffix(name, "~"), strings.HasSuffix(name, ".swp"), strings.HasSuffix(name, ".swo"):
		return true
	default:
		return len(name) > 1 && name[0] == '#' && name[len(name)-1] == '#'
	}
}
