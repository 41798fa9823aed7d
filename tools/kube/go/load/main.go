// Command load puts a Kubernetes API server under a measured load: one subcommand per kind of work, JSON as the result.
//
// It talks to loopback only, is bounded in count and time, and counts an answer only when it is the one that was asked for.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"
)

const (
	longestRun  = 10 * time.Minute
	mostClients = 4096
)

// options are the flags, shared by all subcommands.
type options struct {
	server, ca, cert, key, tokenFile string
	protocol                         string
	namespace, kind                  string
	clients, writers                 int
	objects, size                    int
	maxRequests                      int64
	duration, warmup, timeout        time.Duration
}

// work is one subcommand: it runs the load and returns what it measured.
type work func(*target, options) (any, error)

var works = map[string]work{
	"fill":  fill,
	"patch": patch,
	"get":   get,
	"list":  list,
	"watch": watch,
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 0 || works[arguments[0]] == nil {
		return errors.New("usage: load fill|patch|get|list|watch [flags]; load get -h shows the flags")
	}
	chosen, err := parse(arguments[0], arguments[1:])
	if err != nil {
		return err
	}
	reached, err := newTarget(chosen)
	if err != nil {
		return err
	}
	measured, err := works[arguments[0]](reached, chosen)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(measured)
}

func parse(name string, arguments []string) (options, error) {
	var o options
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.StringVar(&o.server, "server", "", "address, https and loopback")
	flags.StringVar(&o.ca, "ca", "", "file of the certificate authority")
	flags.StringVar(&o.cert, "cert", "", "file of the client certificate")
	flags.StringVar(&o.key, "key", "", "file of the client certificate's key")
	flags.StringVar(&o.tokenFile, "token-file", "", "file of a bearer token; the environment's LOAD_TOKEN does as well")
	flags.StringVar(&o.protocol, "protocol", "http1", "http1 or http2")
	flags.StringVar(&o.namespace, "namespace", "default", "namespace of the objects")
	flags.StringVar(&o.kind, "kind", "configmaps", "configmaps or pods")
	flags.IntVar(&o.clients, "clients", 1, "requests in flight; watchers for watch")
	flags.IntVar(&o.writers, "writers", 1, "writers for watch")
	flags.IntVar(&o.objects, "objects", 64, "how many objects there are, or shall be")
	flags.IntVar(&o.size, "size", 1024, "bytes of a ConfigMap's data")
	flags.Int64Var(&o.maxRequests, "max-requests", 5_000_000, "stop after so many requests")
	flags.DurationVar(&o.duration, "duration", 5*time.Second, "how long to measure")
	flags.DurationVar(&o.warmup, "warmup", 500*time.Millisecond, "how long to run before measuring")
	flags.DurationVar(&o.timeout, "timeout", 30*time.Second, "deadline of one request")
	if err := flags.Parse(arguments); err != nil {
		return o, err
	}
	return o, o.check()
}

func (o options) check() error {
	switch {
	case o.clients < 1 || o.clients > mostClients || o.writers < 1 || o.writers > mostClients:
		return fmt.Errorf("-clients and -writers go from 1 to %d", mostClients)
	case o.duration <= 0 || o.warmup < 0 || o.duration+o.warmup > longestRun:
		return fmt.Errorf("-duration and -warmup must be positive and together at most %s", longestRun)
	case o.objects < 1 || o.maxRequests < 1 || o.size < 1:
		return errors.New("-objects, -size and -max-requests must be positive")
	case o.kind != "configmaps" && o.kind != "pods":
		return fmt.Errorf("-kind %q is neither configmaps nor pods", o.kind)
	}
	return nil
}
