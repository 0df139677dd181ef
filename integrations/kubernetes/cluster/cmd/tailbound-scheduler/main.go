// Command tailbound-scheduler is kube-scheduler with the plugin of tailbound. Its flags and its
// configuration are those of kube-scheduler.
package main

import (
	"os"

	"github.com/tailbound/tailbound/integrations/kubernetes/cluster/plugin"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	os.Exit(cli.Run(app.NewSchedulerCommand(app.WithPlugin(plugin.Name, plugin.New))))
}
