// A service at a fixed rate: each request allocates, and replaces a part of a cache. Arguments: requests per second,
// seconds (after 20 s of warm-up), objects per request, requests in the cache.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"sort"
	"strconv"
	"sync"
	"time"
)

type node struct {
	next *node
	data [6]*[16]byte
}

func request(objects int) *node {
	var head *node
	for i := 0; i < objects; i++ {
		n := &node{next: head}
		for j := range n.data {
			n.data[j] = new([16]byte)
		}
		head = n
	}
	return head
}

func num(s string) int { n, _ := strconv.Atoi(s); return n }

func cpu() (gc, busy float64) {
	s := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/cpu/classes/total:cpu-seconds"}, {Name: "/cpu/classes/idle:cpu-seconds"}}
	metrics.Read(s)
	return s[0].Value.Float64(), s[1].Value.Float64() - s[2].Value.Float64()
}

func main() {
	rate, seconds, objects, cached := num(os.Args[1]), num(os.Args[2]), num(os.Args[3]), num(os.Args[4])
	cache := make([]*node, cached)
	for i := range cache {
		cache[i] = request(objects)
	}
	every := time.Second / time.Duration(rate)
	var mu sync.Mutex
	var took []time.Duration
	var m0, m1 runtime.MemStats
	var g0, b0 float64
	count := rate * (seconds + 20)
	start := time.Now()
	var wg sync.WaitGroup
	for i := 0; i < count; i++ {
		due := start.Add(time.Duration(i) * every)
		if d := time.Until(due); d > 0 {
			time.Sleep(d)
		}
		if i == rate*20 {
			runtime.ReadMemStats(&m0)
			g0, b0 = cpu()
			fmt.Println("start")
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := request(objects)
			t := time.Since(due)
			mu.Lock()
			cache[i%cached] = r
			if i >= rate*20 {
				took = append(took, t)
			}
			mu.Unlock()
		}()
	}
	wg.Wait()
	runtime.ReadMemStats(&m1)
	g1, b1 := cpu()
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/goal:bytes"}}
	metrics.Read(s)
	sort.Slice(took, func(i, j int) bool { return took[i] < took[j] })
	fmt.Printf("cycles %d gc %.3f busy %.3f p50 %.2f p99 %.2f live %d goal %d procs %d sys %d\n", m1.NumGC-m0.NumGC, g1-g0, b1-b0,
		float64(took[len(took)/2].Microseconds())/1000, float64(took[len(took)*99/100].Microseconds())/1000, s[0].Value.Uint64(), s[1].Value.Uint64(), runtime.GOMAXPROCS(0), m1.Sys)
}
