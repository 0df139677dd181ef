package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const guide = "../../../../../docs/how-to/kubernetes.md"

// block returns the first block of a kind in the guide whose text has a word.
func block(t *testing.T, kind, word string) string {
	t.Helper()
	page, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	inside, of := false, ""
	for line := range strings.SplitSeq(string(page), "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && inside && of == kind && strings.Contains(text.String(), word):
			return text.String()
		case isFence:
			inside, of = !inside, fence
			text.Reset()
		default:
			text.WriteString(line + "\n")
		}
	}
	t.Fatalf("the guide has no block of the kind %q with %q", kind, word)
	return ""
}

// The command of the guide prints the claim of the guide, from the values of the guide.
func TestTheClaimOfTheGuide(t *testing.T) {
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "values.yaml"), []byte(block(t, "yaml", "repository:")), 0o600); err != nil {
		t.Fatal(err)
	}
	page, arguments := block(t, "yaml", "kind: ResourceClaimTemplate"), strings.Fields(block(t, "", "tailbound-dra claim"))
	t.Chdir(directory)
	var printed bytes.Buffer
	if err := claim(t.Context(), arguments[2:], &printed); err != nil {
		t.Fatal(err)
	}
	if printed.String() != page {
		t.Errorf("the guide has\n%s, and the program prints\n%s", page, printed.String())
	}
}

func TestMistakesInFlagsAreNamed(t *testing.T) {
	values := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(values, []byte("tree: {node: {rate: 10G, up: 62500, down: 300000}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := []string{"--values", values, "--name", "web", "--bandwidth", "500M", "--burst", "15k", "--pods", "3"}
	for flag, word := range map[string]string{
		"--name=Web": "--name web", "--bandwidth=500Mbit/s": "--bandwidth 500M", "--bandwidth=500": "did you mean", "--burst=15": "did you mean",
		"--pods=1": "1 pods", "--within=rack": "no level", "--values=/nonexistent": "topology",
	} {
		if err := claim(t.Context(), append(good[:len(good):len(good)], flag), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: error %v, expected %q in it", flag, err, word)
		}
	}
	node := []string{"--node=n1", "--rate=10G", "--up=62500", "--down=300000"}
	for flag, word := range map[string]string{
		"--rate=10Gbit": "--rate 10G", "--up=100": "buffer up", "--node=": "NODE_NAME", "--admission=exact": "sum nor service", "more": "unexpected",
	} {
		if _, err := parse(append(node[:len(node):len(node)], flag), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: error %v, expected %q in it", flag, err, word)
		}
	}
	o, err := parse(append(node, "--lateness=14us"), &bytes.Buffer{})
	if err != nil || o.uplink.Lateness != 14*time.Microsecond || o.uplink.Frame != 1_538 {
		t.Errorf("%+v, %v", o, err)
	}
}
