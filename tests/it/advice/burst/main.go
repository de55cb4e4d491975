// Bursts of work for the test of the advice: every -every, -workers goroutines take -cpu of CPU time each, by the clock
// of their threads. It prints the parallelism that the runtime has chosen.
package main

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// CLOCK_THREAD_CPUTIME_ID of linux/time.h.
const threadCPUTime = 3

func threadTime() time.Duration {
	var spec syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadCPUTime, uintptr(unsafe.Pointer(&spec)), 0)
	return time.Duration(spec.Nano())
}

func work(cpu time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for start := threadTime(); threadTime()-start < cpu; {
	}
}

func duration(text string) time.Duration {
	parsed, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return parsed
}

func main() {
	workers, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	cpu, every := duration(os.Args[2]), duration(os.Args[3])
	os.Stdout.WriteString("GOMAXPROCS " + strconv.Itoa(runtime.GOMAXPROCS(0)) + "\n")
	for next := time.Now(); ; next = next.Add(every) {
		time.Sleep(time.Until(next))
		var all sync.WaitGroup
		for worker := 0; worker < workers; worker++ {
			all.Add(1)
			go func() {
				defer all.Done()
				work(cpu)
			}()
		}
		all.Wait()
	}
}
