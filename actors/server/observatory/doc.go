// Package observatory is the web page that shows the node as its actors see it: the live tree, each pod with the sentence that
// explains it, a pod's messages drawn as they happen, the critical path of its start, figures, and chaos where it is enabled.
//
// The page has no data of its own: it asks the handlers of the admin socket. On that socket, which root alone may open, it is
// served without more ado (OnSocket). On a TCP port (OnPort) a token is asked for, and what can be asked is what the page needs:
// reading, and chaos where it is enabled. Both refuse what a browser sends for another site: a foreign Host (DNS
// rebinding) or a foreign Origin (CSRF). The assets are embedded; nothing is loaded from elsewhere.
//
// A list has as many rows in the document as are seen; nothing is asked for while the page is hidden. e2e/browser drives the page
// in chromium.
package observatory
