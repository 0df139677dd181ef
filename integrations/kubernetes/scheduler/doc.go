// Package scheduler decides, by the placement service, on which nodes a pod with a guarantee may
// run. It is the part of the scheduler's plugin that knows nothing of the scheduling framework; the
// adapter is in the module "cluster".
//
// A pod goes through [Admission.Candidates] (PreFilter), [Admission.Reserve] (Reserve) and
// [Admission.Confirm] (PreBind), or [Admission.Cancel] (Unreserve). The service decides at Reserve:
// candidates only spare the scheduler nodes that would be refused. Nothing is bound without a
// confirmed reservation, so a service that does not answer delays pods and admits none.
package scheduler
