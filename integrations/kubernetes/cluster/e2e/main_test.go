//go:build cluster

package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// alone is set in a process that runs one test.
const alone = "TAILBOUND_E2E_ALONE"

// TestMain runs each test in a process of its own: a second control plane in a process does not
// work, as parts of Kubernetes have global state.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(alone) != "" || flag.Lookup("test.list").Value.String() != "" {
		os.Exit(m.Run())
	}
	pattern, below, _ := strings.Cut(flag.Lookup("test.run").Value.String(), "/")
	if pattern == "" {
		pattern = "."
	}
	listed, err := exec.Command(os.Args[0], "-test.list", pattern).Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "listing the tests:", err)
		os.Exit(1)
	}
	code := 0
	for name := range strings.FieldsSeq(string(listed)) {
		if !strings.HasPrefix(name, "Test") {
			continue
		}
		run := "^" + name + "$"
		if below != "" {
			run += "/" + below
		}
		// The last of two equal flags counts.
		child := exec.Command(os.Args[0], append(os.Args[1:len(os.Args):len(os.Args)], "-test.run="+run)...)
		child.Env = append(os.Environ(), alone+"=1")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Run(); err != nil {
			fmt.Fprintln(os.Stderr, name+":", err)
			code = 1
		}
	}
	os.Exit(code)
}
