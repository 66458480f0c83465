// Package configfile reads files of KubeletConfiguration as the kubelet does, and merges drop-ins. Its errors have the path and
// line of the field and the probable intent, without the terms of Go's libraries. Package config has the defaults and flags.
package configfile
