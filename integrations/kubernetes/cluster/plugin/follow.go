package plugin

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
	"github.com/tailbound/tailbound/integrations/kubernetes/scheduler"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	// pollInterval is the time between two looks at the service's state while pods wait.
	pollInterval = 500 * time.Millisecond
	// waitingPerInterval is the number of waiting pods that lengthens it by itself once.
	waitingPerInterval = 50
	// idleGrace is the time for which places of a gang are kept between its try and its bind.
	idleGrace = 5 * time.Second
	// sweepInterval is the time between two searches for machines whose pods ended unseen.
	sweepInterval = time.Minute
)

// waiting are the pods that were refused, by their keys.
type waiting struct {
	mutex sync.Mutex
	pods  map[string]*v1.Pod
}

func newWaiting() *waiting { return &waiting{pods: map[string]*v1.Pod{}} }

func (w *waiting) add(pod *v1.Pod) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.pods[pod.Namespace+"/"+pod.Name] = pod
}

func (w *waiting) remove(pod *v1.Pod) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.pods, pod.Namespace+"/"+pod.Name)
}

func (w *waiting) take() map[string]*v1.Pod {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	taken := w.pods
	w.pods = map[string]*v1.Pod{}
	return taken
}

func (w *waiting) count() int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return len(w.pods)
}

// ended is a machine whose pod has ended.
type ended struct {
	tenant    guarantee.Tenant
	uid, node string
}

// follow removes machines of pods that end, and activates refused pods when the service's state
// changes, until the context ends.
func (p *Plugin) follow(ctx context.Context, pods coreinformers.PodInformer) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ended]())
	end := func(pod *v1.Pod) {
		p.waiting.remove(pod)
		if at, ok := p.placeOf(pod); ok {
			queue.Add(ended{at.Tenant, string(pod.UID), at.Node})
		}
	}
	_, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(old, new any) {
			before, after := old.(*v1.Pod), new.(*v1.Pod)
			if before.UID != after.UID {
				end(before)
			} else if !isOver(before) && isOver(after) {
				end(after)
			}
		},
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			if pod, ok := object.(*v1.Pod); ok {
				end(pod)
			}
		},
	})
	if err != nil {
		return err
	}
	go func() {
		<-ctx.Done()
		queue.ShutDown()
	}()
	go p.removeEnded(ctx, queue)
	go p.poll(ctx)
	go p.sweep(ctx, pods)
	return nil
}

// placeOf returns the place of a pod that may have a guarantee. Its claims may be gone.
func (p *Plugin) placeOf(pod *v1.Pod) (scheduler.Place, bool) {
	if pod.Spec.NodeName == "" || len(pod.Spec.ResourceClaims) == 0 {
		return scheduler.Place{}, false
	}
	tenant, err := guarantee.TenantOf(pod, p.prefix)
	return scheduler.Place{Tenant: tenant, Node: pod.Spec.NodeName}, err == nil
}

func isOver(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

func (p *Plugin) removeEnded(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ended]) {
	for {
		machine, closed := queue.Get()
		if closed {
			return
		}
		if err := p.admission.Gone(ctx, machine.tenant, machine.uid, machine.node); err != nil {
			klog.FromContext(ctx).V(2).Info("A machine of a pod that ended is removed later", "pod", machine.uid, "node", machine.node, "err", err)
			queue.AddRateLimited(machine)
		} else {
			queue.Forget(machine)
		}
		queue.Done(machine)
	}
}

// poll activates refused pods after a change of the service's state.
func (p *Plugin) poll(ctx context.Context) {
	var last uint64
	known := false
	for {
		select {
		case <-ctx.Done():
			return
		// Many pods that wait are tried more rarely, so that the others have their turn.
		case <-time.After(pollInterval * time.Duration(1+p.waiting.count()/waitingPerInterval)):
		}
		if _, err := p.admission.Expire(ctx, idleGrace); err != nil {
			klog.FromContext(ctx).V(2).Info("Places of gangs stay reserved until their time to live ends", "err", err)
		}
		if p.waiting.count() == 0 {
			continue
		}
		revision, err := p.admission.Revision(ctx)
		if err == nil && (!known || revision != last) {
			p.handle.Activate(klog.FromContext(ctx), p.waiting.take())
		}
		// After an outage all are tried.
		last, known = revision, err == nil
	}
}

// sweep removes machines of pods that ended while this scheduler did not run.
func (p *Plugin) sweep(ctx context.Context, pods coreinformers.PodInformer) {
	if !cache.WaitForCacheSync(ctx.Done(), pods.Informer().HasSynced) {
		return
	}
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		// A scheduler that is not the leader schedules nothing, and does not know what is about to be bound.
		if p.schedules.Load() {
			p.sweepOnce(ctx, pods)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (p *Plugin) sweepOnce(ctx context.Context, pods coreinformers.PodInformer) {
	logger := klog.FromContext(ctx)
	all, err := pods.Lister().List(labels.Everything())
	if err != nil {
		logger.Error(err, "Listing pods for a sweep")
		return
	}
	running := map[scheduler.Place]int{}
	for _, pod := range all {
		if at, ok := p.placeOf(pod); ok && !isOver(pod) {
			running[at]++
		}
	}
	isOurs := func(owner string) bool { return strings.HasPrefix(owner, p.prefix) }
	removed, err := p.admission.Sweep(ctx, isOurs, running)
	if err != nil {
		logger.V(2).Info("The sweep for machines without pods is tried again later", "err", err)
	} else if removed > 0 {
		logger.Info("Removed machines whose pods are gone", "machines", removed)
	}
}
