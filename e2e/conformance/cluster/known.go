package main

import "github.com/playlet-dev/playlet/e2e/conformance/suite"

// known are tests that do not run, and the reason. Other failures that are the machine's occur with -kubelet, too.
var known = []suite.Exclusion{}
