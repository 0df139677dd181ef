package main

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

func at(client int, begin, end int64, o operation) porcupine.Operation {
	o.Client, o.Begin, o.End = client, begin, &end
	return porcupine.Operation{ClientId: client, Input: o, Call: begin, Return: end}
}

func created(id uint64, vms uint32) operation {
	return operation{Kind: "create", VMs: vms, Answer: "done", Found: &tenant{id, vms, 1}}
}

// In these histories the number of a change is the size of the tenant after it.
func resized(id uint64, vms uint32) operation {
	return operation{Kind: "resize", ID: id, VMs: vms, Answer: "done", Found: &tenant{id, vms, uint64(vms)}}
}

func matched(match uint64, o operation) operation {
	o.IfMatch = match
	return o
}

func seen(id uint64, vms uint32) operation {
	return operation{Kind: "read", Answer: "done", Found: &tenant{id, vms, 0}}
}

func TestOnlyRightHistoriesHaveAnOrder(t *testing.T) {
	absent := operation{Kind: "read", Answer: "absent"}
	deleted := operation{Kind: "delete", ID: 7, Answer: "done"}
	changed := operation{Kind: "resize", ID: 7, VMs: 9, Answer: "changed"}
	for name, c := range map[string]struct {
		right   bool
		history []porcupine.Operation
	}{
		"one after another": {true, []porcupine.Operation{
			at(1, 0, 1, created(7, 2)), at(1, 2, 3, resized(7, 4)), at(2, 4, 5, seen(7, 4)),
			at(1, 6, 7, deleted), at(2, 8, 9, absent), at(1, 10, 11, created(8, 1))}},
		"a read beside a change sees either": {true, []porcupine.Operation{
			at(1, 0, 1, created(7, 2)), at(1, 2, 9, resized(7, 4)), at(2, 3, 4, seen(7, 2)),
			at(2, 5, 6, seen(7, 4))}},
		"conditions that hold": {true, []porcupine.Operation{
			at(1, 0, 1, created(7, 2)), at(1, 2, 3, matched(1, resized(7, 4))), at(2, 4, 5, matched(1, changed)),
			at(2, 6, 7, matched(4, resized(7, 5)))}},
		"two changes of one state": {false, []porcupine.Operation{
			at(1, 0, 1, created(7, 2)), at(1, 2, 9, matched(1, resized(7, 4))), at(2, 2, 9, matched(1, resized(7, 5)))}},
		"a condition that held": {false, []porcupine.Operation{
			at(1, 0, 1, created(7, 2)), at(2, 2, 3, matched(1, changed))}},
		"a stale read": {false, []porcupine.Operation{
			at(1, 0, 1, created(7, 2)), at(1, 2, 3, resized(7, 4)), at(2, 4, 5, seen(7, 2))}},
		"two reads beside a change that go back": {false, []porcupine.Operation{
			at(1, 0, 1, created(7, 2)), at(1, 2, 9, resized(7, 4)), at(2, 3, 4, seen(7, 4)),
			at(2, 5, 6, seen(7, 2))}},
		"a lost tenant": {false, []porcupine.Operation{at(1, 0, 1, created(7, 2)), at(2, 2, 3, absent)}},
		"two creations": {false, []porcupine.Operation{
			at(1, 0, 1, created(7, 2)), at(2, 2, 3, created(8, 2))}},
		"two deletions": {false, []porcupine.Operation{
			at(1, 0, 1, created(7, 2)), at(1, 2, 3, deleted), at(2, 4, 5, deleted)}},
	} {
		t.Run(name, func(t *testing.T) {
			if porcupine.CheckOperations(model, c.history) != c.right {
				t.Errorf("right: %v", !c.right)
			}
		})
	}
}

func TestAnOperationWithoutAnAnswerMayHaveTakenEffectOrNot(t *testing.T) {
	silent := operation{Kind: "create", VMs: 3}
	pending := porcupine.Operation{ClientId: 1, Input: silent, Call: 0, Return: 1 << 62}
	absent := operation{Kind: "read", Answer: "absent"}
	for _, history := range [][]porcupine.Operation{
		{pending, at(2, 5, 6, seen(7, 3))},
		{pending, at(2, 5, 6, absent)},
		{pending, at(2, 5, 6, absent), at(2, 7, 8, seen(7, 3)), at(2, 9, 10, resized(7, 5))},
	} {
		if !porcupine.CheckOperations(model, history) {
			t.Errorf("%v has no order", history)
		}
	}
	back := []porcupine.Operation{pending, at(2, 5, 6, seen(7, 3)), at(2, 7, 8, absent)}
	if porcupine.CheckOperations(model, back) {
		t.Errorf("%v has an order", back)
	}
}
