package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
)

// Record is the guarantee of a pod that starts or runs on this node: the file that the CNI plugin
// reads.
type Record struct {
	// Version is 2, and 1 without a packet. A plugin that does not know it must refuse the pod.
	Version   int    `json:"version"`
	Pod       string `json:"pod"`
	Namespace string `json:"namespace"`
	Claim     string `json:"claim"`
	ClaimUID  string `json:"claim_uid"`
	// Share is the share of the uplink that the claim has, of those of the device.
	Share string `json:"share,omitempty"`
	// Guarantee is the value of the flag --guarantee of tailbound adopt.
	Guarantee string `json:"guarantee"`
	// Packet is the value of its flag --packet; empty for the program's own.
	Packet       string          `json:"packet,omitempty"`
	BandwidthBit guarantee.Rate  `json:"bandwidth_bit_s"`
	BurstBytes   guarantee.Bytes `json:"burst_bytes"`
}

const recordVersion = 2

// Store keeps the records of a node, a file for each pod. It survives the driver.
type Store struct {
	directory string
}

// OpenStore makes the directory if there is none.
func OpenStore(directory string) (*Store, error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of records: %w", err)
	}
	return &Store{directory: directory}, nil
}

// isUID reports whether a text can be the UID of an object, and so a file's name.
func isUID(text string) bool {
	return len(text) >= 1 && len(text) <= 64 && strings.Trim(text, "0123456789abcdefABCDEF-") == ""
}

func (s *Store) path(pod string) string { return filepath.Join(s.directory, pod+".json") }

// Put writes a record. A reader sees the whole record or none.
func (s *Store) Put(record Record) (err error) {
	if !isUID(record.Pod) {
		return fmt.Errorf("%q is no UID of a pod", record.Pod)
	}
	record.Version = recordVersion
	text, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encoding the record of pod %s: %w", record.Pod, err)
	}
	file, err := os.CreateTemp(s.directory, ".new-*")
	if err != nil {
		return fmt.Errorf("recording the guarantee of pod %s: %w", record.Pod, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("recording the guarantee of pod %s: %w", record.Pod, err), os.Remove(file.Name()))
		}
	}()
	_, err = file.Write(append(text, '\n'))
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), s.path(record.Pod))
}

// Remove removes the record of a pod. It is no error if there is none.
func (s *Store) Remove(pod string) error {
	if err := os.Remove(s.path(pod)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the record of pod %s: %w", pod, err)
	}
	return nil
}

// All returns all records. A file that is none is an error: a guarantee may be in it.
func (s *Store) All() ([]Record, error) {
	entries, err := os.ReadDir(s.directory)
	if err != nil {
		return nil, fmt.Errorf("reading the records: %w", err)
	}
	var records []Record
	for _, entry := range entries {
		pod, isRecord := strings.CutSuffix(entry.Name(), ".json")
		if !isRecord {
			continue
		}
		text, err := os.ReadFile(s.path(pod))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading a record: %w", err)
		}
		var record Record
		if err := json.Unmarshal(text, &record); err != nil {
			return nil, fmt.Errorf("%s is no record: %w", s.path(pod), err)
		}
		if record.Version < 1 || record.Version > recordVersion || record.Pod != pod {
			return nil, fmt.Errorf("%s is of version %d and pod %q: expected at most version %d and its name", s.path(pod), record.Version, record.Pod, recordVersion)
		}
		records = append(records, record)
	}
	return records, nil
}
