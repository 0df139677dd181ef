// Package place is a client of the API that tailbound's placement service has for outside
// schedulers: candidates, reservations, and the machines of a tenant on a host.
//
// A call returns the answer, or one of three kinds of errors, which a caller tells apart with
// errors.As and errors.Is: a [*Problem] is the service's own refusal; [ErrUnavailable] means that no
// answer came and that the call may be repeated; [ErrVersion] means that something answered that is
// not a service with this API. The package uses the standard library only.
package place
