package driver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// CNIPlugin is the name by which a runtime starts tailbound as a CNI plugin.
const CNIPlugin = "tailbound-cni"

// InstallCNI copies the program into the directory of a node's CNI plugins. A runtime that starts
// the plugin meanwhile has the old one or the new one, whole.
func InstallCNI(program, binaries string) (err error) {
	source, err := os.Open(program)
	if err != nil {
		return fmt.Errorf("installing the CNI plugin: %w", err)
	}
	defer source.Close()
	target, err := os.CreateTemp(binaries, ".tailbound-*")
	if err != nil {
		return fmt.Errorf("installing the CNI plugin: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("installing the CNI plugin: %w", err), os.Remove(target.Name()))
		}
	}()
	_, err = io.Copy(target, source)
	if err = errors.Join(err, target.Chmod(0o755), target.Sync(), target.Close()); err != nil {
		return err
	}
	return os.Rename(target.Name(), filepath.Join(binaries, CNIPlugin))
}

// RemoveCNI removes the plugin, unless a network configuration still lists it: without the plugin
// the node could start no pod. It reports whether the plugin is gone.
func RemoveCNI(binaries, configuration string) (bool, error) {
	listed, err := listsCNI(configuration)
	if err != nil || listed {
		return false, err
	}
	err = os.Remove(filepath.Join(binaries, CNIPlugin))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("removing the CNI plugin: %w", err)
	}
	return true, nil
}

func listsCNI(configuration string) (bool, error) {
	entries, err := os.ReadDir(configuration)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the network configurations: %w", err)
	}
	for _, entry := range entries {
		if !entry.Type().IsRegular() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(configuration, entry.Name()))
		if err != nil {
			return false, fmt.Errorf("reading the network configurations: %w", err)
		}
		if bytes.Contains(text, []byte(CNIPlugin)) {
			return true, nil
		}
	}
	return false, nil
}
