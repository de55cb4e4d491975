// Answers requests at fixed times and measures itself. Arguments: file of the result, seconds
// before and of the measurement, number of requests that come at once, milliseconds between such.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/metrics"
	"sort"
	"strconv"
	"sync"
	"time"
)

const (
	work    = 8 * time.Millisecond
	objects = 1 << 14 // of 64 bytes, garbage of one request
	live    = 1 << 20 // of 64 bytes, kept for good
)

type object struct {
	next *object
	rest [56]byte
}

var (
	kept   *object
	rounds int
	sink   uint64
)

func chain(length int) (first *object) {
	for i := 0; i < length; i++ {
		first = &object{next: first}
	}
	return first
}

//go:noinline
func burn(rounds int) (state uint64) {
	for state = 1; rounds > 0; rounds-- {
		state = state*6364136223846793005 + 1
	}
	return state
}

// Rounds that take the time of a request's work here, by the fastest of many tries.
func calibrated() int {
	const try = 100_000
	fastest := time.Hour
	for i := 0; i < 200; i++ {
		start := time.Now()
		sink += burn(try)
		if taken := time.Since(start); taken < fastest {
			fastest = taken
		}
	}
	return int(try * int64(work) / int64(fastest))
}

func collections() (cycles uint64, seconds float64) {
	samples := []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/cpu/classes/gc/total:cpu-seconds"},
	}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Float64()
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	settle := time.Duration(must(strconv.Atoi(os.Args[2]))) * time.Second
	span := time.Duration(must(strconv.Atoi(os.Args[3]))) * time.Second
	together := must(strconv.Atoi(os.Args[4]))
	every := time.Duration(must(strconv.Atoi(os.Args[5]))) * time.Millisecond
	kept, rounds = chain(live), calibrated()
	fmt.Println("workload is running")
	var (
		running   sync.WaitGroup
		lock      sync.Mutex
		latencies []float64
		cycles    uint64
		seconds   float64
		settled   bool
	)
	first := time.Now()
	for due := time.Duration(0); due < settle+span; due += every {
		time.Sleep(due - time.Since(first))
		if !settled && due >= settle {
			cycles, seconds = collections()
			settled = true
		}
		for i := 0; i < together; i++ {
			running.Add(1)
			go func(due time.Duration) {
				defer running.Done()
				garbage := chain(objects)
				state := burn(rounds)
				latency := time.Since(first) - due
				lock.Lock()
				defer lock.Unlock()
				sink += state
				runtime.KeepAlive(garbage)
				if due >= settle {
					latencies = append(latencies, latency.Seconds()*1000)
				}
			}(due)
		}
	}
	running.Wait()
	newCycles, newSeconds := collections()
	sort.Float64s(latencies)
	at := func(share float64) float64 { return latencies[int(float64(len(latencies))*share)] }
	text := fmt.Sprintln(at(0.5), at(0.9), at(0.99), newCycles-cycles, newSeconds-seconds, runtime.GOMAXPROCS(0))
	if err := os.WriteFile(os.Args[1]+".new", []byte(text), 0o644); err != nil {
		panic(err)
	}
	if err := os.Rename(os.Args[1]+".new", os.Args[1]); err != nil {
		panic(err)
	}
	runtime.KeepAlive(kept)
	io.Copy(io.Discard, os.Stdin)
}
