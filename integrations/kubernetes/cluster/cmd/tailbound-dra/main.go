// Command tailbound-dra is the DRA driver of a node; `tailbound-dra claim` prints claims.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tailbound/tailbound/integrations/kubernetes/cluster/kubelet"
	"github.com/tailbound/tailbound/integrations/kubernetes/driver"
	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	run := serve
	arguments := os.Args[1:]
	if len(arguments) > 0 && arguments[0] == "claim" {
		run, arguments = claim, arguments[1:]
	}
	if err := run(ctx, arguments, os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "tailbound-dra:", err)
		os.Exit(2)
	}
}

// options are the flags of the driver.
type options struct {
	node, admission, program, records, kubelet string
	kubeconfig                                 string
	cniBinaries, cniConfiguration              string
	uplink                                     guarantee.Uplink
	observe                                    time.Duration
}

func parse(arguments []string, out io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("tailbound-dra", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&o.node, "node", os.Getenv("NODE_NAME"), "name of the node [NODE_NAME]")
	flags.StringVar(&o.admission, "admission", "sum", "who adds up guarantees: sum (the stock scheduler) or service (tailbound place)")
	flags.StringVar(&o.program, "tailbound", "tailbound", "the node's tailbound")
	flags.StringVar(&o.records, "records", "/run/tailbound/claims", "directory of the guarantees for the CNI plugin")
	flags.StringVar(&o.kubelet, "kubelet", "/var/lib/kubelet", "directory of kubelet")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "file of the API server's address and of a token; by default those of a pod")
	flags.StringVar(&o.cniBinaries, "cni-binaries", "", "directory of CNI plugins to install tailbound-cni in; none by default")
	flags.StringVar(&o.cniConfiguration, "cni-configuration", "/etc/cni/net.d", "directory of network configurations")
	rate := flags.String("rate", "", "rate of the uplink in bits a second, such as 10G")
	up := flags.Int64("up", 0, "buffer of the queue from the node in bytes")
	down := flags.Int64("down", 0, "buffer of the queue to the node in bytes")
	packet := flags.Int64("packet", 0, "longest packet in bytes that leaves the node whole; a frame if it is 0")
	frame := flags.Int64("frame", int64(guarantee.MinFrame), "longest frame on the wire in bytes")
	flags.DurationVar(&o.uplink.Lateness, "lateness", 0, "longest time that a frame leaves late; 0 if unknown")
	flags.DurationVar(&o.observe, "observe", 2*time.Second, "time between two looks at what is enforced")
	if err := flags.Parse(arguments); err != nil {
		return o, err
	}
	quantity, err := resource.ParseQuantity(*rate)
	if err != nil {
		return o, fmt.Errorf("--rate %q is no quantity: write for example --rate 10G", *rate)
	}
	if o.uplink.Rate, err = guarantee.ParseRate("--rate", quantity); err != nil {
		return o, err
	}
	o.uplink.Up, o.uplink.Down, o.uplink.Frame = guarantee.Bytes(*up), guarantee.Bytes(*down), guarantee.Bytes(*frame)
	if o.uplink.Packet = guarantee.Bytes(*packet); o.uplink.Packet == 0 {
		o.uplink.Packet = o.uplink.Frame
	}
	if err := o.uplink.Check(); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected arguments: %s", strings.Join(flags.Args(), " "))
	case o.node == "":
		return o, errors.New("--node is missing: write the node's name, or set NODE_NAME")
	case o.admission != "sum" && o.admission != "service":
		return o, fmt.Errorf("--admission %q is neither sum nor service", o.admission)
	}
	return o, nil
}

// serve runs the driver until the context ends.
func serve(ctx context.Context, arguments []string, out io.Writer) error {
	o, err := parse(arguments, out)
	if err != nil {
		return err
	}
	// Without a file the address and the token of a pod.
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("finding the API server: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("finding the API server: %w", err)
	}
	store, err := driver.OpenStore(o.records)
	if err != nil {
		return err
	}
	admission := guarantee.BySum
	if o.admission == "service" {
		admission = guarantee.ByService
	}
	node := driver.New(driver.Config{
		Node: o.node, Packet: o.uplink.Packet, Counted: o.uplink.Counted(admission), Store: store, Enforcer: driver.Program{Path: o.program}, Status: kubelet.Status{Client: client},
	})
	if o.cniBinaries != "" {
		if err := installCNI(o); err != nil {
			return err
		}
		defer removeCNI(o)
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	plugins := filepath.Join(o.kubelet, "plugins", guarantee.Driver)
	if err := os.MkdirAll(plugins, 0o750); err != nil {
		return fmt.Errorf("making the directory of the socket: %w", err)
	}
	helper, err := kubeletplugin.Start(ctx, &kubelet.Plugin{Driver: node, Fatal: func(err error) { fail(err) }},
		kubeletplugin.KubeClient(client), kubeletplugin.NodeName(o.node), kubeletplugin.DriverName(guarantee.Driver),
		kubeletplugin.PluginDataDirectoryPath(plugins),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(o.kubelet, "plugins_registry")))
	if err != nil {
		return fmt.Errorf("starting the driver: %w", err)
	}
	defer helper.Stop()
	if err := helper.PublishResources(ctx, kubelet.Resources(o.node, o.uplink, admission)); err != nil {
		return fmt.Errorf("publishing the uplink: %w", err)
	}
	return observe(ctx, node, o.observe)
}

func installCNI(o options) error {
	program, err := exec.LookPath(o.program)
	if err != nil {
		return fmt.Errorf("finding tailbound: %w", err)
	}
	return driver.InstallCNI(program, o.cniBinaries)
}

func removeCNI(o options) {
	gone, err := driver.RemoveCNI(o.cniBinaries, o.cniConfiguration)
	switch {
	case err != nil:
		klog.Background().Error(err, "Removing the CNI plugin")
	case !gone:
		klog.Background().Info("The CNI plugin stays, as a network configuration lists it", "directory", o.cniConfiguration)
	}
}

// observe reports what is enforced until the context ends, and returns why, if it is not a signal.
func observe(ctx context.Context, node *driver.Driver, interval time.Duration) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
				return cause
			}
			return nil
		case <-ticker.C:
			if err := node.Observe(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Observing what is enforced")
			}
		}
	}
}
