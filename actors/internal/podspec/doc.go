// Package podspec says what a pod means before anything runs it.
//
// [Default] fills in what a manifest leaves out, [ValidateStatic] refuses what a pod without an API server behind it
// cannot have, [Unsupported] what this agent cannot do yet, and [Validate] finds what else the API server would refuse. A
// source runs the four in that order; the pod that comes out is what every actor sees.
//
// All of them are pure functions of the pod, without clock or I/O, and safe for concurrent use on different pods.
// Errors name the field by its path as the API writes it, such as spec.containers[0].ports[1].containerPort.
package podspec
