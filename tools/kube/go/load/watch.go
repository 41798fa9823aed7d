package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	stragglers   = 60 * time.Second
	lineBuffer   = 64 << 10
	mostRestarts = 100
)

// fanout is what watchers measured while writers wrote.
type fanout struct {
	result
	Watchers   int     `json:"watchers"`
	Writers    int     `json:"writers"`
	Writes     int     `json:"writes"`
	WriteRate  float64 `json:"write_rate"`
	FromSentMs float64 `json:"p50_from_sent_ms"`
	Restarts   int     `json:"restarts"`
}

// written is one acknowledged write: when it was sent and when the answer came.
type written struct{ sent, acknowledged time.Time }

// watcher is one watch: what it saw last of each writer, when each event came, and where to go on if the server ends it.
type watcher struct {
	arrived  [][]time.Time
	seen     atomic.Int64
	ended    atomic.Bool
	version  string
	restarts int
	err      error
}

// watch has writers change one ConfigMap each while every watcher must see every change, once and in order.
func watch(t *target, o options) (any, error) {
	version, err := collectionVersion(t, o)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	watchers, over, err := openAll(ctx, t, o, version)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	writes, failed := writeAll(t, o)
	total := 0
	for _, one := range writes {
		total += len(one)
	}
	wroteFor := time.Since(began)
	waitForAll(watchers, total)
	stop()
	over.Wait()
	if failed.count.Load() > 0 {
		return nil, fmt.Errorf("%d writes failed: %s", failed.count.Load(), failed.first)
	}
	return report(o, watchers, writes, began, wroteFor)
}

func collectionVersion(t *target, o options) (string, error) {
	var answer bytes.Buffer
	if err := t.call(http.MethodGet, o.path("configmaps", "")+"?limit=1", "", nil, &answer, http.StatusOK); err != nil {
		return "", err
	}
	var page struct {
		Metadata struct{ ResourceVersion string }
	}
	err := json.Unmarshal(answer.Bytes(), &page)
	return page.Metadata.ResourceVersion, err
}

// openAll starts the watches and returns when each has its response, so that none is still connecting under load.
func openAll(ctx context.Context, t *target, o options, version string) ([]*watcher, *sync.WaitGroup, error) {
	watchers := make([]*watcher, o.clients)
	var over sync.WaitGroup
	for number := range watchers {
		stream, err := open(ctx, t, o, version)
		if err != nil {
			return nil, nil, err
		}
		watchers[number] = &watcher{arrived: make([][]time.Time, o.writers), version: version}
		over.Add(1)
		go func() {
			defer over.Done()
			watchers[number].run(ctx, stream, func(version string) (io.ReadCloser, error) { return open(ctx, t, o, version) })
		}()
	}
	return watchers, &over, nil
}

func open(ctx context.Context, t *target, o options, version string) (io.ReadCloser, error) {
	path := o.path("configmaps", "") + "?watch=true&timeoutSeconds=900&resourceVersion=" + version
	request, err := t.request(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return nil, err
	}
	answer, err := t.client.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		return nil, fmt.Errorf("watch: %s", answer.Status)
	}
	return answer.Body, nil
}

// run follows a watch and, as every client does, goes on after the last event when the server ends it: an overloaded
// kube-apiserver closes the watches that it thinks are too slow.
func (w *watcher) run(ctx context.Context, stream io.ReadCloser, reopen func(version string) (io.ReadCloser, error)) {
	defer w.ended.Store(true)
	for {
		w.follow(bufio.NewReaderSize(stream, lineBuffer))
		stream.Close()
		if w.err != nil || ctx.Err() != nil {
			return
		}
		if w.restarts++; w.restarts > mostRestarts {
			w.err = fmt.Errorf("the server ended a watch %d times", w.restarts)
			return
		}
		if stream, w.err = reopen(w.version); w.err != nil {
			return
		}
	}
}

