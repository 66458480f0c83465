// Package manifest reads the pods of a manifest: YAML or JSON, one or several documents, each a Pod or a list of Pods.
//
// [Load] is the whole way from bytes to pods that can run; [Decode] and [Static] are its first two steps. All are pure
// functions, safe for concurrent use. What is wrong is a [Problem] with file, line and field, and it costs the pod
// concerned only: a bad document never hides the good ones beside it.
package manifest
