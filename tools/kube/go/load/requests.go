package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	jsonType  = "application/json"
	mergeType = "application/merge-patch+json"
)

type object = map[string]any

func (o options) path(kind string, name string) string {
	return strings.TrimSuffix("/api/v1/namespaces/"+o.namespace+"/"+kind+"/"+name, "/")
}

func objectName(number int) string { return fmt.Sprintf("load-%05d", number) }

// newObject is the same for every server: a ConfigMap of the wanted size, or a Pod with what a small one carries.
func newObject(o options, number int) object {
	metadata := object{"name": objectName(number), "labels": object{"app": "load", "shard": fmt.Sprint(number % 10)}}
	if o.kind == "configmaps" {
		data := object{"turn": "none", "padding": strings.Repeat("x", o.size)}
		return object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
	}
	container := object{
		"name": "vm", "image": "registry.invalid/macos:26.3", "args": []string{"run", "--no-graphics"},
		"env":       []object{{"name": "POOL", "value": "load"}, {"name": "PADDING", "value": strings.Repeat("x", 512)}},
		"resources": object{"requests": object{"cpu": "4", "memory": "8Gi"}, "limits": object{"cpu": "4", "memory": "8Gi"}},
	}
	spec := object{"containers": []object{container}, "restartPolicy": "Never", "nodeSelector": object{"pool": "load"}}
	return object{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
}

// fill creates the objects that are not there yet.
func fill(t *target, o options) (any, error) {
	var (
		next    atomic.Int64
		clients sync.WaitGroup
		failed  failures
	)
	for range o.clients {
		clients.Add(1)
		go func() {
			defer clients.Done()
			var answer bytes.Buffer
			for number := int(next.Add(1)) - 1; number < o.objects; number = int(next.Add(1)) - 1 {
				body, _ := json.Marshal(newObject(o, number))
				wanted := []int{http.StatusCreated, http.StatusConflict}
				if err := t.call(http.MethodPost, o.path(o.kind, ""), jsonType, body, &answer, wanted...); err != nil {
					failed.add(err)
				}
			}
		}()
	}
	clients.Wait()
	if failed.count.Load() > 0 {
		return nil, fmt.Errorf("%d of %d objects not created: %s", failed.count.Load(), o.objects, failed.first)
	}
	return object{"count": o.objects}, nil
}

// patch has each client change ConfigMaps of its own, so that no two meet, and checks that the answer carries the change.
func patch(t *target, o options) (any, error) {
	return loop(o, func(client, turn int, answer *bytes.Buffer) error {
		return patchOnce(t, o, client, fmt.Sprintf("turn-%d-%d-", client, turn), answer)
	}), nil
}

func patchOnce(t *target, o options, number int, value string, answer *bytes.Buffer) error {
	path := o.path("configmaps", objectName(number%o.objects))
	body := fmt.Appendf(nil, `{"data":{"turn":%q}}`, value)
	if err := t.call(http.MethodPatch, path, mergeType, body, answer, http.StatusOK); err != nil {
		return err
	}
	if !bytes.Contains(answer.Bytes(), []byte(value)) {
		return errors.New("the answer to a patch does not carry the change")
	}
	return nil
}

func get(t *target, o options) (any, error) {
	return loop(o, func(client, turn int, answer *bytes.Buffer) error {
		name := objectName((client + turn*o.clients) % o.objects)
		if err := t.call(http.MethodGet, o.path(o.kind, name), "", nil, answer, http.StatusOK); err != nil {
			return err
		}
		if !bytes.Contains(answer.Bytes(), []byte(name)) {
			return errors.New("the answer to a get is another object")
		}
		return nil
	}), nil
}

// list reads the whole collection in one request and counts what came by the uids: decoding would measure this program.
func list(t *target, o options) (any, error) {
	return loop(o, func(_, _ int, answer *bytes.Buffer) error {
		if err := t.call(http.MethodGet, o.path(o.kind, ""), "", nil, answer, http.StatusOK); err != nil {
			return err
		}
		if items := bytes.Count(answer.Bytes(), []byte(`"uid":`)); items != o.objects {
			return fmt.Errorf("a list of %d objects holds %d", o.objects, items)
		}
		return nil
	}), nil
}