// follow notes each event until the stream ends, or says that it is about to.
func (w *watcher) follow(stream *bufio.Reader) {
	for {
		line, err := stream.ReadSlice('\n')
		if err != nil || bytes.HasPrefix(line, []byte(`{"type":"ERROR"`)) {
			return
		}
		now := time.Now()
		writer, turn, err := turnOf(line)
		if err != nil {
			w.err = err
			return
		}
		if writer >= len(w.arrived) || turn != len(w.arrived[writer]) {
			w.err = fmt.Errorf("writer %d: turn %d came after %d turns", writer, turn, len(w.arrived[writer]))
			return
		}
		w.arrived[writer] = append(w.arrived[writer], now)
		w.version = versionOf(line)
		w.seen.Add(1)
	}
}

// versionOf finds the object's resourceVersion, the first in the line on every server.
func versionOf(line []byte) string {
	_, rest, _ := bytes.Cut(line, []byte(`"resourceVersion":"`))
	version, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(version)
}

// turnOf finds who wrote an event and as which of its writes, without decoding the object.
func turnOf(line []byte) (writer, turn int, err error) {
	_, rest, found := bytes.Cut(line, []byte(`"turn-`))
	fields := bytes.SplitN(rest, []byte("-"), 3)
	if !found || len(fields) < 3 {
		return 0, 0, fmt.Errorf("unexpected event: %.200s", line)
	}
	if writer, err = strconv.Atoi(string(fields[0])); err != nil {
		return 0, 0, err
	}
	turn, err = strconv.Atoi(string(fields[1]))
	return writer, turn, err
}

// writeAll writes until the time is up, each writer one change after the other.
func writeAll(t *target, o options) ([][]written, *failures) {
	var (
		writers sync.WaitGroup
		failed  failures
		all     = make([][]written, o.writers)
		end     = time.Now().Add(o.duration)
		left    = o.maxRequests / int64(o.writers)
	)
	for writer := range o.writers {
		writers.Add(1)
		go func() {
			defer writers.Done()
			var answer bytes.Buffer
			for turn := 0; time.Now().Before(end) && int64(turn) < left; turn++ {
				sent := time.Now()
				// After a failure it is unknown whether the write happened, and with it what the watchers should see.
				if err := patchOnce(t, o, writer, fmt.Sprintf("turn-%d-%d-", writer, turn), &answer); err != nil {
					failed.add(err)
					return
				}
				all[writer] = append(all[writer], written{sent, time.Now()})
			}
		}()
	}
	writers.Wait()
	return all, &failed
}

func waitForAll(watchers []*watcher, total int) {
	deadline := time.Now().Add(stragglers)
	for _, one := range watchers {
		for one.seen.Load() < int64(total) && !one.ended.Load() && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
	}
}

func report(o options, watchers []*watcher, writes [][]written, began time.Time, wroteFor time.Duration) (any, error) {
	var fromAnswer, fromSent []time.Duration
	last, restarts := began, 0
	for _, one := range watchers {
		if one.err != nil {
			return nil, one.err
		}
		restarts += one.restarts
		for writer, turns := range writes {
			if len(one.arrived[writer]) != len(turns) {
				return nil, fmt.Errorf("a watcher saw %d of %d changes", len(one.arrived[writer]), len(turns))
			}
			for turn, write := range turns {
				arrived := one.arrived[writer][turn]
				// An event may arrive before the writer has read its answer: then it did not wait at all.
				fromAnswer = append(fromAnswer, max(arrived.Sub(write.acknowledged), 0))
				fromSent = append(fromSent, arrived.Sub(write.sent))
				if arrived.After(last) {
					last = arrived
				}
			}
		}
	}
	if len(fromAnswer) == 0 {
		return nil, errors.New("nothing was written")
	}
	slices.Sort(fromSent)
	count := len(fromAnswer) / o.clients
	return fanout{
		result:   summed(fromAnswer, last.Sub(began)),
		Watchers: o.clients, Writers: o.writers, Writes: count,
		WriteRate:  float64(count) / wroteFor.Seconds(),
		FromSentMs: milliseconds(percentile(fromSent, 50)),
		Restarts:   restarts,
	}, nil
}
