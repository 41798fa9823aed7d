package main

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// result is what a closed loop of clients measured.
type result struct {
	Count      int     `json:"count"`
	Errors     int64   `json:"errors"`
	FirstError string  `json:"first_error,omitempty"`
	Seconds    float64 `json:"seconds"`
	Rate       float64 `json:"rate"`
	P50        float64 `json:"p50_ms"`
	P99        float64 `json:"p99_ms"`
	Max        float64 `json:"max_ms"`
	Bytes      int64   `json:"bytes"`
}

// act is one request of one client; it leaves the answer in the buffer.
type act func(client, turn int, answer *bytes.Buffer) error

// loop keeps the clients busy, each with one request at a time, and measures all but the warm-up.
func loop(o options, do act) result {
	var (
		clients  sync.WaitGroup
		failures failures
		asked    atomic.Int64
		read     atomic.Int64
		took     = make([][]time.Duration, o.clients)
		begin    = time.Now().Add(o.warmup)
		end      = begin.Add(o.duration)
	)
	for client := range o.clients {
		clients.Add(1)
		go func() {
			defer clients.Done()
			var answer bytes.Buffer
			for turn := 0; time.Now().Before(end) && asked.Add(1) <= o.maxRequests; turn++ {
				sent := time.Now()
				err := do(client, turn, &answer)
				done := time.Now()
				switch {
				case err != nil:
					failures.add(err)
					// A server that refuses everything at once would fill the run with refusals.
					time.Sleep(time.Millisecond)
				case done.After(begin) && done.Before(end):
					took[client] = append(took[client], done.Sub(sent))
					read.Add(int64(answer.Len()))
				}
			}
		}()
	}
	clients.Wait()
	measured := summed(slices.Concat(took...), min(time.Since(begin), o.duration))
	measured.Errors, measured.FirstError, measured.Bytes = failures.count.Load(), failures.first, read.Load()
	return measured
}

func summed(took []time.Duration, over time.Duration) result {
	slices.Sort(took)
	return result{
		Count:   len(took),
		Seconds: over.Seconds(),
		Rate:    float64(len(took)) / over.Seconds(),
		P50:     milliseconds(percentile(took, 50)),
		P99:     milliseconds(percentile(took, 99)),
		Max:     milliseconds(percentile(took, 100)),
	}
}

// percentile returns the smallest of the sorted values that at least this share does not exceed.
func percentile(sorted []time.Duration, share int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := (len(sorted)*share + 99) / 100
	return sorted[max(rank, 1)-1]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// failures counts errors and keeps the first, which usually explains the rest.
type failures struct {
	count atomic.Int64
	once  sync.Once
	first string
}

func (f *failures) add(err error) {
	f.count.Add(1)
	f.once.Do(func() { f.first = err.Error() })
}
