// Runs the runtime's side of the Node Resource Interface, as containerd does, against the plugin of
// examples/adjust.rs, which it starts. Arguments: the plugin, the runtime's version, the number of
// running containers, and "keep" if the plugin asks to be kept after a timeout.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

var (
	// Containers of a synchronization, with annotations of 2000 bytes each.
	containers int

	ctx    = context.Background()
	pod    = &api.PodSandbox{Id: "sandbox", Name: "pod", Uid: "uid", Namespace: "default"}
	synced = make(chan int, 16)

	plugin *exec.Cmd
)

func fail(format string, args ...interface{}) {
	fmt.Printf("FAILED: "+format+"\n", args...)
	stop()
	os.Exit(1)
}

func must(err error, what string) {
	if err != nil {
		fail("%s: %v", what, err)
	}
}

func start(path, socket string, arguments ...string) {
	plugin = exec.Command(path, append([]string{socket}, arguments...)...)
	plugin.Stdout, plugin.Stderr = os.Stdout, os.Stderr
	// The plugin ends with this process, also when this process is killed.
	plugin.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(plugin.Start(), "start of the plugin")
}

func signal(signal syscall.Signal) {
	must(plugin.Process.Signal(signal), "signal to the plugin")
}

func stop() {
	if plugin != nil {
		plugin.Process.Kill()
		plugin.Wait()
		plugin = nil
	}
}

func container(name string, annotations map[string]string) *api.Container {
	return &api.Container{
		Id: "id-" + name, PodSandboxId: pod.Id, Name: name, Annotations: annotations,
		Env: []string{"PATH=/bin"},
	}
}

func synchronize(ctx context.Context, callback adaptation.SyncCB) error {
	// Half as many pods: with a single one, the library never ends a synchronization in chunks.
	pods, all := []*api.PodSandbox{}, []*api.Container{}
	for i := 0; i < containers; i++ {
		padding := map[string]string{"padding": strings.Repeat("x", 2000)}
		all = append(all, container(strconv.Itoa(i), padding))
		if i%2 == 0 {
			pods = append(pods, &api.PodSandbox{Id: strconv.Itoa(i), Name: strconv.Itoa(i)})
		}
	}
	updates, err := callback(ctx, pods, all)
	if err != nil {
		fmt.Printf("synchronize: %v\n", err)
		return err
	}
	synced <- len(updates)
	return nil
}

func waitSynced() {
	select {
	case <-synced:
		// The library adds the plugin after this call.
		time.Sleep(300 * time.Millisecond)
	case <-time.After(60 * time.Second):
		fail("the plugin did not synchronize")
	}
}

func tryCreate(r *adaptation.Adaptation, name string, annotations map[string]string) (*api.CreateContainerResponse, error) {
	request := &api.CreateContainerRequest{Pod: pod, Container: container(name, annotations)}
	return r.CreateContainer(ctx, request)
}

// Environment variables and CPUs that a new container gets, and the time of the call.
func create(r *adaptation.Adaptation, name string, annotations map[string]string) (map[string]string, string, time.Duration) {
	start := time.Now()
	response, err := tryCreate(r, name, annotations)
	took := time.Since(start)
	must(err, "CreateContainer "+name)
	env := map[string]string{}
	for _, variable := range response.GetAdjust().GetEnv() {
		env[variable.Key] = variable.Value
	}
	return env, response.GetAdjust().GetLinux().GetResources().GetCpu().GetCpus(), took
}

func mustBeAdjusted(r *adaptation.Adaptation, when string) {
	env, cpus, _ := create(r, "a", nil)
	if env["CONTAINERS"] != strconv.Itoa(containers) || cpus != "0-1" {
		fail("%s: variables %v, CPUs %q", when, env, cpus)
	}
}

func mustNotBeAdjusted(r *adaptation.Adaptation, when string) time.Duration {
	env, cpus, took := create(r, "a", nil)
	if len(env) != 0 || cpus != "" {
		fail("%s: variables %v, CPUs %q", when, env, cpus)
	}
	// The library's limit of 2 s once, not twice.
	if took >= 3500*time.Millisecond {
		fail("%s: the container waited %v", when, took)
	}
	fmt.Printf("CreateContainer %s: %v\n", when, took)
	return took
}

// All calls and events of a container's life, and answers of many lengths.
func life(r *adaptation.Adaptation) {
	must(runPod(r), "RunPodSandbox")
	mustBeAdjusted(r, "first container")
	must(startContainer(r, container("a", nil)), "StartContainer")
	lengths := []int{1 << 20, 3 << 20}
	for length := 3900; length < 4200; length += 7 {
		lengths = append(lengths, length)
	}
	for _, length := range lengths {
		env, _, _ := create(r, "a", map[string]string{"copy": strings.Repeat("y", length)})
		if len(env["COPY"]) != length {
			fail("an answer with %d bytes came back with %d", length, len(env["COPY"]))
		}
	}
	env, _, _ := create(r, "a", map[string]string{"copy": "first", "again": "second"})
	if env["COPY"] != "second" {
		fail("a variable that is added twice is %q", env["COPY"])
	}
	quota := &api.LinuxResources{Cpu: &api.LinuxCPU{Quota: &api.OptionalInt64{Value: 50000}}}
	update := &api.UpdateContainerRequest{Pod: pod, Container: container("a", nil), LinuxResources: quota}
	updated, err := r.UpdateContainer(ctx, update)
	must(err, "UpdateContainer")
	if len(updated.Update) != 1 || updated.Update[0].Linux.Resources.Cpu.Quota.Value != 50000 {
		fail("update: %v", updated)
	}
	_, err = r.StopContainer(ctx, &api.StopContainerRequest{Pod: pod, Container: container("a", nil)})
	must(err, "StopContainer")
	must(removeContainer(r, container("a", nil)), "RemoveContainer")
}

