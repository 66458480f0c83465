package cri

import "testing"

func TestWhyACommandWasNotRun(t *testing.T) {
	const runc = "failed to exec in container: OCI runtime exec failed: exec failed: unable to start container process: "
	for text, want := range map[string]struct {
		why     NotRun
		command string
	}{
		runc + `exec: "ls": executable file not found in $PATH: unknown`:   {NotFound, "ls"},
		runc + `exec: "/ls": stat /ls: no such file or directory: unknown`: {NotFound, "/ls"},
		runc + `exec: "/etc/hosts": permission denied: unknown`:            {NotAllowed, "/etc/hosts"},
		runc + `exec: "/": is a directory: unknown`:                        {NotAllowed, "/"},
		// on stderr, with CRI-O
		`time="2026-01-02T03:04:05Z" level=error msg="exec failed: unable to start container process: exec: \"ls\": executable file not found in $PATH"`: {NotFound, "ls"},
		"crun: executable file `ls` not found in $PATH: No such file or directory":                                                                       {NotFound, "ls"},
		"OCI runtime exec failed: executable file `/no/such` not found: No such file or directory: unknown":                                              {NotFound, "/no/such"},
		"executable file not found in $PATH: No such file or directory":                                                                                  {NotFound, ""},
		"open executable: Permission denied":                                                                                        {NotAllowed, ""},
		"OCI runtime exec failed: open executable: Operation not permitted: unknown":                                                {NotAllowed, ""}, // a folder, with crun 1.8
		"the path `/etc/hosts` is not executable: Permission denied":                                                                {NotAllowed, "/etc/hosts"},
		`executing processes for container: error finding executable "python3" in PATH [/bin /usr/bin]: no such file or directory`:  {NotFound, "python3"},
		`loading container: failed to load /etc/hosts: permission denied`:                                                           {NotAllowed, "/etc/hosts"},
		`Others("failed to handler message ... rpc status: code: INTERNAL message: \"the file /bin/bash was not found\""): unknown`: {NotFound, "/bin/bash"},
		"container is in CONTAINER_EXITED state":                                                                                    {},
		"connecting: no such file or directory":                                                                                     {},
		"open /sys/fs/cgroup/x: No such file":                                                                                       {},
		"open /proc/self/attr/exec: Permission denied":                                                                              {},
		"cat: can't open '/x': No such file or directory":                                                                           {},
	} {
		if why, command := WhyNotRun(text); why != want.why || command != want.command {
			t.Errorf("%q: %d %q, want %d %q", text, why, command, want.why, want.command)
		}
	}
}
