// Package configfile reads files of KubeletConfiguration as the kubelet does, lays drop-ins over one another, and says what is
// wrong in a file in plain words: the field's path and line, what was probably meant, and no word of Go's libraries. Defaults and
// flags are config's.
package configfile