func measure(r *adaptation.Adaptation) {
	took := []time.Duration{}
	for i := 0; i < 2000; i++ {
		_, _, time := create(r, "timed", nil)
		took = append(took, time)
	}
	must(removeContainer(r, container("timed", nil)), "RemoveContainer")
	sort.Slice(took, func(i, j int) bool { return took[i] < took[j] })
	fmt.Printf("CreateContainer: p50 %v, p99 %v, max %v\n", took[1000], took[1980], took[1999])
}

// A handler that does not answer: the plugin answers without it, and synchronizes afterwards.
func hangingHandler(r *adaptation.Adaptation) {
	env, _, took := create(r, "hangs", map[string]string{"hang": "3000"})
	if len(env) != 0 {
		fail("a late answer was used: %v", env)
	}
	if took >= 2*time.Second {
		fail("the runtime's own limit ended the call: %v", took)
	}
	fmt.Printf("CreateContainer with a hanging handler: %v\n", took)
	mustNotBeAdjusted(r, "while the handler hangs")
	waitSynced()
	mustBeAdjusted(r, "after the handler hung")
}

// A stopped process: the runtime's own limit of 2 s holds.
func stoppedProcess(r *adaptation.Adaptation, keep bool) {
	signal(syscall.SIGSTOP)
	mustNotBeAdjusted(r, "with a stopped plugin")
	second := mustNotBeAdjusted(r, "with a stopped plugin, again")
	if kept := second >= time.Second; kept != keep {
		fail("kept connected: %v, asked for: %v", kept, keep)
	}
	signal(syscall.SIGCONT)
	if !keep {
		waitSynced()
	}
	if keep {
		// It still takes the calls of which the runtime has given up, and knows their container.
		time.Sleep(time.Second)
		must(removeContainer(r, container("a", nil)), "RemoveContainer")
	}
	mustBeAdjusted(r, "after the plugin went on")
}

// Another plugin, which sets the CPUs and a variable of every container.
type other struct{}

func (other) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	adjust := &api.ContainerAdjustment{}
	adjust.SetLinuxCPUSetCPUs("2-3")
	adjust.AddEnv("COPY", "other")
	return adjust, nil, nil
}

func startOther(socket, index string) stub.Stub {
	plugin, err := stub.New(other{}, stub.WithPluginName("other"), stub.WithPluginIdx(index),
		stub.WithSocketPath(socket), stub.WithOnClose(func() {}))
	must(err, "another plugin")
	must(plugin.Start(ctx), "start of another plugin")
	waitSynced()
	return plugin
}

func mustBeRejected(r *adaptation.Adaptation, when string) {
	_, err := tryCreate(r, "b", nil)
	if err == nil {
		fail("%s: accepted", when)
	}
	fmt.Printf("%s: %v\n", when, err)
}

// Two plugins that set the same value fail the container, in any order. The plugin, index 50, sees
// what one before it has set and leaves it; what a later one sets, it cannot see.
func twoPlugins(r *adaptation.Adaptation, socket string) {
	before := startOther(socket, "10")
	env, cpus, _ := create(r, "b", map[string]string{"copy": "ours"})
	if cpus != "2-3" || env["COPY"] != "other" || env["CONTAINERS"] == "" {
		fail("after another plugin: variables %v, CPUs %q", env, cpus)
	}
	after := startOther(socket, "90")
	mustBeRejected(r, "two others")
	before.Stop()
	mustBeRejected(r, "another one after the plugin")
	after.Stop()
	must(removeContainer(r, container("b", nil)), "RemoveContainer")
	mustBeAdjusted(r, "after the other plugins")
	must(removeContainer(r, container("a", nil)), "RemoveContainer")
}

func main() {
	path, version := os.Args[1], os.Args[2]
	count, err := strconv.Atoi(os.Args[3])
	must(err, "number of containers")
	containers = count
	keep := len(os.Args) > 4 && os.Args[4] == "keep"
	directory, err := os.MkdirTemp("", "nri")
	must(err, "directory")
	defer os.RemoveAll(directory)
	socket, none := filepath.Join(directory, "nri.sock"), filepath.Join(directory, "none")
	updates := func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil }
	r, err := adaptation.New("containerd", version, synchronize, updates,
		adaptation.WithSocketPath(socket), adaptation.WithPluginPath(none), adaptation.WithPluginConfigPath(none))
	must(err, "New")
	must(r.Start(), "Start")
	// The library synchronizes the plugins that it starts itself, of which there are none.
	for len(synced) > 0 {
		<-synced
	}
	mustNotBeAdjusted(r, "without a plugin")

	start(path, socket, os.Args[4:]...)
	waitSynced()
	life(r)
	twoPlugins(r, socket)
	measure(r)
	hangingHandler(r)
	stoppedProcess(r, keep)

	stop()
	mustNotBeAdjusted(r, "after the plugin was killed")
	start(path, socket, os.Args[4:]...)
	waitSynced()
	mustBeAdjusted(r, "after the plugin was started again")
	stop()

	// Of a synchronization that the library splits, the first chunk is late: the handler is busy for
	// more than half of this time.
	if containers > 2000 {
		adaptation.SetPluginRequestTimeout(8 * time.Second)
		start(path, socket, "slow")
		waitSynced()
		mustBeAdjusted(r, "after a slow synchronization")
		stop()
	}
	fmt.Println("PASSED")
}
