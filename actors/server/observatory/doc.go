// Package observatory is the web page that shows the node with its actors: the live tree, each pod with its explanation, a pod's
// messages as they happen, the critical path of its start, figures, and chaos if it is enabled.
//
// The page has no data of its own: it uses the handlers of the admin socket. On that socket, which only root may open, it is
// served without authentication (OnSocket). A TCP port (OnPort) requires a token, and only serves the requests of the page:
// reading, and chaos if it is enabled. Both reject requests that a browser sends for another site: a foreign Host (DNS rebinding)
// or a foreign Origin (CSRF). The assets are embedded; the page loads nothing from elsewhere.
//
// The document only has the visible rows of a list; a hidden page makes no requests. e2e/browser drives the page in chromium.
package observatory
