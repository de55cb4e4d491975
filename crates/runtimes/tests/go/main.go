// Allocates for a while, and reports what the Go runtime itself says of garbage collection.
//
// Each line of standard input is a number of megabytes to allocate, or empty. For each, one line of numbers is
// printed: see `Reported` in gc.rs.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
)

var kept [][]byte
var last []byte

func main() {
	for i := 0; i < 64; i++ {
		kept = append(kept, make([]byte, 256<<10))
	}
	names := []string{
		"/cpu/classes/gc/total:cpu-seconds",
		"/gc/heap/goal:bytes",
		"/gc/heap/live:bytes",
		"/gc/gomemlimit:bytes",
		"/gc/gogc:percent",
	}
	samples := make([]metrics.Sample, len(names))
	for i, name := range names {
		samples[i].Name = name
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		megabytes, _ := strconv.Atoi(lines.Text())
		for i := 0; i < megabytes*4; i++ {
			last = make([]byte, 256<<10)
			kept[i%len(kept)] = last
		}
		if megabytes > 0 {
			// Waits for a cycle that is running, so that none ends between the report and the reading.
			runtime.GC()
		}
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		metrics.Read(samples)
		fmt.Print(memory.NumGC, " ", memory.PauseTotalNs, " ", runtime.GOMAXPROCS(0))
		for _, sample := range samples {
			switch sample.Value.Kind() {
			case metrics.KindFloat64:
				fmt.Print(" ", int64(sample.Value.Float64()*1e9))
			case metrics.KindUint64:
				fmt.Print(" ", sample.Value.Uint64())
			default:
				fmt.Print(" -1")
			}
		}
		fmt.Println()
	}
}
