// Command linearizable judges histories of the placement service's tenants.
//
//	linearizable FILE
//
// Each line of FILE is one operation as JSON, see operation. All operations of one key must have an order in
// which each takes effect between its begin and its end, and in which each answer is right. The search is
// porcupine's. The exit code is 0 if there is such an order for each key, 1 if there is none for one, and 2
// if the file is wrong or a search takes longer than a minute.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

const searchTimeout = time.Minute

// operation is one request of a client with its answer.
type operation struct {
	// Key is the owner of at most one tenant.
	Key    string `json:"key"`
	Client int    `json:"client"`
	// Kind is create, resize, delete or read.
	Kind string `json:"kind"`
	// ID is the tenant that a resize or delete names.
	ID uint64 `json:"id"`
	// VMs is the size that a create or resize requests.
	VMs uint32 `json:"vms"`
	// IfMatch is the change that a resize requires to be the last one; 0 for any.
	IfMatch uint64 `json:"if_match"`
	// Begin and End are nanoseconds. End is null if no answer came.
	Begin int64  `json:"begin"`
	End   *int64 `json:"end"`
	// Answer is done, exists, absent (of a read, a resize or a delete), or changed.
	Answer string `json:"answer"`
	// Found is the tenant in the answer of a create, a resize or a read.
	Found *tenant `json:"found"`
}

// tenant is a tenant's state. ID is 0 if its creation was not answered, and Change, the number of its last
// change, if that was not.
type tenant struct {
	ID     uint64 `json:"id"`
	VMs    uint32 `json:"vms"`
	Change uint64 `json:"change"`
}

// may returns true if two numbers may be the same; 0 is not known.
func may(one, other uint64) bool { return one == other || one == 0 || other == 0 }

// state is the tenant of a key, if there is one.
type state struct {
	tenant
	exists bool
}

// step returns the state after an operation, and false if the answer is wrong in this state.
func step(before state, o operation) (bool, state) {
	isIt := before.exists && may(before.ID, o.ID)
	matches := may(before.Change, o.IfMatch)
	if o.End == nil {
		return true, unanswered(before, o, isIt && matches)
	}
	switch o.Kind + " " + o.Answer {
	case "create done":
		return !before.exists && o.Found.VMs == o.VMs, state{*o.Found, true}
	case "create exists":
		return before.exists, before
	case "resize done":
		// A resize to the same size changes nothing.
		isNext := o.Found.Change > before.Change || *o.Found == before.tenant
		return isIt && matches && isNext && o.Found.ID == o.ID && o.Found.VMs == o.VMs, state{*o.Found, true}
	case "resize changed":
		// A change of unknown number may be another one.
		return isIt && (before.Change != o.IfMatch || before.Change == 0), before
	case "resize absent", "delete absent":
		// So may a tenant of unknown number.
		return !isIt || before.ID == 0, before
	case "delete done":
		return isIt, state{}
	case "read done":
		is := before.exists && before.VMs == o.Found.VMs && may(before.ID, o.Found.ID)
		return is && may(before.Change, o.Found.Change), state{*o.Found, true}
	case "read absent":
		return !before.exists, before
	}
	panic(fmt.Sprintf("%s cannot be answered by %q", o.Kind, o.Answer))
}

// unanswered returns the state after an operation that took effect without an answer. One that did not
// comes last in the order, as it has no end.
func unanswered(before state, o operation, isIt bool) state {
	switch {
	case o.Kind == "create" && !before.exists:
		return state{tenant{0, o.VMs, 0}, true}
	case o.Kind == "resize" && isIt:
		return state{tenant{o.ID, o.VMs, 0}, true}
	case o.Kind == "delete" && isIt:
		return state{}
	}
	return before
}

var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(before, input, _ any) (bool, any) { return step(before.(state), input.(operation)) },
}

// read returns the operations of each key.
func read(path string) (map[string][]porcupine.Operation, int, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	keys := map[string][]porcupine.Operation{}
	lines := bufio.NewScanner(file)
	number := 0
	for lines.Scan() {
		number++
		var o operation
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return nil, 0, fmt.Errorf("%s:%d: %w", path, number, err)
		}
		end := int64(math.MaxInt64)
		if o.End != nil {
			end = *o.End
		}
		keys[o.Key] = append(keys[o.Key],
			porcupine.Operation{ClientId: o.Client, Input: o, Call: o.Begin, Return: end})
	}
	return keys, number, lines.Err()
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: linearizable FILE")
		os.Exit(2)
	}
	keys, count, err := read(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	code := 0
	names := make([]string, 0, len(keys))
	for name := range keys {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		switch porcupine.CheckOperationsTimeout(model, keys[name], searchTimeout) {
		case porcupine.Illegal:
			code = 1
			fmt.Printf("%s: its %d operations have no order:\n", name, len(keys[name]))
			for _, o := range keys[name] {
				line, _ := json.Marshal(o.Input)
				fmt.Printf("  %s\n", line)
			}
		case porcupine.Unknown:
			code = max(code, 2)
			fmt.Printf("%s: no order of its %d operations within %v\n", name, len(keys[name]), searchTimeout)
		}
	}
	if code == 0 {
		fmt.Printf("%d operations on %d keys are linearizable\n", count, len(keys))
	}
	os.Exit(code)
}
