package place

import "encoding/json"

// Guarantee is {B, S, d, Bmax, K} of each machine of a tenant. Quantities are texts with a unit, as
// the service reads and writes them: "250Mbit/s", "15KB", "1ms".
type Guarantee struct {
	Bandwidth string `json:"bandwidth"`
	Burst     string `json:"burst"`
	Delay     string `json:"delay,omitempty"`
	BurstRate string `json:"burst_rate,omitempty"`
	// Bursts is K: a positive number, or "per-receiver". The service has a default.
	Bursts json.RawMessage `json:"bursts,omitempty"`
	// BurstIn is S_in: a size like "240KB". Without it all other machines may burst to one.
	BurstIn string `json:"burst_in,omitempty"`
}

// Request is what each machine of a tenant gets.
type Request struct {
	Guarantee *Guarantee `json:"guarantee,omitempty"`
}

// TenantRequest is the request of a whole tenant.
type TenantRequest struct {
	VMs int `json:"vms"`
	Request
}

// Share is a number of machines on a host.
type Share struct {
	Host string `json:"host"`
	VMs  int    `json:"vms"`
}

// Query asks which hosts take some machines. It names a live tenant, or has the request of one
// that does not exist yet.
type Query struct {
	// Tenant is "OWNER/NAME" of a live tenant.
	Tenant string `json:"tenant,omitempty"`
	// Request is the whole request of a tenant that does not exist yet.
	Request *TenantRequest `json:"request,omitempty"`
	// VMs is the number of machines on one host.
	VMs int `json:"vms"`
	// Hosts are the names that are asked about; all hosts if empty.
	Hosts []string `json:"hosts,omitempty"`
}

// Headroom is what the scarcest port of a host's path has left.
type Headroom struct {
	VMs       int    `json:"vms"`
	Bandwidth string `json:"bandwidth"`
	Burst     string `json:"burst"`
}

// Refusal is the reason why a machine does not fit on a host.
type Refusal struct {
	// Rule is one of slots, capacity, queue, delay, cpu, memory, domain, state, unknown-host.
	Rule string `json:"rule"`
	// Port is the uplink that refuses, such as "rack1 up"; empty if none does.
	Port     string `json:"port,omitempty"`
	Sentence string `json:"sentence"`
}

// Candidate is the service's verdict about one host.
type Candidate struct {
	Host     string   `json:"host"`
	Fits     bool     `json:"fits"`
	Headroom Headroom `json:"headroom"`
	// Refusal is nil if the machine fits.
	Refusal *Refusal `json:"refusal,omitempty"`
}

// Verdicts are the candidates of one [Query].
type Verdicts struct {
	Candidates []Candidate `json:"candidates"`
}

// Answer has the verdicts of each query, in order, as of one revision of the service's store.
type Answer struct {
	Revision uint64     `json:"revision"`
	Answers  []Verdicts `json:"answers"`
}

// NewReservation reserves machines of a tenant for a time, all of them or none.
type NewReservation struct {
	Tenant    string   `json:"tenant"`
	Owner     string   `json:"owner,omitempty"`
	Request   *Request `json:"request,omitempty"`
	Placement []Share  `json:"placement"`
	// TTL is the time to live, from "1s" to "1h".
	TTL string `json:"ttl"`
	// Machines are opaque names, one for each machine, such as UIDs of pods.
	Machines []string `json:"machines,omitempty"`
}

// Reservation is a reservation that the service has granted.
type Reservation struct {
	ID string `json:"id"`
	// Tenant is the tenant's number, Owner and Name are its names.
	Tenant uint64 `json:"tenant"`
	Owner  string `json:"owner"`
	Name   string `json:"name"`
	// State is "open" or "confirmed".
	State    string            `json:"state"`
	Machines []ReservedMachine `json:"machines"`
}

// ReservedMachine is a machine of a reservation.
type ReservedMachine struct {
	Host string `json:"host"`
	// Name is the caller's name of the machine; empty if it gave none.
	Name string `json:"name,omitempty"`
}

// Tenant is an admitted tenant.
type Tenant struct {
	ID    uint64 `json:"id"`
	Owner string `json:"owner"`
	Name  string `json:"name"`
	// Runs are its machines, also those of open reservations.
	Runs []Run `json:"runs"`
	// Change is the number of its last change.
	Change uint64 `json:"change"`
}

// Run is a number of machines on a host.
type Run struct {
	Count int    `json:"count"`
	Host  string `json:"host"`
}

// Confirmed returns the number of the tenant's machines on each host, without those of these open
// reservations.
func (t *Tenant) Confirmed(open []Reservation) map[string]int {
	hosts := map[string]int{}
	for _, run := range t.Runs {
		hosts[run.Host] += run.Count
	}
	for _, reservation := range open {
		if reservation.Tenant != t.ID {
			continue
		}
		for _, machine := range reservation.Machines {
			hosts[machine.Host]--
		}
	}
	return hosts
}

// HostMachines is a new number of a tenant's confirmed machines on a host.
type HostMachines struct {
	VMs int `json:"vms"`
	// Remove are the names of machines that are removed; those with the highest numbers if empty.
	Remove []string `json:"remove,omitempty"`
}

// Explanation is the placement of a request, or the reason of its refusal.
type Explanation struct {
	Fits bool `json:"fits"`
	// Hosts are the placement; empty if the request would be refused.
	Hosts   []Share `json:"hosts"`
	Refusal string  `json:"refusal,omitempty"`
	// Overload is the port that refuses, if one does.
	Overload *Overload `json:"overload,omitempty"`
	// Nearest are requests that would be admitted, each different in one number.
	Nearest []Nearest `json:"nearest"`
}

// Overload is a port that a request would overload.
type Overload struct {
	Port    string `json:"port"`
	Message string `json:"message"`
}

// Nearest is a request that would be admitted.
type Nearest struct {
	// Change is the difference as text: "a burst of 68.35KB".
	Change string `json:"change"`
}
