// Package facts turns what the CRI says of containers and sandboxes into the messages' facts.
//
// The mapping is pure. What a status alone does not tell, the termination message, is named by a MessageSource and read
// by its own function, which is I/O: call it outside a mailbox. Nothing that a runtime, a pod or a foreign tool wrote
// into a status can make a function of this package panic.
package facts
