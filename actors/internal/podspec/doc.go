// Package podspec checks and completes a pod before it runs.
//
// [Default] sets missing fields, [ValidateStatic] rejects fields that need an API server, [Unsupported] rejects fields that this
// agent does not implement yet, and [Validate] applies the other checks of the API server. A source calls the four in that order;
// every actor sees the resulting pod.
//
// All of them are pure functions of the pod, without clock or I/O, and safe for concurrent use on different pods. Errors name the
// field by its path as the API writes it, such as spec.containers[0].ports[1].containerPort.
package podspec
