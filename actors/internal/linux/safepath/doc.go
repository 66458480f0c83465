// Package safepath opens, makes and removes files in places that a pod can influence. Everything is done relative to
// a directory descriptor and resolved by openat2(2), so that a symbolic link swapped in at any moment leads nowhere
// else (CVE-2017-1002101, CVE-2021-25741), and nothing is ever removed across a mount point.
//
// It needs Linux 5.6 for openat2; on older kernels every call fails with errors.ErrUnsupported.
package safepath
